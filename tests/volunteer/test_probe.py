"""What a machine says of itself: its hours in UTC, its GPU as the driver says, its limits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.domain.matching import Hours, Machine
from crowdgrad.net.rooms import MachineBody
from crowdgrad.settings import Settings
from crowdgrad.volunteer import probe, speed


@pytest.mark.parametrize(
    ("text", "offset_h", "hours"),
    [
        ("", 2.0, None),
        ("22:00-07:00", 0.0, Hours(start=1320, end=420)),
        ("22:00-07:00", 2.0, Hours(start=1200, end=300)),
        ("22:00-07:00", -5.0, Hours(start=180, end=720)),
        ("00:30-01:30", 5.75, Hours(start=1125, end=1185)),
        ("20:00-24:00", 1.0, Hours(start=1140, end=1380)),
    ],
)
def test_hours_are_told_in_utc(text: str, offset_h: float, hours: Hours | None) -> None:
    assert probe.hours(text, 3600 * offset_h) == hours


@pytest.fixture
def in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "NPT-5:45")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be set here")
def test_this_machines_own_time(in_kathmandu: None) -> None:
    assert os.environ["TZ"]
    assert probe.utc_offset_s(1e9) == 5.75 * 3600


def test_what_a_matchmaker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "gflops", lambda: 12.5)
    monkeypatch.setattr(probe, "utc_offset_s", lambda now: 0.0)
    monkeypatch.setattr(probe, "find_gpu", lambda: ("NVIDIA H200", 143_771))
    settings = Settings(home=tmp_path, hours="22:00-07:00", most_download_mb=100, upload_mbps=3)
    told = probe.machine(settings, wall=lambda: 1e9)
    assert told == Machine(
        gflops=12.5, upload_mbps=3.0, most_download_mb=100, hours=Hours(start=1320, end=420)
    )
    speed.note_download(tmp_path, 1e9, 10_000_000, 4.0)
    told = probe.machine(Settings(home=tmp_path), with_gpu=True, wall=lambda: 1e9)
    assert (told.download_mbps, told.gpu, told.gpu_memory_mb) == (20.0, "NVIDIA H200", 143_771)
    set_by_hand = Settings(home=tmp_path, download_mbps=7.5)
    told = probe.machine(set_by_hand, wall=lambda: 1e9)
    assert told.download_mbps == 7.5
    assert MachineBody.of(told).machine() == told


@pytest.mark.parametrize(
    ("answer", "gpu"),
    [
        ("", ("", 0)),
        ("NVIDIA H200, 143771\n", ("NVIDIA H200", 143_771)),
        ("Small, 8000\nLarge, 24000\nMiddle, 16000\n", ("Large", 24_000)),
        ("No devices were found\n", ("", 0)),
        ("Strange\x1b[2J, one, 5\n, 6\nx, ٣\n", ("Strange [2J, one", 5)),
        (f"{'n' * 100}, 1", ("n" * 64, 1)),
    ],
)
def test_the_largest_gpu_counts(answer: str, gpu: tuple[str, int]) -> None:
    assert probe.largest(answer) == gpu
    assert Machine(gpu=gpu[0], gpu_memory_mb=gpu[1])


def _raise(error: Exception) -> Callable[..., Any]:
    def run(*what: object, **how: object) -> Any:
        raise error

    return run


@pytest.mark.parametrize(
    "trouble",
    [
        subprocess.TimeoutExpired("nvidia-smi", 2.0),
        subprocess.CalledProcessError(9, "nvidia-smi"),
        PermissionError("no"),
    ],
)
def test_a_driver_that_does_not_answer_leaves_the_kernels_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(probe.subprocess, "run", _raise(trouble))
    monkeypatch.setattr(probe, "NVIDIA", tmp_path / "gpus")
    assert probe.find_gpu() == ("", 0)
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    text = "Model: \t\t NVIDIA GeForce\nIRQ:   \t\t 42\n"
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text(text)
    assert probe.find_gpu() == ("NVIDIA GeForce", 0)


def test_a_machine_without_one_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda name: None)
    monkeypatch.setattr(probe, "NVIDIA", tmp_path)
    assert probe.find_gpu() == ("", 0)
