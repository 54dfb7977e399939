"""A mean and a deviation for each column or channel: the program reads as PyTorch would by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.fields import _placed, readers
from crowdgrad.capture.holdings import look
from crowdgrad.capture.task import Task
from crowdgrad.capture.trusted import objective_of
from crowdgrad.data.dataset import DataSet, from_arrays, standardised
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import MAX_FIELDS_BYTES, decode_manifest, encode_manifest
from crowdgrad.domain.data import Field
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import DataMalformed, TaskError
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.program.check import check
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.program.engines.torch import TorchEngine, TorchOptions
from crowdgrad.program.graph import parse

RNG = np.random.default_rng(0)
WIDE = 3000
ORDINARY = ("a table", "pictures", "dates")
"""Cases of an ordinary run."""


def table(columns: int, dtype: str = "float32", records: int = 80) -> np.ndarray:
    """Columns from thousandths to millions."""
    scales = 10.0 ** RNG.integers(-3, 7, columns)
    return (RNG.normal(size=(records, columns)) * scales + 3 * scales).astype(dtype)


def pictures() -> np.ndarray:
    shades = RNG.integers(0, 200, (80, 3, 6, 6)) * np.array([1, 0.5, 0.1])[:, None, None]
    return (shades + np.array([0, 30, 200])[:, None, None]).astype(np.uint8)


def dates() -> np.ndarray:
    """Seconds since 1970, all within a minute: float32 would see them as one moment."""
    return 1_700_000_000 + RNG.integers(0, 60, (80, 2))


def dense(columns: int) -> nn.Module:
    return nn.Sequential(nn.Linear(columns, 8), nn.Tanh(), nn.Linear(8, 3))


def folded() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))


CASES = {
    "a table": (table(5), dense(5)),
    "a wide table": (table(WIDE), dense(WIDE)),
    "a table in float64": (table(5, "float64"), dense(5)),
    "dates": (dates(), dense(2)),
    "pictures": (pictures(), folded()),
}


def made(x: np.ndarray) -> DataSet:
    return standardised(from_arrays(x, RNG.integers(0, 3, len(x))), "x", each=True)


def task_of(model: nn.Module, x: np.ndarray) -> Task:
    return Task(
        model,
        nn.functional.cross_entropy,
        inputs=(torch.zeros(4, *x.shape[1:]),),
        targets=(torch.tensor([0, 1, 2, 0]),),
    )


def captured_of(task: Task, data: DataSet) -> Captured:
    return capture(task, data.fields, records=[c[:40] for c in data.splits["train"]])


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ORDINARY else pytest.mark.slow) for n in CASES],
)
def test_loss_and_gradients_are_those_of_reading_by_hand(name: str) -> None:
    x, model = CASES[name]
    data = made(x)
    task = task_of(model, x)
    captured = captured_of(task, data)
    check(captured.program, 64)
    columns = tuple(column[:16] for column in data.splits["train"])
    unit = Unit(id=UnitId(1), kind="train", epoch=0, shard=0, first_batch=0, batches=1)
    work = UnitWork(
        unit=unit,
        local=LocalSteps(batch_size=16),
        seed=0,
        batches=[Batch(number=0, fields=columns)],
    )
    # By hand, in float64 and along the axes that are not the first of a record.
    axes = (0, *range(2, x.ndim))
    wide = x.astype(np.float64)
    read = ((wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True))[:16]
    loss = nn.functional.cross_entropy(
        model(torch.tensor(read, dtype=torch.float32)), torch.tensor(columns[1])
    )
    wanted = torch.autograd.grad(loss, tuple(model.parameters()))
    names = [name for name, _ in model.named_parameters()]
    own = TorchEngine(
        captured.program.spec, objective_of(task, look(task.model), data.fields), TorchOptions()
    )
    for engine in (OnnxEngine(captured.program), own):
        update = np.zeros(captured.program.spec.update_words, np.float32)
        result = engine.train(work, captured.state.copy(), update)
        assert result.loss == pytest.approx(loss.item(), rel=1e-4)
        found = dict(
            (spec.name, view) for spec, view in StateLayout(captured.program.spec).tensors(update)
        )
        for tensor, gradient in zip(names, wanted, strict=True):
            np.testing.assert_allclose(found[tensor], gradient.numpy(), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "item"),
    [
        ("float32", 4),
        pytest.param("int16", 4, marks=pytest.mark.slow),
        pytest.param("float64", 8, marks=pytest.mark.slow),
    ],
)
def test_means_travel_with_the_digits_they_need_and_no_more(dtype: str, item: int) -> None:
    x = (100 * RNG.normal(size=(80, 40))).astype(dtype)
    captured = captured_of(task_of(dense(40), x), made(x))
    for graph in (captured.program.gradient, captured.program.forward):
        constants = parse(graph, "it").constants
        assert [len(c.data) for c in constants if c.dims == (40,)] == [item * 40] * 2


@pytest.mark.parametrize("name", CASES)
def test_the_manifest_carries_every_mean(name: str) -> None:
    data = made(CASES[name][0])
    manifest, _ = cut(data, seed=0, batch_size=8)
    again = decode_manifest(encode_manifest(manifest))
    assert again == manifest
    assert isinstance(again.fields[0].mean, tuple)
    assert len(again.fields[0].mean) == data.fields[0].shape[0]


def test_more_columns_than_fit_are_refused_where_they_are_cut() -> None:
    columns = MAX_FIELDS_BYTES // 18 + 1
    x = np.zeros((2, columns), np.float32)
    data = standardised(from_arrays(x, np.zeros(2, np.int64)), "x", each=True)
    manifest, _ = cut(data, seed=0, batch_size=2)
    with pytest.raises(DataMalformed, match="means and deviations"):
        encode_manifest(manifest)


def test_more_columns_than_a_program_may_carry_are_refused_with_the_reason() -> None:
    x = table(40_000, records=8)
    with pytest.raises(TaskError, match="bytes of constants"):
        captured_of(task_of(nn.Linear(40_000, 3), x), made(x))


@pytest.mark.parametrize(
    ("mean", "std", "reason"),
    [
        ((1.0, 2.0), (1.0, 1.0), "2 means for records"),
        ((1.0, 2.0, 3.0), (1.0, 1.0), "3 means, 2 deviations"),
        ((1.0, 2.0, 3.0), (1.0, 0.0, 1.0), "std 0.0"),
        ((1.0, 2.0, 3.0), 1.0, "3 means, 1 deviations"),
    ],
)
def test_means_that_do_not_fit_are_refused(mean: object, std: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Field(name="x", dtype="float32", shape=(3,), mean=mean, std=std)  # type: ignore[arg-type]


def test_elsewhere_than_on_the_cpu_means_are_placed_once() -> None:
    """A recording on a GPU must find them there; the meta device has no memory to copy to."""
    data = made(pictures())
    (reader, _) = readers(task_of(folded(), pictures()), data.fields)
    stored = torch.empty(2, 3, 6, 6, dtype=torch.uint8, device="meta")
    assert reader.read(stored).shape == (2, 3, 6, 6)
    placed = _placed(data.fields[0].mean, 2, "float32", stored.device)  # type: ignore[arg-type]
    assert placed is _placed(data.fields[0].mean, 2, "float32", stored.device)  # type: ignore[arg-type]
    assert (placed.device.type, tuple(placed.shape)) == ("meta", (3, 1, 1))
