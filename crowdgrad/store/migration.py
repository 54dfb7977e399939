"""Which version a database's tables have, and how it gets to ours.

The steps are Alembic's, in `migrations/versions`. A migration is one transaction: afterwards
everything is as it should be, or as it was.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from crowdgrad.errors import SettingError
from crowdgrad.store.database import Database
from crowdgrad.store.schema import METADATA

VERSION_TABLE = "crowdgrad_version"
"""Not Alembic's usual name: others may keep theirs in the same database."""
MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(url: str) -> list[str]:
    """Bring a database's tables up to date; what was done, a line a step. Raises SettingError, …

    An empty database gets all tables. Nobody else may work with it meanwhile.
    """
    database = Database(url)
    with database.claimed() as connection:
        done = upgrade(connection, database.place)
        connection.commit()
        return done


def version(url: str) -> str | None:
    """That of the database's tables; None where there are none of ours. Raises DataMissing, …"""
    with Database(url).reading() as connection:
        return version_of(connection)


def upgrade(connection: sa.Connection, place: str, to: str = "head") -> list[str]:
    """`migrate`, in the transaction that is open."""
    before = version_of(connection)
    if before is None:
        _check_empty(connection, place)
    else:
        check_known(before, place)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)
    return _steps(before, version_of(connection))


def prepare(connection: sa.Connection, place: str) -> None:
    """Tables as this crowdgrad needs them, made where there are none, in the transaction that is
    open. Raises SettingError."""
    found = version_of(connection)
    if found is None:
        upgrade(connection, place)
        return
    check_known(found, place)
    if found != head():
        raise SettingError(
            f"The tables in {place} are of version {found}; this crowdgrad needs {head()}.",
            advice="Take a backup (`crowdgrad matchmaker backup`), "
            "then run `crowdgrad matchmaker migrate`.",
        )


def head() -> str:
    """The version this crowdgrad needs."""
    found = _scripts().get_current_head()
    assert found is not None
    return found


def is_known(revision: str) -> bool:
    return any(step.revision == revision for step in _scripts().walk_revisions())


def version_of(connection: sa.Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def drop_all(connection: sa.Connection) -> None:
    """Our tables and everything in them, in the transaction that is open."""
    METADATA.drop_all(connection)
    sa.Table(VERSION_TABLE, sa.MetaData()).drop(connection, checkfirst=True)


def _check_empty(connection: sa.Connection, place: str) -> None:
    """Somebody else's tables of the same names are not ours to fill."""
    strange = sorted(set(sa.inspect(connection).get_table_names()) & set(METADATA.tables))
    if strange:
        raise SettingError(
            f"{place} has tables that are not crowdgrad's: {', '.join(strange)}.",
            advice="Give the matchmaker a database of its own.",
        )


def check_known(found: str, place: str) -> None:
    """Raises SettingError for tables that a newer crowdgrad made."""
    if not is_known(found):
        raise SettingError(
            f"The tables in {place} are of version {found[:40]}, which this crowdgrad "
            f"({head()}) does not know.",
            advice="A newer crowdgrad has worked with it: update this one.",
        )


def _steps(before: str | None, after: str | None) -> list[str]:
    steps = _scripts().iterate_revisions(after, before)
    return [f"{step.revision}: {_sentence(step.doc)}" for step in reversed(list(steps))]


def _sentence(doc: str) -> str:
    return doc.strip().removesuffix(".")


def _config() -> Config:
    # Alembic tells every step; what was done is returned instead.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


@functools.cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
