"""Everything a database holds in one file, and back: into the same kind of database or the other.

Gzipped lines of JSON: a header with the version of the tables, every row, and a trailer with how
many there are and the sha256 of all lines before it. A backup is one moment of a database, taken
while a matchmaker works with it. What an older crowdgrad wrote is put back into the tables of its
time, which are then migrated. The file holds the service's own key: it is its owner's alone.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from crowdgrad.errors import DataAltered, DataMalformed, DataMissing, SettingError
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.store import migration, schema
from crowdgrad.store.database import Database
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.rows import KINDS, MAX_RECORD_BYTES, Cell, check_cell
from crowdgrad.store.schema import ROWS_AT_ONCE
from crowdgrad.store.sql import load

FORMAT = 1
MAX_LINE_BYTES = 2 * MAX_RECORD_BYTES
"""Of a record, every quote is escaped once more."""
ANOTHER = "Name a file that `crowdgrad matchmaker backup` wrote; if it did, use another backup."

Counts = dict[str, int]
Progress = Callable[[str, int], None]
"""Told now and then: which table, and how many of its rows so far."""


class Header(msgspec.Struct, frozen=True, tag="header", forbid_unknown_fields=True):
    holds: Literal["crowdgrad matchmaker"]
    format: int
    tables: str
    """Their version."""


class Line(msgspec.Struct, frozen=True, tag="row", forbid_unknown_fields=True):
    table: str
    row: dict[str, Cell]


class Trailer(msgspec.Struct, frozen=True, tag="trailer", forbid_unknown_fields=True):
    counts: Counts
    sha256: str


_decoder = msgspec.json.Decoder(Header | Line | Trailer)


def nobody(table: str, rows: int) -> None:
    """Progress that nobody looks at."""


# Out


def backup(url: str, file: Path, progress: Progress = nobody) -> Counts:
    """How many rows of which table. What is damaged gives no backup.

    Raises DataMissing, SettingError, DataMalformed, DiskFull, CannotWrite, Unreachable.
    """
    database = Database(url)
    counts = Counter[str]()
    with database.reading() as connection, disk_errors(file):
        version = migration.version_of(connection)
        if version is None:
            raise DataMissing(
                f"There is nothing of a matchmaker in {database.place}.", advice="Check its URL."
            )
        migration.check_known(version, database.place)
        if version == migration.head():
            load(connection, MemoryStore())

        def fill(out: BinaryIO, _: bytes) -> None:
            with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
                _write(packed, version, _counted(_tables(connection), counts, progress))

        write_whole(file, b"", private=True, write=fill)
    return dict(counts)


def _tables(connection: sa.Connection) -> Iterator[Line]:
    there = sa.inspect(connection).get_table_names()
    for kind in KINDS:
        if kind.table in there:
            source = sa.Table(kind.table, sa.MetaData(), autoload_with=connection)
            with schema.reading(connection, source) as rows:
                for row in rows:
                    yield Line(kind.table, row)


def _write(out: gzip.GzipFile, version: str, lines: Iterable[Line]) -> None:
    digest, counts = hashlib.sha256(), Counter[str]()

    def say(said: Header | Line | Trailer) -> None:
        text = msgspec.json.encode(said) + b"\n"
        digest.update(text)
        out.write(text)

    say(Header("crowdgrad matchmaker", FORMAT, version))
    for line in lines:
        say(line)
        counts[line.table] += 1
    say(Trailer(dict(counts), digest.hexdigest()))


def _counted(lines: Iterable[Line], counts: Counter[str], progress: Progress) -> Iterator[Line]:
    for table, group in groupby(lines, key=lambda line: line.table):
        for line in group:
            yield line
            counts[table] += 1
            if counts[table] % ROWS_AT_ONCE == 0:
                progress(table, counts[table])
        progress(table, counts[table])


# Back


def restore(file: Path, url: str, *, replace: bool = False, progress: Progress = nobody) -> Counts:
    """Put a backup into a database; with `replace`, in the place of what is there.

    Everything or nothing: the whole file is checked before anything changes, and what came of it
    before that lasts. Raises DataMissing, DataAltered, DataMalformed; SettingError where the
    database is in use or not empty; CannotWrite, Unreachable.
    """
    database = Database(url)
    counts = Counter[str]()
    with _opened(file) as opened:
        header = _check(opened, file)
        with database.claimed() as connection, _nonsense(file):
            _make_room(connection, database.place, replace=replace)
            migration.upgrade(connection, database.place, to=header.tables)
            _insert(connection, _counted(_lines(opened, file), counts, progress), file)
            migration.upgrade(connection, database.place)
            load(connection, MemoryStore())
            connection.commit()
    return dict(counts)


def _check(opened: BinaryIO, file: Path) -> Header:
    """That it is whole, and what it says of itself."""
    _, header = next(_said(opened, file), (b"", None))
    if not isinstance(header, Header):
        raise DataMalformed(f"{file} is no backup of a matchmaker.", advice="Name another file.")
    if header.format != FORMAT or not migration.is_known(header.tables):
        raise DataMalformed(
            f"{file} is of format {header.format} with tables {header.tables[:40]}; "
            f"this crowdgrad knows format {FORMAT} with tables up to {migration.head()}.",
            advice="A newer crowdgrad wrote it: update this one.",
        )
    for _ in _lines(opened, file):
        pass
    return header


def _make_room(connection: sa.Connection, place: str, *, replace: bool) -> None:
    version = migration.version_of(connection)
    if version is None:
        return
    migration.check_known(version, place)
    if not replace and next(_tables(connection), None) is not None:
        raise SettingError(
            f"The database {place} is not empty.",
            advice="Name an empty one; or, if all of it may go, say --replace.",
        )
    migration.drop_all(connection)


def _insert(connection: sa.Connection, lines: Iterator[Line], file: Path) -> None:
    there = {kind.table for kind in KINDS} & set(sa.inspect(connection).get_table_names())
    for name, group in groupby(lines, key=lambda line: line.table):
        if name not in there:
            raise _strange(file, f"a table {name[:40]!r}")
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        while rows := [line.row for line in islice(group, ROWS_AT_ONCE)]:
            if any(row.keys() != set(table.columns.keys()) for row in rows):
                raise _strange(file, f"a row of {name} with other columns")
            connection.execute(sa.insert(table), rows)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    try:
        opened = file.open("rb")
    except OSError as error:
        raise DataMissing(
            f"Cannot read {file}: {error.strerror}.", advice="Check the file's name."
        ) from error
    with opened:
        yield opened


@contextlib.contextmanager
def _nonsense(file: Path) -> Iterator[None]:
    """What the database refuses to hold was never in one."""
    try:
        yield
    except StatementError as error:
        about_rows = isinstance(error, DataError | IntegrityError | ProgrammingError)
        if isinstance(error, DBAPIError) and not about_rows:
            raise
        raise _strange(file, "a row that no database of ours would hold") from None


def _lines(opened: BinaryIO, file: Path) -> Iterator[Line]:
    """Every row, from the beginning; after the last, that all of it is as it was written."""
    digest, counts = hashlib.sha256(), Counter[str]()
    said = _said(opened, file)
    digest.update(next(said)[0])  # the header
    for text, now in said:
        if isinstance(now, Trailer):
            if next(said, None) is not None:
                raise _strange(file, "something after its end")
            if now.sha256 != digest.hexdigest() or now.counts != dict(counts):
                raise DataAltered(f"{file} was altered: its sha256 is another.", advice=ANOTHER)
            return
        if isinstance(now, Header):
            raise _strange(file, "a second beginning")
        digest.update(text)
        counts[now.table] += 1
        yield now
    raise DataAltered(f"{file} was cut short: it has no end.", advice=ANOTHER)


def _said(opened: BinaryIO, file: Path) -> Iterator[tuple[bytes, Header | Line | Trailer]]:
    opened.seek(0)
    packed = gzip.GzipFile(fileobj=opened)
    while text := _next_line(packed, file):
        if len(text) > MAX_LINE_BYTES:
            raise _strange(file, f"a line of more than {MAX_LINE_BYTES} bytes")
        try:
            said = _decoder.decode(text)
            if isinstance(said, Line):
                for cell in said.row.values():
                    check_cell(cell)
        except (msgspec.MsgspecError, ValueError) as error:
            raise _strange(file, "a line that no matchmaker writes") from error
        yield text, said


def _next_line(packed: gzip.GzipFile, file: Path) -> bytes:
    try:
        return packed.readline(MAX_LINE_BYTES + 1)
    except (EOFError, zlib.error) as error:
        raise DataAltered(f"{file} was cut short or altered.", advice=ANOTHER) from error
    except gzip.BadGzipFile as error:
        raise DataMalformed(f"{file} is no backup of ours, or damaged.", advice=ANOTHER) from error
    except OSError as error:
        raise DataMissing(
            f"Cannot read {file}: {error.strerror}.", advice="Check the disk it lies on."
        ) from error


def _strange(file: Path, what: str) -> DataMalformed:
    return DataMalformed(f"{file} is no backup of ours: there is {what} in it.", advice=ANOTHER)
