"""Checkpoints on a disk: whole or not there, the newest that is sound, and never a number twice.

    000002-000000000300-00000017.pack    incarnation, count, and a number that only grows
    best.pack                            the best parameters so far, with what they scored
    incarnation-000002                   the counter of incarnations: its name is its value

The last three checkpoints are kept, and the best parameters, which are written first: whatever a
checkpoint says was best is on the disk before it. What cannot be read is passed over with its
reason. The counter is an empty file that is renamed: there is nothing in it to be torn, and it
needs no room on a full disk.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from crowdgrad.errors import DataAltered, DataError
from crowdgrad.files import REAL, Disk, remove_drafts
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_bytes import (
    Best,
    decode_best,
    decode_checkpoint,
    encode_best,
    encode_checkpoint,
)
from crowdgrad.store import packed

__all__ = ["Best", "CheckpointFiles", "Found", "Name"]

KEPT = 3
BEST = "best.pack"
COUNTER = "incarnation-"
MAX_NUMBER = 1 << 62
"""Names with larger numbers are not ours: there must always be a next one."""
_NAME = re.compile(r"([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})\.pack")
_COUNTER = re.compile(COUNTER + r"([0-9]{1,19})")


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """Of a checkpoint's file. They sort as they were written."""

    incarnation: int
    count: int
    number: int

    def __str__(self) -> str:
        return f"{self.incarnation:06}-{self.count:012}-{self.number:08}.pack"

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """None for what is none of ours."""
        match = _NAME.fullmatch(text)
        numbers = [int(number) for number in match.groups()] if match else [MAX_NUMBER]
        name = cls(*numbers) if max(numbers) < MAX_NUMBER else None
        return name if str(name) == text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What training goes on from. `checkpoint.course.best` is what `best` scored."""

    checkpoint: Checkpoint
    best: Best | None
    skipped: tuple[str, ...] = ()
    """Files that could not be used, each with the reason."""


class CheckpointFiles:
    """Synchronous: it waits for the disk. One write at a time; a claim may come meanwhile."""

    def __init__(self, folder: Path, disk: Disk = REAL) -> None:
        self.folder = folder
        self._disk = disk
        self._best_there: bytes | None = None
        """What the scores in `best.pack` are, where we know that it can be read."""
        self._asked = 0
        """The highest incarnation that somebody who asked may have taken."""

    # -- writing ------------------------------------------------------------------------------

    def write(self, checkpoint: Checkpoint, best: Best | None) -> int:
        """Keep a checkpoint, and the best parameters where they are new; returns bytes written.

        Raises OSError; whatever was there before is there still.
        """
        self._disk.make_folder(self.folder)
        remove_drafts(self._disk, self.folder)
        written = self._write_best(best) if best is not None else 0
        there = self._there()
        version = checkpoint.saved.version
        number = max((name.number for name in there), default=0) + 1
        name = Name(version.incarnation, version.count, number)
        written += packed.write(self._disk, self.folder / str(name), *encode_checkpoint(checkpoint))
        self._remove_all_but([name, *sorted(there, reverse=True)[: KEPT - 1]])
        return written

    def _write_best(self, best: Best) -> int:
        header, parts = encode_best(best)
        if header == self._best_there:
            return 0
        self._best_there = None  # until it is there
        written = packed.write(self._disk, self.folder / BEST, header, parts)
        self._best_there = header
        return written

    def _there(self) -> list[Name]:
        found = (Name.parse(name) for name in self._disk.names(self.folder))
        return [name for name in found if name is not None]

    def _remove_all_but(self, kept: list[Name]) -> None:
        """What cannot be removed now is removed another time."""
        for name in self._there():
            if name not in kept:
                with contextlib.suppress(OSError):
                    self._disk.remove(self.folder / str(name))

    # -- reading ------------------------------------------------------------------------------

    def newest(self) -> Name | None:
        """The one written last, whether it can be read or not. Raises OSError."""
        try:
            return max(self._there(), default=None)
        except FileNotFoundError:
            return None

    def load(self) -> Found | None:
        """The newest checkpoint that can be read; None where there is none. Raises OSError."""
        try:
            there = self._there()
        except FileNotFoundError:
            return None
        skipped: list[str] = []
        for name in sorted(there, reverse=True):
            checkpoint = self._read(name, skipped)
            if checkpoint is not None:
                best = self._read_best(len(checkpoint.saved.vector), skipped)
                course = replace(checkpoint.course, best=best.scores if best else None)
                return Found(
                    checkpoint=replace(checkpoint, course=course),
                    best=best,
                    skipped=tuple(skipped),
                )
        if skipped:
            raise DataAltered(
                f"No checkpoint in {self.folder} can be read: {'; '.join(skipped)}.",
                advice="Start the job again, or copy the run from where it is whole.",
            )
        return None

    def _read(self, name: Name, skipped: list[str]) -> Checkpoint | None:
        try:
            found = decode_checkpoint(packed.read(self._disk, self.folder / str(name)))
        except DataError as error:
            skipped.append(f"{name}: {error.message}")
            return None
        version = found.saved.version
        if (version.incarnation, version.count) != (name.incarnation, name.count):
            skipped.append(f"{name}: It holds version {version}.")
            return None
        return found

    def _read_best(self, length: int, skipped: list[str]) -> Best | None:
        if BEST not in self._disk.names(self.folder):
            return None
        try:
            best = decode_best(packed.read(self._disk, self.folder / BEST), length)
        except DataError as error:
            skipped.append(f"{BEST}: {error.message}")
            return None
        self._best_there, _ = encode_best(best)
        return best

    # -- incarnations -------------------------------------------------------------------------

    def claim(self) -> int:
        """The next incarnation, on the disk before this returns, and never given twice.

        It is above every one in a checkpoint's name. Raises OSError; who then takes the next number
        all the same will not be given it again by these files.
        """
        self._asked += 1
        self._disk.make_folder(self.folder)
        counters = sorted(self._counters())
        used = [name.incarnation for name in self._there()]
        claimed = self._asked = max([self._asked, *(number + 1 for number in (*counters, *used))])
        new = self.folder / _counter(claimed)
        if counters:
            self._disk.rename(self.folder / _counter(counters[-1]), new)
        else:
            file = self._disk.create(new)
            try:
                file.sync()
            finally:
                file.close()
        self._disk.sync_folder(self.folder)
        for old in counters[:-1]:  # of a run put together from copies
            with contextlib.suppress(OSError):
                self._disk.remove(self.folder / _counter(old))
        return claimed

    def _counters(self) -> list[int]:
        found = (_COUNTER.fullmatch(name) for name in self._disk.names(self.folder))
        values = (int(match[1]) for match in found if match and match[0] == _counter(int(match[1])))
        return [value for value in values if value < MAX_NUMBER]


def _counter(value: int) -> str:
    return f"{COUNTER}{value:06}"
