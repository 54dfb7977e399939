"""The examples run as they stand: their job files are sound and their models learn.

`STATED` is what their comments promise, reached with the host's own worker and two volunteers, each
a process. All of it is checked by `./scripts/test --all`; an ordinary run trains the quickest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from crowdgrad.capture.capture import capture
from crowdgrad.capture.fields import readers
from crowdgrad.capture.task import resolve_metrics
from crowdgrad.data import catalogue
from crowdgrad.errors import DataError
from crowdgrad.host import jobfile
from crowdgrad.recipes import RECIPES
from crowdgrad.settings import load
from tests.data.stand_ins import stand_in

EXAMPLES = Path(__file__).parents[1] / "examples"
JOB_FILES = sorted(EXAMPLES.glob("*/*.toml"))
STATED = {
    "diabetes_regression": ("mean_absolute_error", "<", 48),
    "diamonds_regression": ("log_error", "<", 0.1),
    "digits_dropout": ("accuracy", ">", 0.93),
    "digits_gan": ("distance", "<", 0.55),
    "digits_losses/focal": ("accuracy", ">", 0.94),
    "digits_losses/hinge": ("accuracy", ">", 0.94),
    "digits_losses/segments": ("all_right", ">", 0.9),
    "digits_losses/smoothed": ("accuracy", ">", 0.94),
    "digits_transformer": ("accuracy", ">", 0.93),
    "mnist_augmented": ("accuracy", ">", 0.96),
    "mnist_autoencoder": ("squared_error", "<", 0.27),
    "mnist_lenet": ("accuracy", ">", 0.97),
    "mnist_mlp": ("accuracy", ">", 0.96),
    "mnist_resnet": ("accuracy", ">", 0.975),
    "mnist_vae": ("reconstruction", "<", 115),
    "ready_mlp": ("accuracy", ">", 0.93),
    "shakespeare_gpt": ("perplexity", "<", 8),
    "vowels_gru": ("accuracy", ">", 0.92),
    "vowels_lstm": ("accuracy", ">", 0.92),
}
"""Job → what its comment says of the test split: the metric, whether more is better, the figure."""
SHARES = ("accuracy", "all_right")
"""Metrics that comments give in percent."""


VOLUNTEERS = '[volunteers]\nstart = "all"\nminimum = 2'


@pytest.fixture
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every example calls its module `model`: none may be left for the next."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("model", None)
    yield
    sys.modules.pop("model", None)


def run(*command: str, cwd: Path, beside: Path | None = None, timeout_s: float = 100.0) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=beside or cwd,
        env={**os.environ, "CROWDGRAD_HOME": str(cwd / "home")},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fetch(name: str, folder: Path) -> None:
    """The data set in a home below `folder`, from this machine's own; skips where there is none."""
    try:
        catalogue.fetch(name, cache=load().home / "data")
    except DataError as error:
        pytest.skip(f"{name} cannot be had here: {error}")
    (folder / "home").mkdir()
    (folder / "home/data").symlink_to(load().home / "data")


def trained(job: str, *, cwd: Path, beside: Path | None = None) -> dict[str, Any]:
    """The result of a job, trained by the host's own worker and two volunteers."""
    said = run(
        "-m", "crowdgrad", "host", job, "--helpers", "2", "--plain",
        "--runs", str(cwd / "runs"), "--json", str(cwd / "result.json"),
        cwd=cwd, beside=beside, timeout_s=500,
    )  # fmt: skip
    result: dict[str, Any] = json.loads((cwd / "result.json").read_text())
    assert result["state"] == "finished", said
    assert len(result["members"]) == 3
    assert sum(member["samples"] > 0 for member in result["members"]) >= 2, result["members"]
    return result


def waiting_for_all(file: Path, folder: Path) -> str:
    """A copy of the job that waits for its volunteers: it may be over before they have come."""
    copy = shutil.copytree(file.parent, folder / "example") / file.name
    text = file.read_text().replace("[volunteers]", VOLUNTEERS)
    assert VOLUNTEERS in text
    copy.write_text(text)
    return str(copy)


def name_of(file: Path) -> str:
    """`mnist_mlp`, or `digits_losses/hinge` where a folder has several jobs."""
    return file.parent.name if file.stem == "job" else f"{file.parent.name}/{file.stem}"


def test_every_example_states_a_figure_that_is_checked():
    assert {name_of(file) for file in JOB_FILES} == set(STATED)
    for file in JOB_FILES:
        metric, sign, figure = STATED[name_of(file)]
        comment = "".join(line for line in file.read_text().splitlines(True) if line[0] == "#")
        shown = f"{100 * figure:g} %" if metric in SHARES else f"{figure:g}"
        assert shown in comment, f"{file} should say {metric} {sign} {shown}"
        assert f"crowdgrad host examples/{file.parent.name}/{file.name}" in comment


def test_the_table_of_examples_has_them_all():
    table = (EXAMPLES / "README.md").read_text()
    for file in JOB_FILES:
        assert f"({file.parent.name}/" in table, file
    for script in EXAMPLES.glob("*.py"):
        assert f"({script.name})" in table, script


@pytest.mark.parametrize("file", JOB_FILES, ids=name_of)
def test_the_job_file_reads_and_its_task_works(file, tmp_path, monkeypatch, fresh_modules):
    # Which records does not matter here, and the real ones may not be on this machine.
    monkeypatch.setattr(jobfile, "load_data", lambda name, *_args, **_kwargs: stand_in(name))
    plan = jobfile.read(file, cache=tmp_path)
    assert plan.title != file.stem
    assert plan.recipe.name == tomllib.loads(file.read_text())["recipe"]["name"]
    assert 0 < plan.maximum < 1000
    task = plan.task
    records = [column[:4] for column in plan.data.splits["train"]]
    batch = [
        reader.read(torch.tensor(column))
        for reader, column in zip(readers(task, plan.data.fields), records, strict=True)
    ]
    inputs, targets = batch[: len(task.inputs)], batch[len(task.inputs) :]
    output = task.model(*inputs)
    loss = task.loss(output, *targets)
    for value in loss.values() if isinstance(loss, dict) else (loss,):
        assert value.isfinite()
    metric, sign, _ = STATED[name_of(file)]
    first, steering = next(iter(resolve_metrics(task, task.model(*task.inputs)).items()))
    assert (first, steering.better) == (metric, {">": "higher", "<": "lower"}[sign])
    assert steering(output, *targets).isfinite().all()


def test_dropout_travels_as_noise(tmp_path, fresh_modules):
    plan = jobfile.read(EXAMPLES / "digits_dropout/job.toml", cache=tmp_path)
    captured = capture(plan.task, plan.data.fields)
    assert [noise.kind for noise in captured.program.spec.noise] == ["uniform"]
    assert "Tanh" in captured.operators


@pytest.mark.slow
def test_digits_with_dropout_learns(tmp_path):
    job = str(EXAMPLES / "digits_dropout/job.toml")
    run("-m", "crowdgrad", "host", job, "--plain", "--json", "result.json", cwd=tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["state"] == "finished"
    assert result["test"]["metrics"]["accuracy"] > 0.93
    assert result["test"]["metrics"]["top3"] >= result["test"]["metrics"]["accuracy"]
    assert (tmp_path / result["run"] / "model.safetensors").is_file()


@pytest.mark.slow  # tests/integration/test_train.py trains the same
def test_ten_lines_reach_nine_in_ten(tmp_path):
    said = run(str(EXAMPLES / "ten_lines.py"), cwd=tmp_path)
    found = re.fullmatch(r"test accuracy (\d\.\d+), see (.*)\n", said)
    assert found, said
    assert float(found[1]) > 0.9
    assert (tmp_path / found[2]).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STATED if name != "digits_dropout"])
@pytest.mark.timeout(600)
def test_it_reaches_its_figure_with_volunteers(name, tmp_path):
    folder, _, job = name.partition("/")
    file = EXAMPLES / folder / f"{job or 'job'}.toml"
    fetch(tomllib.loads(file.read_text())["data"], tmp_path)
    result = trained(waiting_for_all(file, tmp_path), cwd=tmp_path)
    metric, sign, figure = STATED[name]
    reached = result["test"]["metrics"][metric]
    assert reached > figure if sign == ">" else reached < figure, reached


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_doubtful_labels_are_learnt_with_weights(tmp_path):
    result = trained("model:job", cwd=tmp_path, beside=EXAMPLES / "digits_weighted")
    assert result["test"]["metrics"]["accuracy"] > 0.92


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_build_on_each_other(tmp_path):
    said = run(str(EXAMPLES / "pretrained.py"), cwd=tmp_path, timeout_s=500)
    found = [float(line.split()[-1]) for line in said.splitlines()]
    assert len(found) == 3
    assert min(found) > 0.85
    assert found[2] > 0.93


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_table_of_ones_own_and_what_comes_later(tmp_path):
    said = run(str(EXAMPLES / "own_table.py"), str(tmp_path / "own"), cwd=tmp_path)
    cells, readings = said.splitlines()
    assert float(cells.split()[-1]) > 0.9
    grown = re.search(r"([\d,]+) records at first, ([\d,]+) in the end", readings)
    assert grown
    assert int(grown[2].replace(",", "")) > int(grown[1].replace(",", ""))
    assert float(readings.split()[-1]) > 0.95


@pytest.mark.slow
def test_recipes_are_compared(tmp_path):
    said = run(str(EXAMPLES / "compare_recipes.py"), cwd=tmp_path)
    lines = [line.split() for line in said.splitlines()[1:]]
    assert [line[0] for line in lines] == list(RECIPES)
    assert all(float(line[1]) > 85 for line in lines), said
