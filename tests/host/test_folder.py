"""The run folder keeps its promises on a disk that is full."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdgrad.errors import CannotWrite, DiskFull, RunBusy
from crowdgrad.host.folder import RunFolder

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of four mebibytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "everything else").open("wb", 0) as file:
        while file.write(bytes(4096)):
            continue


def test_a_disk_that_fills_up_costs_metrics_never_the_model(small_disk: Path) -> None:
    folder = RunFolder(small_disk / "run", reserve_bytes=2 * MIB)
    folder.add_metrics({"kind": "training"})
    fill(small_disk)
    for number in range(2000):
        folder.add_metrics({"number": number})
    folder.release()
    folder.write("model.safetensors", bytes(MIB))
    assert (folder.path / "model.safetensors").stat().st_size == MIB
    with pytest.raises(DiskFull, match="no room"):
        folder.write("too large", bytes(4 * MIB))
    assert sorted(os.listdir(folder.path)) == ["metrics.jsonl", "model.safetensors", "resume"]
    folder.close()


def test_no_room_is_said_before_training_not_after(small_disk: Path) -> None:
    with pytest.raises(DiskFull):
        RunFolder(small_disk / "run", reserve_bytes=64 * MIB)


def test_the_reserve_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", reserve_bytes=MIB)
    assert os.listdir(folder.path) == ["resume"]
    assert os.listdir(folder.path / "resume") == []
    folder.release()
    folder.write_json("job.json", {"a": 1})
    assert json.loads((folder.path / "job.json").read_text()) == {"a": 1}
    folder.close()


def test_nobody_else_looks_into_what_is_kept_to_go_on(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        folder = RunFolder(tmp_path / "run")
    finally:
        os.umask(before)
    kept = folder.path / "resume"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    folder.close()
    kept.chmod(0o755)
    (kept / "chunk").write_bytes(b"linked")
    (kept / "chunk").chmod(0o644)
    RunFolder(tmp_path / "run", again=True).close()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700, "also of a run that an older host began"
    assert stat.S_IMODE((kept / "chunk").stat().st_mode) == 0o644


def test_a_disk_without_modes_is_no_obstacle(tmp_path, monkeypatch, caplog) -> None:
    def refused(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    RunFolder(tmp_path / "run").close()
    assert "others may be able to read" in caplog.text


def test_two_hosts_never_work_on_one_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(RunBusy, match="Another host"):
        RunFolder(tmp_path / "run", again=True)
    folder.close()
    RunFolder(tmp_path / "run", again=True).close()


def test_what_a_killed_host_was_writing_is_removed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "resume").mkdir(parents=True)
    drafts = [run / ".job.json.8830-0.part", run / "resume" / ".host.json.1-0.part"]
    kept = [run / "job.json", run / "notes.part"]
    for file in (*drafts, *kept):
        file.write_text("{")
    with pytest.raises(CannotWrite):
        RunFolder(run)
    assert all(file.exists() for file in drafts), "a new run takes nothing of another's away"
    RunFolder(run, again=True).close()
    assert not any(file.exists() for file in drafts)
    assert all(file.exists() for file in kept)


def test_metrics_after_a_checkpoint_are_taken_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.metrics_bytes == 0
    folder.add_metrics({"number": 1})
    length = folder.metrics_bytes
    folder.add_metrics({"number": 2})
    folder.close()
    again = RunFolder(tmp_path / "run", again=True)
    again.rewind_metrics(length)
    again.add_metrics({"number": 3})
    again.close()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 3]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="--runs"):
        RunFolder(tmp_path / "file" / "run")
