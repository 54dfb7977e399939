"""Records as rows: every table keeps whole records as JSON, beside what somebody may look for.

The JSON is the record; the other columns are copies out of it, for indexes and for people with an
SQL prompt. A row that cannot be read, or whose copies say something else than its record, was
altered by somebody: it is refused, never skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Credit, JobRecord, VolunteerRecord
from crowdgrad.errors import DataMalformed

Cell = str | int | float | None
Key = tuple[str | int, ...]
Row = dict[str, Cell]

RECORD = "record"
"""The column with the JSON."""
MAX_RECORD_BYTES = 1 << 20
"""Far more than any record that was checked where it was made."""

R = TypeVar("R")


class Seat(msgspec.Struct, frozen=True):
    """A place in the roster of a job."""

    job: JobId
    member: Member


class Secret(msgspec.Struct, frozen=True):
    """Something the service keeps for itself, e.g. its key."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """One table: what its records are, and which of their parts are columns."""

    table: str
    type: type[R]
    key: tuple[str, ...]
    """The columns that name a record; they come first in `copies`."""
    copies: Callable[[R], Row]
    to_json: Callable[[R], bytes]
    _decoder: msgspec.json.Decoder[R] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(self.type))

    def row(self, record: R) -> Row:
        """Raises ValueError: see `check_cell`."""
        row = self.copies(record)
        for cell in row.values():
            check_cell(cell)
        row[RECORD] = self.to_json(record).decode()
        return row

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)  # type: ignore[misc]

    def record(self, row: Mapping[str, Any]) -> R:
        """Raises DataMalformed, naming the row."""
        record = self.from_json(str(row[RECORD]).encode(), self._name(row))
        for column, cell in self.copies(record).items():
            if row[column] != cell:
                raise self.damaged(row, f"{column} is not what its record says")
        return record

    def damaged(self, row: Mapping[str, Any], why: str) -> DataMalformed:
        return _damaged(self._name(row), why)

    def _name(self, row: Mapping[str, Any]) -> str:
        return f"{self.table} {', '.join(str(row[column])[:70] for column in self.key)}"

    def from_json(self, text: bytes, name: str) -> R:
        """Raises DataMalformed; `name` says of what."""
        if len(text) > MAX_RECORD_BYTES:
            raise _damaged(name, f"it has {len(text)} bytes")
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, ValueError) as error:
            raise _damaged(name, str(error)[:200]) from error


def check_cell(cell: Cell) -> None:
    """Raises ValueError for what not every database gives back as it was."""
    if isinstance(cell, str) and "\0" in cell:
        raise ValueError(f"{cell[:70]!r} cannot be kept: it has a character 0")
    if isinstance(cell, float) and not math.isfinite(cell):
        raise ValueError(f"{cell} cannot be kept")
    if isinstance(cell, int) and not -(1 << 63) <= cell < 1 << 63:
        raise ValueError(f"{cell} cannot be kept: it is no 64-bit number")


def _damaged(name: str, why: str) -> DataMalformed:
    return DataMalformed(
        f"The database's entry {name} is damaged: {why}.",
        advice="Restore a backup (`crowdgrad matchmaker restore`), or mend or delete that row.",
    )


_encoder = msgspec.json.Encoder(order="deterministic")


def _job_json(record: JobRecord) -> bytes:
    """Sets in order, as everywhere; hyperparameters in the host's own."""
    plain = msgspec.to_builtins(record)
    offer = plain["listing"]["offer"]
    for names in (offer["invited"], offer["requirements"]["engines"]):
        names.sort()
    offer["requirements"]["kinds"].sort()
    return msgspec.json.encode(plain)


def _job_copies(record: JobRecord) -> Row:
    listing = record.listing
    return {
        "id": listing.id,
        "code": listing.code,
        "state": listing.state,
        "published_at": listing.published_at,
        "owner": record.owner,
    }


def _volunteer_copies(record: VolunteerRecord) -> Row:
    return {
        "id": record.volunteer.id,
        "owner": record.owner,
        "since": record.since,
        "job": record.job,
    }


def _seat_copies(seat: Seat) -> Row:
    return {"job": seat.job, "position": seat.member.position, "volunteer": seat.member.id}


def _credit_copies(credit: Credit) -> Row:
    return {
        "job": credit.job,
        "volunteer": credit.volunteer,
        "host": credit.host,
        "reported_at": credit.reported_at,
        "units": credit.reported.units,
        "samples": credit.reported.samples,
        "flop": credit.reported.flop,
        "signed_flop": None if credit.signed is None else credit.signed.flop,
    }


def _secret_copies(secret: Secret) -> Row:
    return {"name": secret.name}


JOBS = Kind("jobs", JobRecord, ("id",), _job_copies, _job_json)
MEMBERS = Kind("members", Seat, ("job", "position"), _seat_copies, _encoder.encode)
VOLUNTEERS = Kind("volunteers", VolunteerRecord, ("id",), _volunteer_copies, _encoder.encode)
CREDITS = Kind("credits", Credit, ("job", "volunteer"), _credit_copies, _encoder.encode)
SECRETS = Kind("secrets", Secret, ("name",), _secret_copies, _encoder.encode)

KINDS: tuple[Kind[Any], ...] = (JOBS, MEMBERS, VOLUNTEERS, CREDITS, SECRETS)
"""In the order in which they can be put back: members after the jobs whose roster they are in."""
