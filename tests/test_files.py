"""Files that are whole or not there at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from crowdgrad.errors import CannotWrite, DiskFull, MachineError
from crowdgrad.files import disk_errors, write_whole


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


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, CannotWrite)],
)
def test_what_the_disk_says_becomes_advice(number: int, expected: type[MachineError]) -> None:
    with pytest.raises(expected) as caught, disk_errors(Path("place")):
        raise OSError(number, os.strerror(number))
    assert "place" in caught.value.message
    assert caught.value.advice
