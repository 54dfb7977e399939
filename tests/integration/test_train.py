"""`cg.train`: the ten lines, in a script and where an event loop already runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import crowdgrad as cg
from crowdgrad.data.dataset import from_arrays, standardised
from crowdgrad.host.earlier import read_run
from crowdgrad.host.prediction import Model
from crowdgrad.host.train import Result


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDGRAD_HOME", str(tmp_path / "home"))


def spirals(tmp_path: Path, epochs: int = 30) -> tuple[cg.Task, Result, dict[str, np.ndarray]]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    task = cg.Task(
        model,
        nn.functional.cross_entropy,
        inputs=(torch.tensor(x[:8]),),
        targets=(torch.tensor(y[:8]),),
    )
    splits = {"train": (x[:500], y[:500]), "test": (x[500:], y[500:])}
    result = cg.train(
        task,
        splits,
        recipe=cg.AsyncSGD(lr=0.3, batch_size=20),
        epochs=epochs,
        volunteers=1,
        runs=tmp_path / "runs",
    )
    return task, result, {"x": x[500:], "y": y[500:]}


def test_ten_lines_train_a_model(tmp_path: Path) -> None:
    task, result, test = spirals(tmp_path)
    assert result.status.state == "finished"
    assert result.status.test is not None
    with torch.no_grad():
        outputs = result.model(torch.tensor(test["x"]))
    accuracy = (outputs.argmax(1).numpy() == test["y"]).mean()
    assert accuracy > 0.85
    assert accuracy == pytest.approx(result.status.test.metrics["accuracy"], abs=1e-6)
    assert result.model is not task.model
    assert result.history[-1].metrics["accuracy"] > 0.7
    assert result.report().exists()
    # What is on disk is what we were given.
    saved = load_file(result.folder / "model.safetensors")
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(saved[name], tensor)
    session = onnxruntime.InferenceSession(result.folder / "model.onnx")
    (given,) = session.get_inputs()
    (found,) = session.run(None, {given.name: test["x"]})
    np.testing.assert_allclose(found, outputs.numpy(), rtol=1e-4, atol=1e-5)


def test_columns_of_very_different_scale_train_and_are_asked_as_they_are_stored(
    tmp_path: Path,
) -> None:
    """The small columns say it all: with one mean for the whole table they would be nothing."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(1200, 4))
    x = (plain * [1e-4, 1e6, 1e-3, 10] + [5, 1e7, 0, -100]).astype(np.float32)
    y = (plain[:, 0] * plain[:, 2] > 0).astype(np.uint8)
    data = standardised(
        from_arrays({"train": (x[:1000], y[:1000]), "test": (x[1000:], y[1000:])}), "x", each=True
    )
    task = cg.Task(
        nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)),
        nn.functional.cross_entropy,
        inputs=(torch.zeros(4, 4),),
        targets=(torch.tensor([0, 1, 0, 1]),),
    )
    recipe = cg.AsyncSGD(lr=0.3, batch_size=20)
    result = cg.train(task, data, recipe=recipe, epochs=30, runs=tmp_path / "runs")
    assert result.status.test is not None
    assert result.status.test.metrics["accuracy"] > 0.85
    answers = Model(read_run(result.folder)).answer([x[1000:]])
    assert answers.classes is not None
    assert (answers.classes == y[1000:]).mean() == pytest.approx(
        result.status.test.metrics["accuracy"], abs=1e-6
    )


def test_it_works_where_a_loop_already_runs(tmp_path: Path) -> None:
    async def notebook() -> Result:
        return spirals(tmp_path, epochs=2)[1]

    assert asyncio.run(notebook()).status.state == "finished"


def test_what_makes_no_sense_is_said_before_anything_starts(tmp_path: Path) -> None:
    task = cg.Task(
        nn.Linear(2, 2), nn.functional.mse_loss, (torch.zeros(4, 2),), (torch.zeros(4, 2),)
    )
    with pytest.raises(cg.CrowdgradError, match="0 epochs"):
        cg.train(task, (np.zeros((9, 2)), np.zeros((9, 2))), epochs=0, runs=tmp_path)
    with pytest.raises(cg.CrowdgradError, match="learning rate"):
        cg.AsyncSGD(lr=float("nan"))
    with pytest.raises(cg.CrowdgradError):
        cg.train(task, (np.zeros((9, 3), np.float32), np.zeros((9, 2), np.float32)), runs=tmp_path)
    assert list(tmp_path.glob("2*")) == []


@pytest.mark.parametrize("recipe", ["magic", cg.Downpour, 3])
def test_what_is_no_recipe_is_answered_with_what_is(recipe: object, tmp_path: Path) -> None:
    task = cg.Task(
        nn.Linear(2, 1),
        nn.functional.mse_loss,
        inputs=(torch.zeros(4, 2),),
        targets=(torch.zeros(4, 1),),
    )
    data = (np.zeros((20, 2), np.float32), np.zeros((20, 1), np.float32))
    with pytest.raises(cg.CrowdgradError, match="recipe"):
        cg.train(task, data, recipe=recipe, runs=tmp_path)  # type: ignore[arg-type]
