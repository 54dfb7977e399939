"""Files that are whole or not there at all, and what a disk's refusal means for a person.

A file is written as a draft, synced, renamed into its place, and its folder synced: whenever the
power fails, there is the old file or the new one. The steps are a `Disk`'s, so that a simulated one
can fail at each of them; `REAL` is the operating system's.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from crowdgrad.errors import CannotWrite, DiskFull

logger = logging.getLogger(__name__)
Bytes = bytes | bytearray | memoryview

PART = ".part"
"""How the name of an unfinished file ends."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the operating system says when there is no room."""
STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")
"""Where /dev/stdout and its like are links."""
CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
"""What file systems say that sync no folders, and folders one may write into but not read."""


class Writing(Protocol):
    """A file that is being written."""

    def write(self, data: Bytes, /) -> object:
        """All of it, at the end of what was written."""

    def sync(self) -> None:
        """When it returns, what was written survives a power cut."""

    def close(self) -> None:
        """Twice is no harm."""


class Disk(Protocol):
    """The steps by which files come to be. All raise OSError."""

    def names(self, folder: Path) -> list[str]:
        """What lies in a folder, in any order."""

    def size(self, path: Path) -> int:
        """How many bytes a file has: asked before reading what may be a stranger's."""

    def read(self, path: Path) -> bytes: ...

    def create(self, path: Path) -> Writing:
        """A new file. Raises FileExistsError where there is one already."""

    def rename(self, old: Path, new: Path) -> None:
        """In one step, replacing what was there. Needs no room; lasts after `sync_folder`."""

    def sync_folder(self, folder: Path) -> None:
        """When it returns, the names in it survive a power cut."""

    def remove(self, path: Path) -> None: ...

    def make_folder(self, path: Path) -> None:
        """With all above it, where they are not there yet; lasts when it returns."""


class _RealWriting(io.FileIO):
    """Private while it is written; everybody may read what is complete, unless it stays private."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
        self.private = False

    def write(self, data: Bytes) -> int:  # type: ignore[override]
        left = memoryview(data).cast("B")
        while left:
            left = left[super().write(left) or 0 :]
        return len(data)

    def sync(self) -> None:
        os.fsync(self.fileno())

    def close(self) -> None:
        if not self.closed and not self.private and hasattr(os, "fchmod"):
            with contextlib.suppress(OSError):
                os.fchmod(self.fileno(), 0o644)
        super().close()


class _RealDisk:
    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def size(self, path: Path) -> int:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe never ends, nor do some devices
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        return found.st_size

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def create(self, path: Path) -> _RealWriting:
        return _RealWriting(path)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def sync_folder(self, folder: Path) -> None:
        if sys.platform == "win32":
            return  # folders cannot be opened there
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno not in CANNOT_SYNC:
                raise

    def remove(self, path: Path) -> None:
        path.unlink()

    def make_folder(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(missing):
            self.sync_folder(folder.parent)


REAL = _RealDisk()
W = TypeVar("W", bound=Writing)


@contextlib.contextmanager
def disk_errors(where: Path, advice: str = "Choose a place you may write to.") -> Iterator[None]:
    """Raises DiskFull or CannotWrite for what the operating system calls an OSError."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(
                f"There is no room left on the disk for {where}.", advice="Free some space."
            ) from error
        if error.errno == errno.ENXIO:
            raise CannotWrite(
                f"Cannot write {where}: nobody reads what is written there.",
                advice="Start what reads it first.",
            ) from error
        raise CannotWrite(
            f"Cannot write {where}: {error.strerror or error}.", advice=advice
        ) from error


def private_folder(path: Path) -> None:
    """Made where it is missing, and its owner's alone. Raises OSError where it cannot be made.

    On a disk that knows no modes, or in a folder of somebody else's, a warning has to do.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        path.chmod(0o700)
    except OSError as error:
        logger.warning("others may be able to read %s: %s", path, error.strerror)


def write_parts(disk: Disk, path: Path, parts: Iterable[Bytes]) -> int:
    """One file of all the parts, or nothing new at all; it lasts when this returns.

    Returns how many bytes. The parts are never joined in memory. Raises OSError: see `disk_errors`.
    """
    written = 0

    def fill(file: Writing) -> None:
        nonlocal written
        for part in parts:
            file.write(part)
            written += memoryview(part).nbytes
        file.sync()

    _place(disk, disk.create, path, path.parent, fill)
    disk.sync_folder(path.parent)
    return written


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def is_stream(path: Path) -> bool:
    """Whether something other than a file stands there: a pipe, a device, or one of a process's
    streams by name, whatever that leads to. Root could put a file in its place, or delete it."""
    by_name = path.parent.as_posix() in STREAMS and path.is_symlink()
    return by_name or (path.exists() and not path.is_file())


def _without_waiting(path: str, flags: int) -> int:
    """Opens a stream. OSError where nobody reads a pipe: to wait for somebody, nothing would end
    us but SIGKILL."""
    there = os.open(path, flags & ~os.O_CREAT | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(there, True)
    return there


def write_whole(
    path: Path,
    data: bytes,
    *,
    drafts: Path | None = None,
    sync: bool = True,
    private: bool = False,
    write: Callable[[BinaryIO, bytes], None] = _write,
) -> None:
    """All of `data` at `path`, or nothing new at all. Raises OSError: see `disk_errors`.

    The draft lies in `drafts` (by default beside the file, and on the same disk in any case) until
    it is complete. Without `sync` a power cut may tear the file: for what is verified when read.
    `private`: only its owner may read the file. A pipe or a device is written to as it is, and
    whoever may read it will (`is_stream`).
    """
    if is_stream(path):
        with open(path, "ab", opener=_without_waiting) as there:
            write(there, data)
        return

    def fill(file: _RealWriting) -> None:
        file.private = private
        write(file, data)
        if sync:
            file.sync()

    if sync:
        REAL.make_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    _place(REAL, REAL.create, path, drafts or path.parent, fill)
    if sync:
        REAL.sync_folder(path.parent)


def remove_drafts(disk: Disk, folder: Path, of: str = "") -> None:
    """What the dead left in a folder, of one file or of any that nobody writes now. Raises OSError.

    What cannot be removed now is removed another time.
    """
    for name in disk.names(folder):
        if name.startswith(f".{of}") and name.endswith(PART):
            with contextlib.suppress(OSError):
                disk.remove(folder / name)


def _place(
    disk: Disk,
    create: Callable[[Path], W],
    path: Path,
    drafts: Path,
    fill: Callable[[W], None],
) -> None:
    """A draft in `drafts`, filled, and renamed to `path`; what fails leaves no draft behind."""
    draft, file = _draft(create, drafts, path.name)
    try:
        try:
            fill(file)
        finally:
            file.close()
        disk.rename(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(draft)
        raise


def _draft(create: Callable[[Path], W], folder: Path, name: str) -> tuple[Path, W]:
    """A name nobody uses: others may write the same file, and the dead leave drafts behind."""
    for number in itertools.count():
        draft = folder / f".{name[:32]}.{os.getpid()}-{number}{PART}"
        with contextlib.suppress(FileExistsError):
            return draft, create(draft)
    raise AssertionError("numbers do not end")


def written(path: Path) -> tuple[int, int]:
    """When it was written last, and how large it is: whether to read it again."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
