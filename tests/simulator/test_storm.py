"""Hundreds of lives of a job, each with other misfortunes; and that a seed says everything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crowdgrad.cli.main import main
from crowdgrad.simulator import story
from crowdgrad.simulator.storm import NAMES, Told, storm

SEEDS = range(30)
"""Of each of the eleven recipes: 330 lives in all."""
MORE = range(30, 390)
FINGERPRINTS = """
from crowdgrad.simulator.storm import NAMES, storm
print(*(storm(name, 3).fingerprint for name in NAMES))
"""


def lives(name: str, seeds: range) -> None:
    for seed in seeds:
        told = storm(name, seed)
        if told.violation is not None:
            pytest.fail("\n".join([*told.lines, str(told.violation), told.replay]))


@pytest.mark.parametrize("name", NAMES)
def test_whatever_happens_nothing_is_lost_and_nothing_counts_twice(name: str) -> None:
    lives(name, SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_hundreds_of_times_more(name: str) -> None:
    lives(name, MORE)


def test_a_seed_says_everything_in_another_process_too() -> None:
    """Also where sets of strings have another order."""
    here = [storm(name, 3).fingerprint for name in NAMES]
    assert [storm(name, 3).fingerprint for name in NAMES] == here
    assert len(set(here)) == len(here)
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    there = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == here


def test_the_storms_are_storms() -> None:
    """What is simulated does happen: otherwise it would prove nothing."""
    seen = storm("plain", 0).counts
    for seed in range(1, 60):
        seen.update(storm("plain", seed).counts)
    for kind in (
        "applied", "bits_flipped", "checkpoints", "crashes", "dies_while_writing", "disk_fails",
        "disk_is_full", "diverges", "half_open", "host_freezes", "host_moves", "images",
        "matchmaker_dies", "matchmaker_is_cut_off", "partitions", "person_dies",
        "person_freezes", "power_fails", "restarts", "roll_calls", "torn_writes", "worker_dies",
    ):  # fmt: skip
        assert seen[kind] > 0, kind


def test_a_life_can_be_replayed_with_the_printed_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = storm("chains", 5).replay.split()
    assert command[0] == "crowdgrad"
    assert main(command[1:]) == 0
    told = capsys.readouterr().out
    assert "chains 5: all is well" in told
    assert "incarnation 1 is claimed" in told.splitlines()[0]

    def wrong(recipe: str, seed: int, **more: object) -> Told:
        told = storm(recipe, seed)
        object.__setattr__(told, "violation", story.Violation("twice", "unit 7"))
        return told

    monkeypatch.setattr("crowdgrad.simulator.storm.storm", wrong)
    assert main(["simulate", "storm", "--recipe", "chains", "--seed", "5"]) == 1
    told = capsys.readouterr().out
    assert "VIOLATION twice: unit 7" in told
    assert "crowdgrad simulate storm --recipe chains --seed 5 --trace" in told


def test_a_recipe_nobody_simulates_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "storm", "--recipe", "none"]) == 1
    assert "delay-compensation" in capsys.readouterr().err
