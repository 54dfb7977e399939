from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdgrad.capture.fields import draw_batch, readers
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from crowdgrad.errors import TaskError

X, Y = torch.rand(4, 3) * 2 - 1, torch.tensor([0, 1, 0, 1])
TASK = Task(nn.Linear(3, 2), nn.functional.cross_entropy, inputs=(X,), targets=(Y,))
PIXELS = Field(name="pixels", dtype="uint8", shape=(3,), mean=127.5, std=127.5)
LABEL = Field(name="label", dtype="uint8", shape=())


def test_without_fields_records_look_like_the_example():
    x, y = readers(TASK, None)
    assert (x.field.name, x.field.dtype, x.field.shape) == ("input0", "float32", (3,))
    assert (y.field.name, y.field.dtype, y.field.shape) == ("target0", "int64", ())
    assert (x.role, y.role) == ("input", "target")
    assert torch.equal(x.read(X), X)


def test_reading_normalises_and_storing_is_its_inverse():
    x, y = readers(TASK, (PIXELS, LABEL))
    stored = x.store(X)
    assert stored.dtype == torch.uint8
    assert torch.allclose(x.read(stored), X, atol=1 / 127)
    assert x.read(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]
    assert torch.equal(y.read(y.store(Y)), Y)
    assert y.read(y.store(Y)).dtype == torch.int64


def test_values_beyond_the_storage_type_are_clipped():
    (x, _) = readers(TASK, (PIXELS, LABEL))
    assert x.store(torch.tensor([-9.0, 9.0])).tolist() == [0, 255]


def test_draws_stay_within_the_examples_range_and_type():
    generator = torch.Generator().manual_seed(0)
    x, y = readers(TASK, None)
    drawn = x.draw(500, generator)
    assert drawn.shape == (500, 3)
    assert X.min() <= drawn.min() < drawn.max() <= X.max()
    assert set(y.draw(100, generator).tolist()) == {0, 1}


def test_an_example_of_zeros_still_draws_inputs_that_vary():
    task = Task(TASK.model, TASK.loss, inputs=(X * 0,), targets=(Y,))
    assert readers(task, None)[0].draw(50, torch.Generator().manual_seed(0)).std() > 0.5


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((PIXELS,), "1 fields"),
        ((Field(name="pixels", dtype="uint8", shape=(1, 3)), LABEL), r"shape \(1, 3\)"),
    ],
)
def test_fields_that_do_not_fit_the_task_are_refused(fields, reason):
    with pytest.raises(TaskError, match=reason):
        readers(TASK, fields)


def test_weights_are_the_field_after_the_others_or_ones_that_the_data_need_not_have():
    (*_, derived) = readers(TASK, (PIXELS, LABEL), weighted=True)
    assert (derived.role, derived.field.name, derived.field.dtype) == (
        "weight",
        "weights",
        "float32",
    )
    own = Field(name="trust", dtype="float32", shape=())
    (*_, given) = readers(TASK, (PIXELS, LABEL, own), weighted=True)
    assert given.field == own
    drawn = given.draw(50, torch.Generator().manual_seed(0))
    assert drawn[1] == 0 < drawn[0]
    with pytest.raises(TaskError, match=r"'trust', are uint8.*float32"):
        readers(TASK, (PIXELS, LABEL, Field(name="trust", dtype="uint8", shape=())), weighted=True)
    taken = Field(name="weights", dtype="float32", shape=(3,))
    assert readers(TASK, (taken, LABEL), weighted=True)[-1].field.name == "weights_"


def test_types_a_record_cannot_have_are_refused():
    task = Task(TASK.model, TASK.loss, inputs=(X.half(),), targets=(Y,))
    with pytest.raises(TaskError, match="float16"):
        readers(task, None)


def test_the_columns_of_a_record_stay_together():
    rows = torch.arange(100)
    records = [rows[:, None].expand(100, 3).float().numpy(), rows.numpy()]
    reading = readers(TASK, None, records, weighted=True)
    x, y, weights = draw_batch(reading, 50, torch.Generator().manual_seed(0))
    assert torch.equal(x[:, 0].long(), y)
    assert len(set(y.tolist())) > 10
    assert weights.shape == (50,)


def test_padding_of_targets_is_drawn_as_padding():
    task = Task(TASK.model, TASK.loss, inputs=(X,), targets=(torch.tensor([0, 2, -100, 1]),))
    drawn = readers(task, None)[1].draw(200, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {-100, 0, 1, 2}
