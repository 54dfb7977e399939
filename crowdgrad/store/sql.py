"""A store that lasts: a database behind what is in memory.

Everything is read when it is opened; from then on the database is only written. The first to open
it puts its own name into the table `holder`: whoever has to connect again later, and finds another
name there, knows less than is true by now and never writes again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from crowdgrad.errors import CannotWrite
from crowdgrad.store import migration, schema
from crowdgrad.store.database import Database
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.rows import CREDITS, JOBS, MEMBERS, SECRETS, VOLUNTEERS, Key, Kind
from crowdgrad.store.writer import Batch, Writer

STATEMENT_S = 30
"""A server that takes longer over a few rows is in trouble: better say so than wait."""

R = TypeVar("R")


class SqlStore(MemoryStore):
    """SQLite or PostgreSQL. Changed from one thread; `kept` is awaited in that thread's loop."""

    def __init__(self, url: str, *, retry_s: float = 1.0) -> None:
        """Raises SettingError where the database is somebody else's, older or newer;
        DataMalformed where a row is damaged; Unreachable or CannotWrite."""
        super().__init__()
        self._writer: Writer | None = None
        self._pen = _Pen(Database(url), secrets.token_hex(8))
        try:
            self._pen.open(self)
        except BaseException:
            self._pen.close()
            raise
        self._writer = Writer(self._pen.write, retry_s=retry_s)

    @property
    def trouble(self) -> str:
        return "" if self._writer is None else self._writer.trouble

    async def kept(self) -> None:
        if self._writer is not None:
            await self._writer.kept()

    def close(self) -> None:
        """Raises CannotWrite where something could not be written even now."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._pen.close()

    def _changed(self, kind: Kind[R], record: R) -> None:
        if self._writer is not None:
            row = kind.row(record)
            self._writer.put(kind.table, kind.key_of(row), row)

    def _forgotten(self, kind: Kind[Any], key: Key) -> None:
        if self._writer is not None:
            self._writer.put(kind.table, key, None)


def load(connection: sa.Connection, store: MemoryStore) -> None:
    """Everything there is. Raises DataMalformed, naming the row; SQLAlchemyError."""
    _each(connection, JOBS, store.put_job)
    _each(connection, MEMBERS, lambda seat: store.add_member(seat.job, seat.member))
    _each(connection, VOLUNTEERS, store.put_volunteer)
    _each(connection, CREDITS, store.put_credit)
    _each(connection, SECRETS, lambda secret: store.keep_secret(secret.name, secret.value))


def _each(connection: sa.Connection, kind: Kind[R], take: Callable[[R], None]) -> None:
    with schema.reading(connection, schema.table(kind)) as rows:
        for row in rows:
            record = kind.record(row)
            try:
                take(record)
            except ValueError as error:
                raise kind.damaged(row, str(error)) from error


class _Pen:
    """The one connection that writes, made again when it is lost. Used by one thread at a time."""

    def __init__(self, database: Database, holder: str) -> None:
        self.database = database
        self._holder = holder
        self._connection: sa.Connection | None = None

    def open(self, store: MemoryStore) -> None:
        """For the first time: with tables, our name as who writes, and everything read."""
        connection = self._connection = self.database.claim(statement_s=STATEMENT_S)
        with self.database.errors():
            migration.prepare(connection, self.database.place)
            connection.execute(sa.delete(schema.HOLDER))
            connection.execute(sa.insert(schema.HOLDER), {"id": self._holder})
            load(connection, store)
            connection.commit()

    def write(self, batch: Batch) -> None:
        """All of it in one transaction. Raises CrowdgradError; then the next time connects anew."""
        try:
            with self.database.errors():
                connection = self._connected()
                schema.write(connection, batch)
                connection.commit()
        except BaseException:
            self._hang_up()
            raise

    def close(self) -> None:
        self._hang_up()
        self.database.release()

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self.database.claim(statement_s=STATEMENT_S)
            if self._connection.scalar(sa.select(schema.HOLDER.c.id)) != self._holder:
                raise CannotWrite(
                    f"Another matchmaker has worked with {self.database.place} meanwhile, "
                    "so this one does not know any more what is true.",
                    advice="Restart this one.",
                )
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                connection.invalidate()
            connection.close()
