"""Chunks on disk, named by their hash, and the twin in memory.

On disk a chunk is `ab/abcdef…` (its hash), written beside its place and renamed into it, so that a
reader sees all of it or nothing. Several processes may share a folder: there is no index that could
be wrong, only files. When a chunk was last used is its file's modification time. Nothing is synced
to the platter: what a power cut tears fails its hash on the next read and is fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from crowdgrad.domain.data import ChunkHash, check_hash
from crowdgrad.errors import DataAltered
from crowdgrad.files import PART, disk_errors, write_whole

if sys.platform != "win32":
    import fcntl

MAX_BLOB_BYTES = 64 << 20
"""Chunks are smaller; manifests, kept here too, may have so many."""
RESCAN_SHARE = 16
"""The folder is measured anew after a sixteenth of the quota was written: others write too."""
KEEP_SHARE = 7 / 8
"""Eviction goes down to this share, so that a full folder is not measured at every put."""


def verify(name: ChunkHash, data: bytes) -> None:
    check_hash(name)
    found = hashlib.sha256(data).hexdigest()
    if found != name:
        raise DataAltered(
            f"a chunk of {len(data):,} bytes named {name[:12]}… has the hash {found[:12]}….",
            advice="Fetch it again, from someone else.",
        )


class MemoryChunks:
    """Chunks in memory, without a quota unless told."""

    def __init__(self, quota_bytes: int | None = None) -> None:
        self._quota_bytes = quota_bytes
        self._chunks: OrderedDict[ChunkHash, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: ChunkHash) -> bytes | None:
        check_hash(name)
        with self._lock:
            data = self._chunks.get(name)
            if data is not None:
                self._chunks.move_to_end(name)
            return data

    def put(self, name: ChunkHash, data: bytes) -> None:
        verify(name, data)
        with self._lock:
            self._bytes += len(data) - len(self._chunks.pop(name, b""))
            self._chunks[name] = data
            while self._quota_bytes is not None and self._bytes > self._quota_bytes:
                if len(self._chunks) == 1:
                    break
                self._bytes -= len(self._chunks.popitem(last=False)[1])

    def holds(self, name: ChunkHash) -> bool:
        check_hash(name)
        return name in self._chunks


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


class ChunkStore:
    """Chunks in a folder of about `quota_bytes` at most; the chunk put last always stays."""

    def __init__(
        self,
        folder: Path,
        quota_bytes: int,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        write: Callable[[BinaryIO, bytes], None] = _write,
    ) -> None:
        if quota_bytes <= 0:
            raise ValueError(f"a quota of {quota_bytes} bytes holds nothing")
        self.folder = folder
        self.quota_bytes = quota_bytes
        """May be set at any time, by anybody; what is written from then on keeps to it."""
        self._now_ns = now_ns
        self._write = write
        self._lock = threading.Lock()
        self._written = 0
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _sweep(folder)
        self._bytes = sum(size for _, size, _ in self._files())

    def get(self, name: ChunkHash) -> bytes | None:
        path = self._path(name)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BLOB_BYTES + 1)
            self._touch(path)
        except FileNotFoundError:
            return None
        except OSError:
            data = b""  # a disk that cannot give the bytes back has not kept the chunk
        if hashlib.sha256(data).hexdigest() == name:
            return data
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, name: ChunkHash, data: bytes) -> None:
        verify(name, data)
        path = self._path(name)
        with disk_errors(self.folder):
            new = not path.exists()
            try:
                self._place(path, data)
            except FileNotFoundError:
                # A process that just started took our unfinished file for a leftover.
                self._place(path, data)
        with self._lock:
            self._bytes += len(data) * new
            self._written += len(data)
            stale = self._written > self.quota_bytes // RESCAN_SHARE
            if stale or self._bytes > self.quota_bytes:
                self._evict(keep=path)

    def holds(self, name: ChunkHash) -> bool:
        return self._path(name).is_file()

    def shrink(self) -> None:
        """What is too much for a new `quota_bytes` goes now, the chunks used longest ago first.

        Reads the whole folder. Raises CannotWrite or DiskFull.
        """
        with self._lock, disk_errors(self.folder):
            self._evict()

    def _path(self, name: ChunkHash) -> Path:
        check_hash(name)  # a stranger's name must not become a path outside the folder
        return self.folder / name[:2] / name

    def _touch(self, path: Path) -> None:
        now = self._now_ns()
        with contextlib.suppress(FileNotFoundError):  # evicted by another: we have the bytes
            os.utime(path, ns=(now, now))

    def _place(self, path: Path, data: bytes) -> None:
        write_whole(path, data, drafts=self.folder, sync=False, write=self._write_locked)
        self._touch(path)

    def _write_locked(self, file: BinaryIO, data: bytes) -> None:
        _lock(file)
        self._write(file, data)

    def _files(self) -> list[tuple[int, int, Path]]:
        """(last use, bytes, path) of every chunk."""
        found = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size, path))
        return found

    def _evict(self, keep: Path | None = None) -> None:
        files = sorted(self._files())
        self._bytes = sum(size for _, size, _ in files)
        self._written = 0
        if self._bytes <= self.quota_bytes:
            return
        for _, size, path in files:
            if self._bytes <= self.quota_bytes * KEEP_SHARE:
                break
            if path != keep:
                with contextlib.suppress(OSError):
                    path.unlink()
                    self._bytes -= size


def _lock(file: BinaryIO) -> bool:
    """True when nobody else holds it. Windows needs no lock: open files cannot be deleted there."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _sweep(folder: Path) -> None:
    """Deletes unfinished files whose writer is gone; living writers hold a lock on theirs."""
    for part in folder.glob(f"*{PART}"):
        with contextlib.suppress(OSError):
            with part.open("rb") as file:
                abandoned = _lock(file)
            if abandoned:
                part.unlink()
