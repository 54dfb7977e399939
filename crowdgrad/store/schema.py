"""The tables, as the latest migration leaves them, and the statements that fill them.

There are no foreign keys: the records in memory are what is true, and every transaction takes one
such truth to the next.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from crowdgrad.store.rows import KINDS, RECORD, Cell, Key, Kind, Row
from crowdgrad.store.writer import Batch

ROWS_AT_ONCE = 1000
ROWS_A_STATEMENT = 200

T = TypeVar("T")

METADATA = sa.MetaData()

sa.Table(
    "jobs",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("code", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("published_at", sa.Double, nullable=False),
    sa.Column("owner", sa.Text, nullable=False, index=True),
    sa.Column(RECORD, sa.Text, nullable=False),
)
sa.Table(
    "members",
    METADATA,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True),
    sa.Column("volunteer", sa.Text, nullable=False, index=True),
    sa.Column(RECORD, sa.Text, nullable=False),
    sa.UniqueConstraint("job", "volunteer"),
)
sa.Table(
    "volunteers",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("job", sa.Text),
    sa.Column(RECORD, sa.Text, nullable=False),
)
sa.Table(
    "credits",
    METADATA,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("volunteer", sa.Text, primary_key=True, index=True),
    sa.Column("host", sa.Text, nullable=False, index=True),
    sa.Column("reported_at", sa.Double, nullable=False),
    sa.Column("units", sa.BigInteger, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("flop", sa.Double, nullable=False),
    sa.Column("signed_flop", sa.Double),
    sa.Column(RECORD, sa.Text, nullable=False),
)
sa.Table(
    "secrets",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column(RECORD, sa.Text, nullable=False),
)
HOLDER = sa.Table("holder", METADATA, sa.Column("id", sa.Text, primary_key=True))
"""One row: which process has opened the database last, and so may write."""


def table(kind: Kind[Any]) -> sa.Table:
    return METADATA.tables[kind.table]


@contextlib.contextmanager
def reading(connection: sa.Connection, source: sa.Table) -> Iterator[Iterator[Row]]:
    """Every row, by key. Only some are in memory at a time."""
    query = sa.select(source).order_by(*source.primary_key)
    few = {"yield_per": ROWS_AT_ONCE}
    with connection.execute(query, execution_options=few) as found:
        yield (dict(row) for row in found.mappings())


def write(connection: sa.Connection, batch: Batch) -> None:
    """In the transaction that is open. Raises SQLAlchemyError."""
    for kind in KINDS:
        changes = {key: row for (name, key), row in batch.items() if name == kind.table}
        gone = [key for key, row in changes.items() if row is None]
        rows = [row for row in changes.values() if row is not None]
        if kind.table in _SWAPPING:
            gone = list(changes)
        delete(connection, kind, gone)
        upsert(connection, kind, rows)


def delete(connection: sa.Connection, kind: Kind[Any], keys: Iterable[Key]) -> None:
    for some in _few(list(keys)):
        cells = [cell for key in some for cell in key]
        _run(connection, _delete_sql(kind.table, kind.key, len(some)), cells)


def upsert(connection: sa.Connection, kind: Kind[Any], rows: list[Row]) -> None:
    columns = tuple(column.name for column in table(kind).c)
    for some in _few(rows):
        cells = [row[name] for row in some for name in columns]
        _run(connection, _upsert_sql(kind.table, kind.key, columns, len(some)), cells)


def _few(all_of_them: list[T]) -> Iterator[list[T]]:
    """Many rows in one statement. Drivers let go of Python's lock for every statement, and a busy
    event loop gives it back only after a while: row by row, 500 of them took 3 s."""
    for start in range(0, len(all_of_them), ROWS_A_STATEMENT):
        yield all_of_them[start : start + ROWS_A_STATEMENT]


def _run(connection: sa.Connection, sql: str, cells: Sequence[Cell]) -> None:
    if connection.dialect.name == "postgresql":
        sql = sql.replace("?", "%s")
    connection.exec_driver_sql(sql, tuple(cells))


# The names in these are our own tables and columns.


@functools.lru_cache(maxsize=256)
def _delete_sql(name: str, key: tuple[str, ...], rows: int) -> str:
    return f"DELETE FROM {name} WHERE ({_names(key)}) IN (VALUES {_marks(len(key), rows)})"  # noqa: S608


@functools.lru_cache(maxsize=256)
def _upsert_sql(name: str, key: tuple[str, ...], columns: tuple[str, ...], rows: int) -> str:
    others = ", ".join(
        f'"{column}" = excluded."{column}"' for column in columns if column not in key
    )
    return (
        f"INSERT INTO {name} ({_names(columns)}) VALUES {_marks(len(columns), rows)} "  # noqa: S608
        f"ON CONFLICT ({_names(key)}) DO UPDATE SET {others}"
    )


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _marks(columns: int, rows: int) -> str:
    one = f"({', '.join('?' * columns)})"
    return ", ".join([one] * rows)


_SWAPPING = ("jobs", "members")
"""Where records may swap what only one may have (codes, places): all go before any comes back."""
