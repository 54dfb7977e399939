"""Files that are whole or not there at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from crowdgrad.errors import CannotWrite, DiskFull, MachineError
from crowdgrad.files import (
    PART,
    REAL,
    Disk,
    disk_errors,
    remove_drafts,
    write_parts,
    write_whole,
)
from tests.disks import WatchedDisk


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"before")

    def full(file: BinaryIO, data: bytes) -> None:
        file.write(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"after", write=full)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_the_draft_is_private_and_the_file_is_not(tmp_path: Path) -> None:
    seen = []

    def look(file: BinaryIO, data: bytes) -> None:
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))

    write_whole(tmp_path / "file", b"", write=look)
    assert seen == [0o600]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_what_is_private_stays_so(tmp_path: Path) -> None:
    write_whole(tmp_path / "secret", b"s", private=True)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_drafts_of_the_dead_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a.1-0.part", ".b.1-0.part", "c.part", ".part.of.it", "a"):
        (tmp_path / name).touch()
    remove_drafts(REAL, tmp_path, "a")
    assert sorted(os.listdir(tmp_path)) == [".b.1-0.part", ".part.of.it", "a", "c.part"]
    remove_drafts(REAL, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".part.of.it", "a", "c.part"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, CannotWrite)],
)
def test_what_the_disk_says_becomes_advice(number: int, expected: type[MachineError]) -> None:
    with pytest.raises(expected) as caught, disk_errors(Path("place")):
        raise OSError(number, os.strerror(number))
    assert "place" in caught.value.message
    assert caught.value.advice


def test_parts_become_one_file_that_lasts(tmp_path: Path) -> None:
    disk = WatchedDisk()
    path = tmp_path / "file"
    path.write_bytes(b"before")
    assert write_parts(disk, path, iter([b"one", bytearray(b" two"), memoryview(b"")])) == 7
    assert path.read_bytes() == b"one two"
    assert os.listdir(tmp_path) == ["file"]
    steps = [step for step in disk.steps if step != "write"]
    assert steps == ["create", "sync", "close", "rename", "sync_folder"], (
        "the bytes last before the name is theirs, and the name before anybody relies on it"
    )


@pytest.mark.parametrize("step", ["create", "write", "sync", "rename"])
def test_what_fails_leaves_the_old_file_and_no_draft(tmp_path: Path, step: str) -> None:
    disk = WatchedDisk()
    path = tmp_path / "file"
    path.write_bytes(b"before")
    disk.refuse[step] = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        write_parts(disk, path, [b"after"])
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_draft_that_somebody_left_is_not_in_the_way(tmp_path: Path) -> None:
    taken = tmp_path / f".file.{os.getpid()}-0{PART}"
    taken.write_bytes(b"of a process with our number")
    write_whole(tmp_path / "file", b"ours")
    assert (tmp_path / "file").read_bytes() == b"ours"
    assert taken.read_bytes() == b"of a process with our number"


def test_a_new_folder_lasts_with_all_above_it(tmp_path: Path, monkeypatch: Any) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(type(REAL), "sync_folder", lambda self, folder: synced.append(folder))
    disk: Disk = REAL
    disk.make_folder(tmp_path / "a" / "b")
    disk.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]


def test_the_real_disk_creates_nothing_twice(tmp_path: Path) -> None:
    file = REAL.create(tmp_path / "file")
    file.write(b"12345")
    file.sync()
    file.close()
    file.close()
    with pytest.raises(FileExistsError):
        REAL.create(tmp_path / "file")
    assert REAL.size(tmp_path / "file") == 5
    assert REAL.read(tmp_path / "file") == b"12345"
    REAL.sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        REAL.sync_folder(tmp_path / "nowhere")


def test_only_ordinary_files_have_a_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="ordinary"):
            REAL.size(path)
