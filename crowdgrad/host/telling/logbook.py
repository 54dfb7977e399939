"""`logs/host.jsonl`: what the host's log says, one JSON object a line, for whoever looks later.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "crowdgrad.host.server",
     "message": "ada left: the volunteer stopped", "fields": {…}}

A record's `extra={"fields": {…}}` is kept beside the message. Nothing here ever raises, and the
files are bounded: a full one becomes `host.jsonl.1`, and so on; the oldest goes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from crowdgrad.host.telling.growing import GrowingFile

MAX_BYTES = 10_000_000
KEPT = 2
"""Full files besides the one that is written."""
MAX_TEXT = 4000
MAX_FIELDS = 32
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SECRET_NAME = re.compile(r"token|secret|password|authorization|signature|private", re.IGNORECASE)
_SECRET = re.compile(
    r"(?i)(?P<what>\b(?:bearer|token|secret|password)\b[\s:=\"']+)[A-Za-z0-9+/_\-.=]{8,}"
)
HIDDEN = "…"


class Logbook(logging.Handler):
    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._file: GrowingFile | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = json.dumps(entry(record), ensure_ascii=False, default=str) + "\n"
            self._write(line.encode(errors="replace"))
        except Exception:  # a log that cannot be written costs the log, whatever the reason
            self._drop()

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._drop()
        super().close()

    def _write(self, line: bytes) -> None:
        self._file = self._file or GrowingFile(self._path)
        if self._file.length and self._file.length + len(line) > self._max_bytes:
            self._drop()
            self._turn()
            self._file = GrowingFile(self._path)
        self._file.add(line)

    def _turn(self) -> None:
        """host.jsonl.1 is the newest of the full ones."""
        for number in range(self._kept, 0, -1):
            before = self._numbered(number - 1)
            if before.exists():
                before.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def entry(record: logging.LogRecord) -> dict[str, object]:
    at = datetime.fromtimestamp(record.created, UTC)
    found: dict[str, object] = {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname,
        "logger": record.name,
        "message": clean(record.getMessage()),
    }
    fields = getattr(record, "fields", None)
    if isinstance(fields, dict) and fields:
        known = list(fields.items())[:MAX_FIELDS]
        found["fields"] = {clean(str(name)): _field(str(name), value) for name, value in known}
    if record.exc_info and record.exc_info[0] is not None:
        lines = traceback.format_exception(*record.exc_info)
        found["error"] = [clean(line) for line in "".join(lines).splitlines()[-40:]]
    return found


def clean(text: str) -> str:
    """One line of bounded length, without what moves a cursor and without secrets."""
    return _SECRET.sub(rf"\g<what>{HIDDEN}", _CONTROL.sub(" ", text))[:MAX_TEXT]


def _field(name: str, value: object) -> object:
    if _SECRET_NAME.search(name):
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value if value == value else None  # JSON has no NaN
    return clean(str(value))


@contextlib.contextmanager
def install(path: Path, *also: logging.Handler) -> Iterator[Logbook]:
    """Keep what our log says from INFO on until the block ends; terminals show what they did.

    `also`: who else is to hear it.
    """
    book, ours = Logbook(path), logging.getLogger("crowdgrad")
    level = ours.level
    shown = [handler for handler in logging.root.handlers if handler.level == logging.NOTSET]
    for handler in shown:  # what our logger lets through would reach them otherwise
        handler.setLevel(ours.getEffectiveLevel())
    ours.setLevel(min(logging.INFO, ours.getEffectiveLevel()))
    hearing = (book, *also)
    for handler in hearing:
        ours.addHandler(handler)
    try:
        yield book
    finally:
        for handler in hearing:
            ours.removeHandler(handler)
        ours.setLevel(level)
        for handler in shown:
            handler.setLevel(logging.NOTSET)
        book.close()
