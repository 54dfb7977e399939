"""The tables, as the latest migration leaves them, and the statements that fill them.

There are no foreign keys: the records in memory are what is true, and every transaction takes one
such truth to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from crowdgrad.store.rows import KINDS, RECORD, Key, Kind, Row
from crowdgrad.store.writer import Batch

ROWS_AT_ONCE = 1000

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
    named = [dict(zip(kind.key, key, strict=True)) for key in keys]
    if named:
        connection.execute(_DELETE[kind.table], [{f"_{n}": k for n, k in d.items()} for d in named])


def upsert(connection: sa.Connection, kind: Kind[Any], rows: list[Row]) -> None:
    if rows:
        connection.execute(_UPSERT[connection.dialect.name][kind.table], rows)


def _delete(kind: Kind[Any]) -> sa.Delete:
    columns = table(kind).c
    return sa.delete(table(kind)).where(
        *(columns[name] == sa.bindparam(f"_{name}") for name in kind.key)
    )


def _upsert(
    kind: Kind[Any], insert: sqlite.Insert | postgresql.Insert
) -> sqlite.Insert | postgresql.Insert:
    others = {c.name: insert.excluded[c.name] for c in table(kind).c if c.name not in kind.key}
    return insert.on_conflict_do_update(index_elements=kind.key, set_=others)


_SWAPPING = ("jobs", "members")
"""Where records may swap what only one may have (codes, places): all go before any comes back."""
_DELETE = {kind.table: _delete(kind) for kind in KINDS}
_UPSERT = {
    "sqlite": {kind.table: _upsert(kind, sqlite.insert(table(kind))) for kind in KINDS},
    "postgresql": {kind.table: _upsert(kind, postgresql.insert(table(kind))) for kind in KINDS},
}
