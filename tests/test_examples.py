"""The examples run as they stand: their job files are sound and their models learn."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdgrad.capture.capture import capture
from crowdgrad.capture.task import resolve_metrics
from crowdgrad.data import catalogue
from crowdgrad.errors import DataError
from crowdgrad.host import jobfile
from crowdgrad.recipes import RECIPES
from crowdgrad.settings import load

EXAMPLES = Path(__file__).parents[1] / "examples"
JOB_FILES = sorted(EXAMPLES.glob("*/job.toml"))


@pytest.fixture
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every example calls its module `model`: none may be left for the next."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("model", None)
    yield
    sys.modules.pop("model", None)


def run(*command: str, cwd: Path, timeout_s: float = 100.0) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "CROWDGRAD_HOME": str(cwd / "home")},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_examples():
    assert {file.parent.name for file in JOB_FILES} >= {"mnist_mlp", "digits_dropout"}


@pytest.mark.parametrize("file", JOB_FILES, ids=lambda file: file.parent.name)
def test_the_job_file_reads_and_its_task_works(file, tmp_path, monkeypatch, fresh_modules):
    # Which records does not matter here, and MNIST may not be on this machine.
    digits = catalogue.load("digits", cache=tmp_path)
    monkeypatch.setattr(jobfile, "load_data", lambda *_args, **_kwargs: digits)
    plan = jobfile.read(file, cache=tmp_path)
    assert plan.title != file.stem
    assert plan.recipe.name == tomllib.loads(file.read_text())["recipe"]["name"]
    assert 0 < plan.maximum < 1000
    task = plan.task
    output = task.model(*task.inputs)
    assert task.loss(output, *task.targets).isfinite()
    assert next(iter(resolve_metrics(task, output))) == "accuracy"


def test_dropout_travels_as_noise(tmp_path, fresh_modules):
    plan = jobfile.read(EXAMPLES / "digits_dropout/job.toml", cache=tmp_path)
    captured = capture(plan.task, plan.data.fields)
    assert [noise.kind for noise in captured.program.spec.noise] == ["uniform"]
    assert "Tanh" in captured.operators


def test_digits_with_dropout_learns(tmp_path):
    job = str(EXAMPLES / "digits_dropout/job.toml")
    run("-m", "crowdgrad", "host", job, "--plain", "--json", "result.json", cwd=tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["state"] == "finished"
    assert result["test"]["metrics"]["accuracy"] > 0.93
    assert result["test"]["metrics"]["top3"] >= result["test"]["metrics"]["accuracy"]
    assert (tmp_path / result["run"] / "model.safetensors").is_file()


def test_ten_lines_reach_nine_in_ten(tmp_path):
    said = run(str(EXAMPLES / "ten_lines.py"), cwd=tmp_path)
    found = re.fullmatch(r"test accuracy (\d\.\d+), see (.*)\n", said)
    assert found, said
    assert float(found[1]) > 0.9
    assert (tmp_path / found[2]).is_file()


@pytest.mark.slow
def test_mnist_learns(tmp_path):
    try:
        catalogue.fetch("mnist", cache=load().home / "data")
    except DataError as error:
        pytest.skip(f"MNIST cannot be had here: {error}")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/data").symlink_to(load().home / "data")
    job = str(EXAMPLES / "mnist_mlp/job.toml")
    run("-m", "crowdgrad", "host", job, "--plain", "--json", "result.json", cwd=tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["test"]["metrics"]["accuracy"] > 0.96


@pytest.mark.slow
def test_recipes_are_compared(tmp_path):
    said = run(str(EXAMPLES / "compare_recipes.py"), cwd=tmp_path)
    lines = [line.split() for line in said.splitlines()[1:]]
    assert [line[0] for line in lines] == list(RECIPES)
    assert all(float(line[1]) > 85 for line in lines), said
