"""`crowdgrad host`: which job it reads, and what it says before it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from crowdgrad.cli import host
from crowdgrad.cli.main import parser
from crowdgrad.errors import DataMissing
from crowdgrad.host.earlier import read_run
from tests.host.telling.test_report import prepared
from tests.host.test_earlier import a_run

JOB = """
task = "crowdgrad.capture.models:digits_mlp"
data = "mine.npz"
weights = "trained.safetensors"
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.zeros(20, np.int64))
    (tmp_path / "job.toml").write_text(JOB)
    return str(tmp_path / "job.toml")


def test_weights_lie_beside_the_job_file(job: str, tmp_path: Path) -> None:
    plan = host.read_plan(job, tmp_path)
    assert plan.weights == tmp_path / "trained.safetensors"
    assert plan.continue_from is None


def test_a_run_to_continue_takes_the_place_of_the_weights(job: str, tmp_path: Path) -> None:
    folder = a_run(tmp_path / "runs" / "digits-1")
    asked = ["host", job, "--runs", str(tmp_path / "runs"), "--continue"]
    plan = host._plan(parser().parse_args([*asked, "digits-1"]), tmp_path)
    assert (plan.continue_from, plan.weights) == (folder, None)
    with pytest.raises(DataMissing, match="no run digits-2"):
        host._plan(parser().parse_args([*asked, "digits-2"]), tmp_path)


def test_what_should_be_known_is_said_first(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path / "digits-1"))
    console = Console(width=100)
    with console.capture() as shown:
        notes = ("5 of 9 test records are left out.", "[/b] is no markup.")
        host._introduce(console, replace(prepared("Digits"), notes=notes, earlier=run))
    text = shown.get()
    for said in (
        "Data: small (a note)",
        "Starts from the result of digits-1",
        f"Note: {notes[0]}",
        "[/b]",
    ):
        assert said in text
