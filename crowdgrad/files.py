"""Files that are whole or not there at all, and what a disk's refusal means for a person."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from crowdgrad.errors import CannotWrite, DiskFull

PART = ".part"
"""How the name of an unfinished file ends."""


@contextlib.contextmanager
def disk_errors(where: Path, advice: str = "Choose a place you may write to.") -> Iterator[None]:
    """Raises DiskFull or CannotWrite for what the operating system calls an OSError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"There is no room left on the disk for {where}.", advice="Free some space."
            ) from error
        raise CannotWrite(
            f"Cannot write {where}: {error.strerror or error}.", advice=advice
        ) from error


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def write_whole(
    path: Path,
    data: bytes,
    *,
    drafts: Path | None = None,
    sync: bool = True,
    write: Callable[[BinaryIO, bytes], None] = _write,
) -> None:
    """All of `data` at `path`, or nothing new at all. Raises OSError: see `disk_errors`.

    The draft lies in `drafts` (by default beside the file, and on the same disk in any case) until
    it is complete. Without `sync` a power cut may tear the file: for what is verified when read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(
        prefix=f".{path.name[:32]}.", suffix=PART, dir=drafts or path.parent
    )
    try:
        with open(handle, "wb") as file:
            write(file, data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.chmod(part, 0o644)  # a draft is private, what it becomes is not
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
