"""Files that a browser gives the panel, below the home folder: bounded, and under sound names.

What is dropped together is a *set*: a folder of its own. A name may have folders in it, since
pictures come in one for each class; it never leads out of the set.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from crowdgrad.errors import DataMissing, UserError
from crowdgrad.files import PART, disk_errors, private_folder

MAX_FILE_BYTES = 4 << 30
MAX_SET_BYTES = 16 << 30
MAX_ALL_BYTES = 64 << 30
"""Of all sets together, of panels before this one, too."""
MAX_FILES = 200_000
MAX_NAME, MAX_DEPTH = 200, 8
DRAFTS = ".drafts"
ABANDONED_S = 3600.0
"""How long nothing must have come for a draft to be nobody's."""
PIECE_BYTES = 1 << 20
"""What is written at once. A disk that is slow makes a thread wait, and no page."""
TOGETHER = (".npy",)
"""Files of one set that make one data set, inputs first."""
_SET = re.compile(r"set-[0-9a-f]{16}")
_UNSOUND = re.compile(r'[<>:"|?*]')
"""What some file systems cannot have in a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    set: str
    path: str
    """Of the file, below its set."""
    bytes: int


@dataclass(slots=True, kw_only=True)
class _Size:
    """Of a set, with what is on its way into it."""

    bytes: int
    files: int
    whole: bool = False
    """All of it has come to this panel."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of its files, as they came."""


class Uploads:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drafts = folder / DRAFTS
        self._sweeping = asyncio.Lock()
        self._swept = False
        self._sizes: dict[str, _Size] = {}
        self._before = 0
        """Bytes of sets that this panel has not touched, as it began."""
        self._used: set[str] = set()
        """Sets of which something is used where it lies."""

    async def take(self, name: str, into: str, body: AsyncIterator[bytes]) -> Uploaded:
        """`into`: a set there is; empty: a new one. Raises UserError, DiskFull, CannotWrite."""
        parts = sound_name(name)
        async with self._sweeping:
            if not self._swept:
                await asyncio.to_thread(self._sweep)
        known = into if into else f"set-{secrets.token_hex(8)}"
        folder = self.folder_of(known) if into else self._folder / known
        size = self._size(known, folder)
        if size.files >= MAX_FILES:
            raise UserError(f"A set has {MAX_FILES:,} files at most.", advice="Give a folder path.")
        size.files += 1
        try:
            with disk_errors(folder):
                taken, digest = await self._write(folder.joinpath(*parts), size, body)
        except BaseException:
            size.files -= 1
            raise
        size.digests["/".join(parts)] = digest
        return Uploaded(set=known, path="/".join(parts), bytes=taken)

    async def _write(self, file: Path, size: _Size, body: AsyncIterator[bytes]) -> tuple[int, str]:
        """The whole file or nothing; how many bytes, and which. Raises UserError, OSError."""
        draft, taken = self._drafts / f"{secrets.token_hex(8)}{PART}", 0
        digest, piled = hashlib.sha256(), bytearray()
        try:
            with draft.open("xb") as out:
                async for piece in body:
                    taken += len(piece)
                    size.bytes += len(piece)
                    self._check(file, taken, size)
                    piled += piece
                    if len(piled) >= PIECE_BYTES:
                        await asyncio.to_thread(_add, out, digest, piled)
                        piled = bytearray()
                await asyncio.to_thread(_add, out, digest, piled)
            _place(draft, file)
        except BaseException:
            size.bytes -= taken
            draft.unlink(missing_ok=True)
            raise
        return taken, digest.hexdigest()

    def _check(self, file: Path, taken: int, size: _Size) -> None:
        """Raises UserError."""
        if taken > MAX_FILE_BYTES or size.bytes > MAX_SET_BYTES:
            raise UserError(
                f"{file.name[:100]} is larger than may be uploaded: "
                f"{MAX_FILE_BYTES >> 30} GiB a file, {MAX_SET_BYTES >> 30} GiB a set.",
                advice="It is on this machine already: give its path instead.",
            )
        if self._before + sum(one.bytes for one in self._sizes.values()) > MAX_ALL_BYTES:
            raise UserError(
                f"All uploads together have {MAX_ALL_BYTES >> 30} GiB at most.",
                advice=f"Delete what you do not need any more from {self._folder}.",
            )

    def _sweep(self) -> None:
        """Once: what killed panels left half written (another may be writing now), and how much
        there is. Raises DiskFull, CannotWrite."""
        with disk_errors(self._folder):
            private_folder(self._folder)
            self._drafts.mkdir(exist_ok=True)
        for old in self._drafts.glob(f"*{PART}"):
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > ABANDONED_S:
                    old.unlink()
        self._before = _size_of(self._folder).bytes
        self._swept = True

    def used(self, data: str) -> None:
        """A data set is used where it lies: if that is in one of the sets, the set stays."""
        with contextlib.suppress(ValueError):
            self._used.add(Path(data).relative_to(self._folder.absolute()).parts[0])

    def end(self) -> None:
        """Delete what was uploaded to this panel and only prepared, elsewhere: nobody reads it
        again. What cannot be deleted stays."""
        for name in self._sizes.keys() - self._used:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def sources(self, name: str) -> list[str] | None:
        """What is to be prepared of a set; None where that is the name of none."""
        if not is_set(name):
            return None
        folder = self.folder_of(name)
        inside = sorted(folder.iterdir())
        if not inside:
            raise DataMissing("Nothing was uploaded.", advice="Drop a file or a folder.")
        if len(inside) == 1:
            return [str(inside[0])]
        if all(file.suffix in TOGETHER for file in inside):
            return [str(file) for file in inside]
        return [str(folder)]

    def contents(self, name: str) -> str:
        """The same for whatever has the same files of the same names; empty where nobody knows."""
        size = self._sizes.get(name)
        if size is None or not size.whole:
            return ""
        return hashlib.sha256(json.dumps(sorted(size.digests.items())).encode()).hexdigest()

    def folder_of(self, name: str) -> Path:
        """Raises DataMissing."""
        if not is_set(name) or not (self._folder / name).is_dir():
            raise DataMissing("There is no such upload.", advice="Drop the files again.")
        return self._folder / name

    def _size(self, name: str, folder: Path) -> _Size:
        if name not in self._sizes:
            self._sizes[name] = found = _size_of(folder)
            found.whole = not found.files
            self._before -= found.bytes
        return self._sizes[name]


def is_set(name: str) -> bool:
    return _SET.fullmatch(name) is not None


def _size_of(folder: Path) -> _Size:
    found = _Size(bytes=0, files=0)
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # another panel deletes its own
            told = file.stat()
            if stat.S_ISREG(told.st_mode):
                found.bytes += told.st_size
                found.files += 1
    return found


def _add(out: BinaryIO, digest: hashlib._Hash, piece: bytearray) -> None:
    digest.update(piece)
    out.write(piece)


def _place(draft: Path, file: Path) -> None:
    """Raises UserError, OSError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.replace(draft, file)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise UserError(
            f"{file.name[:100]} would be a file and a folder at once.", advice="Rename one of them."
        ) from None


def sound_name(name: str) -> list[str]:
    """The parts of a relative name, each of them harmless. Raises UserError."""
    parts = [part for part in name.replace("\\", "/").split("/") if part]
    if not parts or len(parts) > MAX_DEPTH or name.startswith(("/", "\\")):
        raise _unsound(name)
    for part in parts:
        if part in (".", "..") or part.startswith(".") or len(part.encode()) > MAX_NAME:
            raise _unsound(name)
        if not part.isprintable():
            raise _unsound(name)
    return [_UNSOUND.sub("_", part) for part in parts]


def _unsound(name: str) -> UserError:
    return UserError(
        f"{name[:100]!r} is no name for an upload.",
        advice=f"Give a relative name of at most {MAX_DEPTH} parts; no part begins with a dot.",
    )
