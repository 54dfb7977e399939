"""`prepared.json`: how a data folder was made, for a second run, for additions and for people."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crowdgrad.data.preparing.columns import Bad
from crowdgrad.data.preparing.fitting import Fitted
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Format, Known
from crowdgrad.data.preparing.schema import Schema
from crowdgrad.files import disk_errors, write_whole

NAME = "prepared.json"


class Record(msgspec.Struct, frozen=True):
    name: str
    """Of source and wishes together: the same again means there is nothing to do."""
    format: Format
    options: Options
    schema: Schema
    known: Known
    fitted: Fitted
    bad: tuple[Bad, ...] = ()
    bad_counts: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    """Of every file, as it was read."""
    added: dict[str, int] = {}
    """Of a source that grows: how many bytes of each file are in the folder."""
    coming: tuple[int, dict[str, int]] | None = None
    """What `added` becomes once the folder has so many shards."""


def record_path(folder: Path) -> Path:
    return folder / NAME


def read_record(folder: Path) -> Record | None:
    """None where there is none that we understand."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Raises DiskFull, CannotWrite."""
    with disk_errors(folder):
        write_whole(folder / NAME, msgspec.json.format(msgspec.json.encode(record), indent=1))
