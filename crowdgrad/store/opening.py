"""A store by its URL: in memory, in a file, or in PostgreSQL.

What databases need is installed only where a matchmaker is to remember; it is loaded when somebody
asks for one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from crowdgrad.errors import MissingExtra
from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore

MEMORY = "memory:"
MODULES = ("sqlalchemy", "alembic", "psycopg")


def open_store(url: str) -> Store:
    """`memory:`, `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/DATABASE`.

    Raises SettingError for other URLs and for a database that is in use, older or newer;
    MissingExtra; DataMalformed; Unreachable; CannotWrite.
    """
    if url == MEMORY:
        return MemoryStore()
    with database_modules():
        from crowdgrad.store.sql import SqlStore

        return SqlStore(url)


def place_of(url: str) -> str:
    """Where a store keeps everything, for people: without user and password.

    Raises SettingError or MissingExtra.
    """
    if url == MEMORY:
        return "memory, until it ends"
    with database_modules():
        from crowdgrad.store.database import Database

        return Database(url).place


@contextlib.contextmanager
def database_modules() -> Iterator[None]:
    """Around an import of what needs a database. Raises MissingExtra where that is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in MODULES:
            raise
        raise MissingExtra(
            f"A database needs {name}, which is not installed.",
            advice="In a clone of the project: pip install -c constraints.txt '.[matchmaker]'.",
        ) from error
