"""A database by its URL: SQLite in a file, or PostgreSQL; who may write in it; what went wrong.

One process writes at a time. Beside an SQLite file lies one that the process has locked; in
PostgreSQL the connection that writes holds an advisory lock, so that whoever lost the connection
cannot write without having the lock again. Nothing of this says a password.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError, StatementError
from sqlalchemy.pool import NullPool

from crowdgrad.errors import (
    CannotWrite,
    CrowdgradError,
    DataMalformed,
    DataMissing,
    SettingError,
    Unreachable,
    one_line,
)
from crowdgrad.files import REAL, disk_errors

try:
    import fcntl
except ImportError:  # pragma: no cover - there is none on Windows
    fcntl = None  # type: ignore[assignment]

FORMS = "`sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/DATABASE`"
BUSY_S = 5.0
"""How long SQLite waits for somebody else, such as a person with a prompt."""
CLAIM_S = 5.0
"""PostgreSQL may take a moment to notice that who held the lock has died."""
CLAIM_PAUSE_S = 0.05

_HEADING = re.compile(
    r"(connection (?:failed|is bad): :?|connection to server .{1,400}? failed: |[A-Z]+: +)+"
)
"""What PostgreSQL and its driver say before they come to the point."""
_LOCK = "SELECT pg_try_advisory_lock(1129464901, hashtext(coalesce(current_schema(), '')))"
_SQLITE_FIRST = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",  # what is deleted is overwritten: people asked for it
)
_POSTGRES_FIRST = (
    # A server that has lost us gives the lock to whoever comes next, within a minute.
    "SET tcp_keepalives_idle = 20",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'",
)
_POSTGRES_CONNECT = {
    "connect_timeout": "5",
    "application_name": "crowdgrad-matchmaker",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class Database:
    """Where it is and how it is reached; connections are opened when asked for."""

    def __init__(self, url: str) -> None:
        """Raises SettingError; ModuleNotFoundError where the driver is not installed."""
        self._url = _parsed(url)
        self.place = _place(self._url)
        """For people: without user, password and options."""
        self.file = Path(self._url.database or "") if self.is_sqlite else None
        self.engine = sa.create_engine(self._url, poolclass=NullPool, hide_parameters=True)
        self._lock: int | None = None
        sa.event.listen(self.engine, "connect", self._first_words)
        if self.is_sqlite:
            sa.event.listen(self.engine, "begin", _begin)

    @property
    def is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One moment of it, whatever is written meanwhile. Raises DataMissing, Unreachable, …"""
        if self.file is not None and not self.file.is_file():
            raise DataMissing(
                f"There is no database at {self.place}.", advice="Check its URL; see --help."
            )
        with self.errors(), self.engine.connect() as connection:
            yield connection.execution_options(**self._one_moment())

    def _one_moment(self) -> dict[str, Any]:
        if self.is_sqlite:
            return {"only_read": True}
        return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    @contextlib.contextmanager
    def claimed(self) -> Iterator[sa.Connection]:
        """`claim`, and given back at the end."""
        with self.errors(), contextlib.ExitStack() as later:
            later.callback(self.release)
            connection = self.claim()
            later.callback(connection.close)
            yield connection

    def claim(self, *, statement_s: int = 0) -> sa.Connection:
        """A connection; until `release` only this process may write. Raises SettingError, …

        `statement_s`: a statement that takes PostgreSQL longer fails; 0: it may take its time.
        """
        with self.errors():
            if self.file is not None:
                self._lock_file(self.file)
                return self.engine.connect()
            connection = self.engine.connect()
            try:
                connection.execute(sa.text(f"SET statement_timeout = '{statement_s}s'"))
                connection.commit()
                self._lock_postgres(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def release(self) -> None:
        """After the connection was closed: that gives PostgreSQL's lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """What SQLAlchemy and drivers raise becomes ours."""
        try:
            yield
        except SQLAlchemyError as error:
            raise self._translated(error) from None  # the original quotes what it was given

    def _translated(self, error: SQLAlchemyError) -> CrowdgradError:
        why = self._words(error)
        if self.file is not None and ("not a database" in why or "malformed" in why):
            return DataMalformed(
                f"{self.place} is damaged, or no database: {why}.",
                advice="Restore a backup (`crowdgrad matchmaker restore`) at another place.",
            )
        if self.file is not None:
            return CannotWrite(
                f"The database {self.place} cannot be used: {why}.",
                advice="Free some space, or choose a place you may write to.",
            )
        if isinstance(error, OperationalError):
            return Unreachable(
                f"The database {self.place} does not answer: {why}.",
                advice="Check that PostgreSQL runs, and the address, user and password in the URL.",
            )
        return CannotWrite(
            f"The database {self.place} cannot be used: {why}.",
            advice="PostgreSQL's own log says more.",
        )

    def _words(self, error: SQLAlchemyError) -> str:
        """The point of the driver's own, without statement, values and password."""
        cause = error.orig if isinstance(error, StatementError) else error
        first = str(cause).strip().partition("\n")[0]  # questions and hints follow
        text = _HEADING.sub("", one_line(first), count=1).rstrip(".?! ")[:300]
        text = text or type(error).__name__
        for secret in _passwords(self._url):
            text = text.replace(secret, "***")
        return "the disk is full" if "disk is full" in text else text

    def _lock_file(self, file: Path) -> None:
        if self._lock is not None:
            return
        with disk_errors(file):
            REAL.make_folder(file.parent)
            handle = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _flock(handle, self.place)
            with disk_errors(file):  # it holds the service's key: nobody else may read it
                os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        except BaseException:
            os.close(handle)
            raise
        self._lock = handle

    def _lock_postgres(self, connection: sa.Connection) -> None:
        until = time.monotonic() + CLAIM_S
        while not connection.scalar(sa.text(_LOCK)):
            if time.monotonic() > until:
                raise taken(self.place)
            connection.rollback()
            time.sleep(CLAIM_PAUSE_S)
        connection.commit()

    def _first_words(self, raw: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        cursor = raw.cursor()
        if self.is_sqlite:
            raw.isolation_level = None  # transactions begin when we say so
        for statement in _SQLITE_FIRST if self.is_sqlite else _POSTGRES_FIRST:
            cursor.execute(statement)
        cursor.close()
        raw.commit()


def taken(place: str) -> SettingError:
    return SettingError(
        f"Another matchmaker works with {place}.",
        advice="Stop that one first, or give this one a database of its own.",
    )


def _begin(connection: sa.Connection) -> None:
    """Who will write says so at once: two that had only read could not both go on."""
    only_read = connection.get_execution_options().get("only_read", False)
    connection.exec_driver_sql("BEGIN" if only_read else "BEGIN IMMEDIATE")


def _flock(handle: int, place: str) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise taken(place) from None
        raise CannotWrite(
            f"{place} cannot be locked: {error.strerror}.",
            advice="Choose a place on a disk of this machine.",
        ) from error


def _parsed(url: str) -> URL:
    """Raises SettingError, which does not repeat the URL: there may be a password in it."""
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        raise _unknown("the URL cannot be read") from None
    backend = found.get_backend_name()
    if backend == "sqlite":
        if not found.database or found.database == ":memory:" or found.host:
            raise _unknown("an SQLite database needs a file, with three slashes before it")
        _check_folder(Path(found.database))
        return found.set(drivername="sqlite+pysqlite", query={})
    if backend in ("postgresql", "postgres"):
        given = {**_POSTGRES_CONNECT, **found.query}
        return found.set(drivername="postgresql+psycopg", query=given)
    raise _unknown(f"{one_line(found.drivername)[:40]} is neither of them")


def _check_folder(file: Path) -> None:
    """Who writes three slashes before a path from the root means no folder of that name here."""
    if not file.is_absolute() and not file.parent.is_dir():
        raise SettingError(
            f"There is no folder {file.parent} in {Path.cwd()} for the database.",
            advice=f"A path from the root has four slashes: sqlite:////{file}. "
            "Otherwise make the folder.",
        )


def _unknown(why: str) -> SettingError:
    return SettingError(f"A database is {FORMS}: {why}.", advice="Change its URL.")


def _place(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").absolute())
    host = url.host or url.query.get("host") or "localhost"
    where = ", ".join(host) if isinstance(host, tuple) else host
    return f"{url.database or ''} at {where}{f':{url.port}' if url.port else ''}"


def _passwords(url: URL) -> list[str]:
    queried = url.query.get("password", ())
    every = (url.password, *((queried,) if isinstance(queried, str) else queried))
    return [password for password in every if password]
