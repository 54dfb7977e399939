"""The journal: a readable log of everything done on this machine, in `journal.jsonl` of the home.

One JSON object a line: when, which host, what kind of thing, in words, with numbers. It is written
from what the agent says anyway, so nothing happens that is not in it; units are summed up, once a
minute and at the end of a job. It never grows beyond two files of `MAX_BYTES`. Several volunteers
of one machine may write to it: every line is one write to the end of the file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdgrad.errors import one_line
from crowdgrad.files import written
from crowdgrad.volunteer.events import Event, Watch

logger = logging.getLogger(__name__)

NAME, OLD_NAME = "journal.jsonl", "journal.old.jsonl"
MAX_BYTES = 4 << 20
MAX_WORDS = 1000
LINES_A_MINUTE = 100
EVERY_S = 60.0
"""How often units are summed up, and how soon the same state is worth another line."""
MAX_STATES = 64

Data = dict[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of it."""

    time: float
    """Seconds since 1970."""
    host: str
    what: str
    """start, state, trouble, note, units, credit, job (one has ended) or stop."""
    words: str
    data: Data

    def number(self, name: str) -> float:
        """Of its data; 0 where that is none."""
        value = self.data.get(name, 0)
        return float(value) if isinstance(value, int | float) else 0.0


def for_others(entries: Iterable[Entry], own: str) -> list[Entry]:
    """`own`: this machine's key. What it computed for runs it hosts itself is no gift."""
    return [entry for entry in entries if entry.host != own]


class Journal:
    def __init__(self, home: Path, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970. Nothing here raises for a disk: work goes on without it."""
        self._file = home / NAME
        self._old = home / OLD_NAME
        self._clock = clock
        self._lost = False
        self._said: dict[str, float] = {}
        self._units, self._samples, self._seconds = 0, 0, 0.0
        self._since = clock()
        self._minute, self._lines = clock(), 0
        """When this minute began, and how many lines it has brought."""
        self._total = 0
        """Samples of this job so far, as the agent counts them."""
        self.host = ""
        """Whom the lines that follow are about."""
        self._job = ""
        """Its job, once something was said of it by name."""
        self.seconds = 0.0
        """Of computing, since we began."""

    def watch(self, inner: Watch) -> Watch:
        """`inner`, and a line here for everything worth one."""

        def watch(event: Event) -> None:
            self._take(event)
            inner(event)

        return watch

    def write(self, what: str, words: str, data: Data | None = None) -> None:
        entry = {
            "time": round(self._clock(), 3),
            "host": self.host,
            "what": what,
            "words": one_line(words)[:MAX_WORDS],
            "data": data or {},
        }
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False, default=str)
        self._append(line.encode("utf-8", "replace") + b"\n")

    def sum_up(self) -> None:
        """The units since the last time, in one line."""
        if self._units:
            self.write(
                "units",
                f"{self._units} {'unit' if self._units == 1 else 'units'}, "
                f"{self._samples} samples used, "
                f"{self._seconds:.1f} s of computing.",
                {"units": self._units, "samples": self._samples,
                 "seconds": round(self._seconds, 3), "job": self._job},
            )  # fmt: skip
        self._units, self._samples, self._seconds = 0, 0, 0.0
        self._since = self._clock()

    def end_job(self, words: str, data: Data | None = None) -> None:
        """A job has ended, or we have left it."""
        self.sum_up()
        self._total = 0
        self.write("job", words, data)
        self._job = ""
        self._said.clear()

    def _take(self, event: Event) -> None:
        now = self._clock()
        self._job = str(event.data.get("job", self._job))
        if event.kind == "unit":
            self._count(event)
        elif self._worth_a_line(event, now) and self._has_room(now):
            self.write(event.kind, event.text, _plain(event.data))
        if now - self._since >= EVERY_S:
            self.sum_up()

    def _worth_a_line(self, event: Event, now: float) -> bool:
        return event.kind in ("trouble", "note", "effort") or (
            event.kind == "state" and self._new(event, now)
        )

    def _has_room(self, now: float) -> bool:
        """A host that makes us talk without end must not drive the past out of the journal."""
        if now - self._minute >= EVERY_S:
            if self._lines > LINES_A_MINUTE:
                left_out = self._lines - LINES_A_MINUTE
                self.write("trouble", f"{left_out} lines of a busy minute were left out.")
            self._minute, self._lines = now, 0
        self._lines += 1
        return self._lines <= LINES_A_MINUTE

    def _count(self, event: Event) -> None:
        total = int(event.data.get("samples", 0))
        self._units += 1
        self._samples += total - self._total if total >= self._total else total
        self._total = total
        seconds = float(event.data.get("seconds", 0.0))
        self._seconds += seconds
        self.seconds += seconds

    def _new(self, event: Event, now: float) -> bool:
        """Whether a state is news: waiting and working may take turns many times a minute."""
        if now - self._said.get(event.text, -EVERY_S) < EVERY_S:
            return False
        if len(self._said) >= MAX_STATES:
            self._said.clear()
        self._said[event.text] = now
        return True

    def _append(self, line: bytes) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._turn_over(len(line))
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            if not self._lost:  # once: the disk will not get better by our saying so
                logger.warning("the journal %s cannot be written: %s", self._file, error.strerror)
            self._lost = True

    def _turn_over(self, more: int) -> None:
        """Of two processes that find it full at once, the second may move a short one over the
        first's: then history is shorter, never wrong."""
        with contextlib.suppress(FileNotFoundError):
            if self._file.stat().st_size + more > MAX_BYTES:
                os.replace(self._file, self._old)


class Reader:
    """What the journal says: all of it first, then what was added since."""

    def __init__(self, home: Path) -> None:
        self._file = home / NAME
        self._old = home / OLD_NAME
        self._read: tuple[int, int] = (0, 0)
        """Which file was read last (its inode), and how far."""

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Another one as soon as there is anything new."""
        return written(self._old), written(self._file)

    def all(self) -> list[Entry]:
        """Oldest first; a line that a full disk has torn is passed over."""
        found: list[Entry] = []
        with contextlib.suppress(FileNotFoundError):
            found.extend(_entries(self._old.read_bytes()))
        return [*found, *self.news()]

    def news(self) -> list[Entry]:
        """Whole lines written since the last time. The end of a file just turned over is missed
        where nobody looked in between: it is in the old one."""
        try:
            with self._file.open("rb") as file:
                inode, size = os.fstat(file.fileno()).st_ino, os.fstat(file.fileno()).st_size
                start = self._read[1] if self._read[0] == inode and self._read[1] <= size else 0
                file.seek(start)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read = (inode, start + len(whole))
        return list(_entries(whole))


def _entries(text: bytes) -> Iterator[Entry]:
    for line in text.splitlines():
        entry = _entry(line)
        if entry is not None:
            yield entry


def _entry(line: bytes) -> Entry | None:
    try:
        row = json.loads(line)
        return Entry(
            time=float(row["time"]),
            host=one_line(str(row["host"])),
            what=one_line(str(row["what"])),
            words=one_line(str(row["words"])),
            data=dict(row["data"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _plain(data: dict[str, Any]) -> Data:
    """Numbers that JSON has; the rest as words."""
    return {
        name: value
        if isinstance(value, int) or _finite(value)
        else one_line(str(value))[:MAX_WORDS]
        for name, value in data.items()
    }


def _finite(value: object) -> bool:
    return isinstance(value, float) and abs(value) < float("inf")
