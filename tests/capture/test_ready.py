"""Ready-made models: each captures on its data and passes the gate; what does not fit says why."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.ready import KINDS, build, find, model_of
from crowdgrad.capture.task import Task
from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.errors import JobFileError, TaskError
from crowdgrad.host.knowing import told_of
from tests.data.stand_ins import stand_in

SMALL = {
    "mlp": {"layers": 1, "width": 8},
    "cnn": {"blocks": 1, "channels": 8},
    "rnn": {"width": 8},
    "gpt": {"layers": 1, "heads": 2, "width": 16},
}


def task(data: DataSet, kind: str, seed: int = 3, **values: Any) -> Task:
    return build(model_of({"kind": kind, **SMALL[kind], **values}), told_of(data), seed)


def captured(data: DataSet, kind: str, **values: Any) -> Captured:
    some = [column[:32] for column in data.splits["train"]]
    return capture(task(data, kind, **values), data.fields, records=some)


def steps(length: int = 5) -> DataSet:
    draw = np.random.default_rng(0)
    mask = np.arange(length) < draw.integers(1, length + 1, 20)[:, None]
    x = draw.normal(3, 5, (20, length, 2)).astype(np.float32)
    return from_arrays(x, mask, np.arange(20) % 3, names=("x", "mask", "y"))


def words(length: int = 6) -> DataSet:
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, length + 1, 20)
    ids = draw.integers(1, 9, (20, length)) * (np.arange(length) < lengths[:, None])
    return from_arrays(ids, lengths, np.arange(20) % 2, names=("x", "x_length", "y"))


def text(length: int = 6) -> DataSet:
    ids = np.random.default_rng(0).integers(0, 9, (20, length)).astype(np.uint8)
    return from_arrays(ids, np.roll(ids, -1, axis=1), names=("x", "y"))


@pytest.mark.parametrize(
    ("name", "kind", "values", "metric"),
    [
        ("digits", "mlp", {"dropout": 0.2}, "accuracy"),
        ("diabetes", "mlp", {}, "mean_absolute_error"),
        ("diamonds", "mlp", {}, "mean_absolute_error"),
        ("imdb", "mlp", {}, "accuracy"),
        pytest.param("cifar10", "cnn", {}, "accuracy", marks=pytest.mark.slow),
        ("digits", "cnn", {"blocks": 1, "dropout": 0.1}, "accuracy"),
        pytest.param(
            "digits", "cnn", {"blocks": 4, "dropout": 0.1}, "accuracy", marks=pytest.mark.slow
        ),
        pytest.param("shakespeare", "gpt", {}, "perplexity", marks=pytest.mark.slow),
    ],
)
def test_it_passes_the_gate_on_data_of_the_catalogue(name, kind, values, metric):
    found = captured(stand_in(name), kind, **values)
    assert found.program.spec.metrics[0].name == metric
    assert found.program.spec.fixed_batch == 0, "any batch size"
    assert bool(found.program.spec.noise) == bool(values.get("dropout"))


@pytest.mark.parametrize(
    ("make", "kind", "values"),
    [
        pytest.param(steps, "rnn", {"cell": "gru", "layers": 2}, marks=pytest.mark.slow),
        pytest.param(words, "rnn", {"cell": "lstm", "dropout": 0.1}, marks=pytest.mark.slow),
        pytest.param(text, "rnn", {"cell": "gru"}, marks=pytest.mark.slow),
        (words, "mlp", {}),
        (text, "gpt", {"context": 2, "dropout": 0.1}),
    ],
)
def test_it_passes_the_gate_on_sequences_and_texts(make, kind, values):
    assert captured(make(), kind, **values).program.spec.fixed_batch == 0


def test_padding_does_not_matter():
    data = words()
    for kind in ("rnn", "mlp"):
        model = task(data, kind).model.eval()
        ids, lengths = torch.tensor([[3, 4, 0, 0, 0, 0]]), torch.tensor([2])
        other = torch.tensor([[3, 4, 8, 7, 8, 7]])
        assert torch.equal(model(ids, lengths), model(other, lengths)), kind
        assert not torch.equal(model(ids, lengths), model(other, torch.tensor([4]))), kind


def test_a_gpt_looks_back_and_never_ahead():
    model = task(text(), "gpt", context=2).model.eval()
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    changed = torch.tensor([[1, 2, 3, 4, 5, 0]])
    assert torch.allclose(model(ids)[:, :5], model(changed)[:, :5], atol=1e-6)
    early = torch.tensor([[7, 2, 3, 4, 5, 6]])
    assert torch.allclose(model(ids)[:, 2:], model(early)[:, 2:], atol=1e-6), "one layer, two back"


def test_the_seed_alone_decides_the_first_weights():
    data = stand_in("digits")
    torch.manual_seed(0)
    first = task(data, "mlp", seed=5).model.state_dict()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    again, other = task(data, "mlp", seed=5).model.state_dict(), task(data, "mlp", seed=6).model
    assert torch.equal(before, torch.get_rng_state()), "and nothing else is drawn"
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], value) for name, value in other.state_dict().items())


def test_what_the_data_does_not_normalise_is_measured():
    draw = np.random.default_rng(0)
    x = draw.normal([100, -3], [10, 0.1], (50, 2)).astype(np.float32)
    y = (1000 + 5 * draw.normal(size=50)).astype(np.float32)
    made = task(from_arrays(x, y), "mlp")
    guesses = made.model(torch.tensor(x))
    assert (guesses - 1000).abs().max() < 20, "in the target's own units"
    rows = made.model.reading[0](torch.tensor(x))
    assert rows.mean(0).abs().max() < 0.01
    assert (rows.std(0) - 1).abs().max() < 0.05


def test_whole_numbers_without_names_are_classes_or_numbers():
    x = np.zeros((40, 3), np.float32)
    assert told_of(from_arrays(x, np.arange(40) % 7)).outputs == 7
    assert told_of(from_arrays(x, np.arange(40) * 1000)).goal == "number"
    assert told_of(from_arrays(x, np.arange(40) % 2 * 2 - 1)).goal == "number"


def test_colours_may_come_last():
    pictures = np.random.default_rng(0).integers(0, 255, (20, 8, 8, 3)).astype(np.uint8)
    made = task(from_arrays(pictures, np.arange(20) % 2), "cnn")
    assert made.model(torch.zeros(2, 8, 8, 3)).shape == (2, 2)


FITTING = {
    "digits": {"mlp", "cnn"},
    "cifar10": {"mlp", "cnn"},
    "diabetes": {"mlp"},
    "diamonds": {"mlp"},
    "japanese_vowels": {"rnn"},
    "imdb": {"mlp"},  # 256 words are too many steps
    "shakespeare": {"rnn", "gpt"},
}


@pytest.mark.parametrize("name", FITTING)
def test_each_kind_says_whether_it_fits(name):
    fields = stand_in(name).fields
    said = {ready.kind: ready.fits(fields) for ready in KINDS}
    assert {kind for kind, why in said.items() if not why} == FITTING[name]
    assert all(why.endswith(".") for why in said.values() if why)


def test_what_does_not_fit_says_what_does():
    with pytest.raises(TaskError, match=r"The data is a table with numbers") as refused:
        task(stand_in("diabetes"), "cnn")
    assert refused.value.advice == "Choose mlp."
    with pytest.raises(TaskError, match="3 layers of 100 steps") as refused:
        task(steps(100), "rnn", layers=3)
    assert "layers = 2" in refused.value.advice


@pytest.mark.parametrize(
    ("table", "what", "advice"),
    [
        ({}, "has no kind", "mlp, cnn, rnn, gpt"),
        ({"kind": "svm"}, "'svm'", "mlp, cnn, rnn, gpt"),
        ({"kind": "mlp", "depth": 3}, "'depth'", "kind, layers, width, dropout"),
        ({"kind": "mlp", "layers": 0}, "'layers'", "a whole number from 1 to 6"),
        ({"kind": "mlp", "layers": 1.5}, "'layers'", "a whole number"),
        ({"kind": "mlp", "layers": True}, "'layers'", "a whole number"),
        ({"kind": "mlp", "dropout": 0.9}, "'dropout'", "from 0 to 0.8"),
        ({"kind": "mlp", "dropout": float("nan")}, "'dropout'", "from 0 to 0.8"),
        ({"kind": "rnn", "cell": "elman"}, "'cell'", "lstm, gru"),
        ({"kind": "gpt", "heads": 3, "width": 64}, "width 64", "63 or 66"),
    ],
)
def test_every_mistake_is_named(table, what, advice):
    with pytest.raises(JobFileError, match=what) as refused:
        model_of(table)
    assert advice in refused.value.advice


def test_sliders_hold_their_defaults():
    for ready in KINDS:
        for slider in ready.sliders:
            assert slider.check(slider.default) == slider.default
            assert slider.help
        assert model_of({"kind": ready.kind}).table()["kind"] == find(ready.kind).kind


def test_listing_them_loads_no_torch():
    code = (
        "import sys, crowdgrad.capture.ready, crowdgrad.host.knowing;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
