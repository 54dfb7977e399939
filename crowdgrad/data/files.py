"""Files that are pinned by their hash: reading them verified, writing them whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crowdgrad.domain.data import check_hash
from crowdgrad.errors import DataAltered, DataMissing, DiskFull, MachineError

PART = ".part"
LEFTOVER_S = 3600.0
"""An unfinished file this old belongs to a process that died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """One file of a data set, as it must be."""

    name: str
    sha256: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_hash(self.sha256)

    def check(self, data: bytes, where: str) -> None:
        """Raises DataAltered unless `data` is this file."""
        if len(data) != self.size_bytes:
            raise DataAltered(
                f"{self.name} from {where} has {len(data):,} bytes, not {self.size_bytes:,}.",
                advice="Delete it and fetch it again.",
            )
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise DataAltered(
                f"{self.name} from {where} has the sha256 {found[:12]}…, not {self.sha256[:12]}….",
                advice="Delete it and fetch it again.",
            )

    def read(self, path: Path, where: str) -> bytes:
        """The verified content. Raises DataMissing, DataAltered."""
        try:
            with path.open("rb") as file:
                data = file.read(self.size_bytes + 1)  # one more shows that it is too long
        except OSError as error:
            raise DataMissing(
                f"{self.name} cannot be read from {where}: {error.strerror}.",
                advice="Fetch it again.",
            ) from error
        self.check(data, where)
        return data


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns a refusal of the disk into what a person can do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no room left on the disk of {folder}.",
                advice="Free some space, or choose another folder with --data-dir.",
            ) from error
        raise MachineError(
            f"cannot write to {folder}: {error.strerror or error}.",
            advice="Choose a folder you may write to.",
        ) from error


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def write_whole(
    path: Path, data: bytes, *, write: Callable[[BinaryIO, bytes], None] = _write
) -> None:
    """All of `data` at `path`, or nothing new at all. Raises DiskFull, MachineError."""
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
        try:
            with open(handle, "wb") as file:
                write(file, data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise


def sweep(folder: Path) -> None:
    """Deletes unfinished files that a process which died left behind."""
    for part in folder.glob(f".*{PART}"):
        with contextlib.suppress(OSError):
            if part.stat().st_mtime < time.time() - LEFTOVER_S:
                part.unlink()
