"""What this machine remembers of hosts, and of jobs it will not compute again.

Two small files in the home folder, each whole or not there. They are the owner's words, so a file
that makes no sense is an error rather than an empty list: a host that was blocked must not become
welcome because of a slip in an editor.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from crowdgrad.domain.data import check_hash
from crowdgrad.errors import CrowdgradError, SettingError, TargetError, one_line
from crowdgrad.files import disk_errors, write_whole

logger = logging.getLogger(__name__)

Status = Literal["trusted", "agreed", "blocked"]
"""trusted: put on the list by hand; agreed: “always” at a question; blocked: never."""
FINGERPRINT = re.compile(r"[0-9a-f]{16}")
MAX_HOSTS = 1000
MAX_REFUSALS = 1000
MAX_FILE_BYTES = 4 << 20
MAX_WORDS = 300


def fingerprint(text: str) -> str:
    """The fingerprint somebody typed. Raises TargetError."""
    found = text.strip().lower()
    if not FINGERPRINT.fullmatch(found):
        raise TargetError(
            f"{one_line(text)[:70]!r} is not a host's key.",
            advice="It has 16 hexadecimal digits: the question and `crowdgrad log` show it.",
        )
    return found


def fingerprints(text: str) -> frozenset[str]:
    """Those of the setting `trusted_hosts`, commas between them. Raises SettingError."""
    try:
        return frozenset(fingerprint(part) for part in text.split(",") if part.strip())
    except TargetError as error:
        raise SettingError(
            f"Setting trusted_hosts: {error.message}", advice="Write keys with commas between them."
        ) from None


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered of one host. Times are seconds since 1970."""

    key: str
    status: Status
    name: str
    first: float
    last: float

    def __post_init__(self) -> None:
        if not FINGERPRINT.fullmatch(self.key):
            raise ValueError(f"{self.key[:70]!r} is not a host's key")
        _check(self.name, self.first, self.last)


class Refused(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job this machine does not compute any more, and why."""

    program: str
    title: str
    reason: str
    at: float

    def __post_init__(self) -> None:
        check_hash(self.program)
        _check(self.title + self.reason, self.at)


R = TypeVar("R", Known, Refused)


class _Rows(Generic[R]):
    """The rows of one file, read anew each time: another process may have changed it."""

    def __init__(self, file: Path, kind: type[R]) -> None:
        self._file = file
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]

    def read(self) -> list[R]:
        """Raises SettingError for a file that cannot be read or makes no sense."""
        try:
            if self._file.stat().st_size > MAX_FILE_BYTES:
                raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
            rows: list[R] = self._decoder.decode(self._file.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise SettingError(
                f"{self._file} cannot be read: {one_line(str(error))[:MAX_WORDS]}.",
                advice="Mend it, or remove it to begin anew.",
            ) from None
        return rows

    def write(self, rows: list[R]) -> None:
        """Raises DiskFull or CannotWrite."""
        with disk_errors(self._file, "Choose another folder with CROWDGRAD_HOME."):
            write_whole(self._file, msgspec.json.format(msgspec.json.encode(rows), indent=1))


class KnownHosts:
    """Hosts by fingerprint. One that has proven no key is never in here."""

    def __init__(self, home: Path) -> None:
        self._rows = _Rows(home / "hosts.json", Known)

    def all(self) -> list[Known]:
        return self._rows.read()

    def get(self, key: str) -> Known | None:
        return next((host for host in self._rows.read() if host.key == key), None)

    def set(self, key: str, status: Status, *, name: str, now: float) -> Known:
        """Remember what the owner said. Raises SettingError where there is no room."""
        before = self.get(key)
        host = Known(
            key=key,
            status=status,
            name=_short(name) or (before.name if before else ""),
            first=before.first if before else now,
            last=now,
        )
        kept = [row for row in self._rows.read() if row.key != key]
        self._rows.write([*_with_room(kept), host])
        return host

    def seen(self, key: str, *, name: str, now: float) -> None:
        """A host we know is here again."""
        known = self.get(key)
        if known is not None:
            self.set(key, known.status, name=name, now=now)

    def forget(self, key: str) -> bool:
        """Whether there was anything to forget."""
        rows = self._rows.read()
        kept = [row for row in rows if row.key != key]
        if len(kept) < len(rows):
            self._rows.write(kept)
        return len(kept) < len(rows)


class Refusals:
    """Jobs refused on this machine, by the hash of their program: their trainer failed too often.

    What this process refused it keeps refusing even where the disk does not take the note.
    """

    def __init__(self, home: Path) -> None:
        self._rows = _Rows(home / "refusals.json", Refused)
        self._here: dict[str, Refused] = {}

    def all(self) -> list[Refused]:
        return self._rows.read()

    def reason(self, program: str) -> str | None:
        """Why the job is refused here; None: it is not."""
        rows = [*self._rows.read(), *self._here.values()]
        return next((row.reason for row in rows if row.program == program), None)

    def add(self, program: str, title: str, reason: str, now: float) -> None:
        """Never raises for a disk: this is said while something else has gone wrong already."""
        row = Refused(program=program, title=_short(title), reason=_short(reason), at=now)
        self._here[program] = row
        try:
            kept = [other for other in self._rows.read() if other.program != program]
            self._rows.write([*kept[-(MAX_REFUSALS - 1) :], row])
        except CrowdgradError as error:
            logger.warning("the refusal of “%s” is not kept: %s", row.title, error)

    def forget(self, job: str) -> list[Refused]:
        """Forgive by program hash, its beginning (8 digits or more) or title; those forgiven."""
        rows = self._rows.read()
        gone = [row for row in rows if _names(job.strip(), row)]
        if gone:
            self._rows.write([row for row in rows if row not in gone])
        for row in gone:
            self._here.pop(row.program, None)
        return gone


def _names(job: str, row: Refused) -> bool:
    return row.title == job or (len(job) >= 8 and row.program.startswith(job.lower()))


def _with_room(rows: list[Known]) -> list[Known]:
    """The rows, with room for one more: agreed hosts seen longest ago are forgotten first."""
    while len(rows) >= MAX_HOSTS:
        agreed = [row for row in rows if row.status == "agreed"]
        if not agreed:
            raise SettingError(
                f"{len(rows)} hosts are on the list already.",
                advice="Forget some: crowdgrad hosts forget KEY.",
            )
        rows = [row for row in rows if row is not min(agreed, key=lambda row: row.last)]
    return rows


def _short(text: str) -> str:
    return one_line(text)[:MAX_WORDS]


def _check(words: str, *times: float) -> None:
    if len(words) > 2 * MAX_WORDS or not words.isprintable():
        raise ValueError(f"names and reasons are printable, on one line: {words[:70]!r}")
    if not all(0 <= time < 1e12 for time in times):
        raise ValueError(f"a time of {times}")
