"""What a database does to us: full, gone, locked, damaged, another's; and what we say then."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import (
    CannotWrite,
    CrowdgradError,
    DataMalformed,
    SettingError,
    Unreachable,
)
from crowdgrad.store import database, sql
from crowdgrad.store.opening import open_store, place_of
from crowdgrad.store.sql import SqlStore
from tests.contracts.store_contract import JOB, contents, credit, fill, job, volunteer
from tests.postgres import PostgresServer, running

SECRET = "hunter2"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/matchmaker.db"
    found = request.getfixturevalue("postgres_url")
    assert isinstance(found, str)
    return found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CLAIM_S", 0.0)


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - it happens in another thread
        await asyncio.sleep(0.005)


async def recovered(store: SqlStore) -> None:
    await until(lambda: not store.trouble)


def change(url: str, statement: str) -> None:
    """By somebody with an SQL prompt."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


# Who may write


@pytest.mark.usefixtures("impatient")
def test_a_second_matchmaker_is_sent_away_with_advice(url: str) -> None:
    first = open_store(url)
    with pytest.raises(SettingError, match="Another matchmaker") as caught:
        open_store(url)
    assert "Stop that one" in caught.value.advice
    first.put_volunteer(volunteer("a"))
    first.close()
    second = open_store(url)
    assert second.count_volunteers() == 1
    second.close()


def test_who_comes_while_another_dies_waits_a_moment(postgres_url: str) -> None:
    """As when a killed service starts again at once: the server notices a death a little later."""
    SqlStore(postgres_url).close()
    dying = psycopg.connect(postgres_url)
    assert dying.execute(database._LOCK).fetchone() == (True,)
    death = threading.Timer(0.3, dying.close)
    death.start()
    SqlStore(postgres_url).close()
    death.join()


@pytest.mark.usefixtures("impatient")
def test_who_lost_the_connection_and_then_the_database_never_writes_again(
    postgres_url: str,
) -> None:
    old = SqlStore(postgres_url, retry_s=0.01)
    cut_off(postgres_url)
    new = SqlStore(postgres_url)
    new.put_volunteer(volunteer("new"))
    asyncio.run(new.kept())

    async def main() -> None:
        old.put_volunteer(volunteer("old"))
        with pytest.raises(CannotWrite):  # it notices that it is cut off
            await old.kept()
        await until(lambda: "Another matchmaker works" in old.trouble)
        new.close()
        await until(lambda: "has worked with" in old.trouble)  # the lock is free; the truth moved
        with pytest.raises(CannotWrite, match="does not know any more"):
            await old.kept()

    asyncio.run(main())
    with pytest.raises(CannotWrite, match="Changes lost: 1"):
        old.close()
    again = SqlStore(postgres_url)
    assert [r.id for r in again.volunteers()] == ["new"]
    again.close()


def cut_off(url: str) -> None:
    """The server ends everybody's connection to the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


# Full, gone, and back


@pytest.fixture
def raw_connections() -> Iterator[list[sqlite3.Connection]]:
    """The driver's own connections, of all engines made in a test."""
    found: list[sqlite3.Connection] = []

    def note(raw: sqlite3.Connection, _: object) -> None:
        found.append(raw)

    sa.event.listen(sa.Engine, "connect", note)
    yield found
    sa.event.remove(sa.Engine, "connect", note)


def test_a_full_disk_loses_nothing(
    tmp_path: Path, raw_connections: list[sqlite3.Connection]
) -> None:
    url = f"sqlite:///{tmp_path}/matchmaker.db"
    store = SqlStore(url, retry_s=0.01)
    store.put_volunteer(volunteer("v0"))
    asyncio.run(store.kept())
    full = {"pages": 30}

    def no_room(raw: sqlite3.Connection, _: object) -> None:
        raw.execute(f"PRAGMA max_page_count={full['pages']}")

    async def main() -> None:
        for number in range(500):
            store.put_volunteer(volunteer(f"v{number}"))
        with pytest.raises(CannotWrite, match="disk is full"):
            await store.kept()
        assert store.count_volunteers() == 500
        store.put_volunteer(volunteer("v1", since=7.0))
        full["pages"] = 1 << 20
        await recovered(store)
        await store.kept()

    sa.event.listen(sa.Engine, "connect", no_room)
    try:
        no_room(raw_connections[-1], None)
        asyncio.run(main())
    finally:
        sa.event.remove(sa.Engine, "connect", no_room)
    store.close()
    again = SqlStore(url)
    assert again.count_volunteers() == 500
    assert again.volunteer(VolunteerId("v1")) == volunteer("v1", since=7.0)
    again.close()


def test_a_lost_connection_is_made_again(postgres_url: str) -> None:
    store = SqlStore(postgres_url, retry_s=0.01)
    fill(store)
    asyncio.run(store.kept())
    cut_off(postgres_url)

    async def main() -> None:
        store.put_volunteer(volunteer("z"))
        with pytest.raises(CannotWrite, match="does not answer"):
            await store.kept()
        await recovered(store)
        await store.kept()

    asyncio.run(main())
    before = contents(store)
    store.close()
    again = SqlStore(postgres_url)
    assert contents(again) == before
    assert again.volunteer(VolunteerId("z")) == volunteer("z")
    again.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with running(durable=True) as server:
        yield server


def test_a_server_that_crashes_and_comes_back(own_server: PostgresServer) -> None:
    url = own_server.fresh()
    store = SqlStore(url, retry_s=0.01)
    store.put_volunteer(volunteer("kept"))
    asyncio.run(store.kept())
    own_server.stop(rudely=True)

    async def main() -> None:
        store.put_volunteer(volunteer("later"))
        with pytest.raises(CannotWrite):
            await store.kept()
        await until(lambda: "refused" in store.trouble or "No such file" in store.trouble)
        own_server.start()
        await recovered(store)
        await store.kept()

    asyncio.run(main())
    store.close()
    again = SqlStore(url)
    assert [r.id for r in again.volunteers()] == ["kept", "later"]
    again.close()


def test_somebody_with_a_prompt_is_waited_for(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/matchmaker.db", retry_s=0.01)
    other = sqlite3.connect(tmp_path / "matchmaker.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def main() -> None:
        store.put_volunteer(volunteer("a"))
        waiting = asyncio.create_task(store.kept())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        other.execute("COMMIT")
        await waiting

    asyncio.run(main())
    other.close()
    store.close()


# Nothing is said that should not be


def test_no_password_is_ever_told(
    caplog: pytest.LogCaptureFixture, own_server: PostgresServer
) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    for url in (
        f"postgresql://anna:{SECRET}@127.0.0.1:1/x",
        f"postgresql://127.0.0.1:1/x?user=anna&password={SECRET}",
        f"postgresql://anna:{SECRET}@127.0.0.1:port/x",
        f"mysql://anna:{SECRET}@127.0.0.1/x",
        f"anna:{SECRET}@127.0.0.1/x",
    ):
        with pytest.raises((Unreachable, SettingError)) as caught:
            open_store(url)
        chain: BaseException | None = caught.value
        while chain is not None:
            said.append(f"{chain} {chain!r}")
            chain = None if chain.__suppress_context__ else chain.__cause__ or chain.__context__
    url = own_server.fresh().replace("postgres@", f"postgres:{SECRET}@")
    store = SqlStore(url, retry_s=0.01)
    own_server.stop()
    store.put_volunteer(volunteer("a"))
    with pytest.raises(CannotWrite) as lost:
        asyncio.run(store.kept())
    said += [str(lost.value), store.trouble, repr(store), str(vars(store))]
    with pytest.raises(CannotWrite, match="Changes lost"):
        store.close()
    assert len(said) > 8
    assert SECRET not in " ".join(said) + caplog.text


def test_a_database_s_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqlStore(f"sqlite:///{tmp_path}/new/matchmaker.db")
        store.keep_secret("key", b"secret")
        asyncio.run(store.kept())
        modes = {path.name: path.stat().st_mode for path in (tmp_path / "new").iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert set(modes) >= {"matchmaker.db", "matchmaker.db-wal", "matchmaker.db.lock"}
    assert all(not stat.S_IMODE(mode) & 0o077 for mode in modes.values())


# Words


def test_what_postgresql_says_is_cut_to_the_point(own_server: PostgresServer) -> None:
    there = own_server.fresh()
    for url, words in (
        ("postgresql://127.0.0.1:1/x", "does not answer: Connection refused."),
        (there.replace("postgres@", "nobody@"), 'role "nobody" does not exist.'),
    ):
        with pytest.raises(Unreachable) as caught:
            open_store(url)
        assert caught.value.message.endswith(words)


@pytest.mark.parametrize(
    ("said", "point"),
    [
        ('connection failed: connection to server at "127.0.0.1", port 9 failed: Connection refused'
         "\n\tIs the server running on that host and accepting TCP/IP connections?",
         "Connection refused"),
        ('connection failed: connection to server at "h", port 9 failed: FATAL:  password '
         'authentication failed for user "a"', 'password authentication failed for user "a"'),
        ("the connection is closed", "the connection is closed"),
        ("Is it there?", "Is it there"),
    ],
)  # fmt: skip
def test_nothing_ends_with_two_marks(said: str, point: str) -> None:
    here = database.Database("postgresql://127.0.0.1/x")
    error = OperationalError("SELECT 1", {}, psycopg.OperationalError(said))
    assert here._words(error) == point


# URLs


def test_a_file_is_made_only_in_a_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="no folder var/lib") as caught:
        open_store("sqlite:///var/lib/x.db")
    assert "sqlite:////var/lib/x.db" in caught.value.advice
    assert list(tmp_path.iterdir()) == []
    open_store("sqlite:///x.db").close()
    assert (tmp_path / "x.db").is_file()
    assert place_of("sqlite:///x.db") == str(tmp_path / "x.db")


def test_a_place_is_told_without_who_goes_there() -> None:
    place = place_of(f"postgresql://anna:{SECRET}@db.example.org/crowdgrad")
    assert place == "crowdgrad at db.example.org"
    assert "memory" in place_of("memory:")


@pytest.mark.parametrize(
    "url",
    ["", "sqlite://", "sqlite:///:memory:", "sqlite://x.db", "mysql://x/y", "x.db", "memory"],
)
def test_other_urls_are_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(SettingError, match="sqlite:///FILE"):
        open_store(url)


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Anna, " * 1000)
    with pytest.raises(DataMalformed, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/letter.txt")
    with pytest.raises(CrowdgradError, match="CG206"):
        open_store(f"sqlite:///{tmp_path}")


# Damage


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE jobs SET record = '{' WHERE id = 'mnist-1'", "jobs mnist-1"),
        ("UPDATE jobs SET record = replace(record, '\"maximum\":8', '\"maximum\":0')", "jobs"),
        ("UPDATE jobs SET code = 'ZZZ-222' WHERE id = 'mnist-1'", "jobs mnist-1"),
        ("UPDATE volunteers SET record = '[]' WHERE id = 'a'", "volunteers a"),
        ("UPDATE volunteers SET since = 3 WHERE id = 'a'", "volunteers a"),
        ("UPDATE members SET volunteer = 'q' WHERE position = 2", "members mnist-1, 2"),
        ("DELETE FROM jobs WHERE id = 'mnist-2'", "members mnist-2, 5"),
        ("UPDATE credits SET flop = 0 WHERE job = 'mnist-2'", "credits mnist-2, a"),
        ("UPDATE secrets SET record = 'null'", "secrets key"),
    ],
)
def test_a_damaged_row_is_named_not_skipped(url: str, statement: str, named: str) -> None:
    store = open_store(url)
    fill(store)
    store.close()
    change(url, statement)
    with pytest.raises(DataMalformed, match=named) as caught:
        open_store(url)
    assert "backup" in caught.value.advice
    assert len(str(caught.value)) < 600


def test_what_could_not_come_back_is_refused_at_once(url: str) -> None:
    """One such record in a batch, and nothing would ever be written again."""
    store = open_store(url)
    store.put_job(job())
    bad: list[Callable[[], None]] = [
        lambda: store.add_member(JOB, Member(position=1, id=VolunteerId("a\0"), name="a")),
        lambda: store.put_credit(credit("a", job=JobId("a\0b"))),
        lambda: store.keep_secret("a\0", b""),
    ]
    for put in bad:
        with pytest.raises(ValueError, match="cannot be kept"):
            put()
    assert store.members(JOB) == ()
    assert store.count_credits() == 0
    asyncio.run(store.kept())
    store.close()


def test_it_opens_nothing_it_does_not_close(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that could not be opened leaves neither its lock nor its connection behind."""

    def broken(*_: object) -> None:
        raise DataMalformed("damaged")

    with monkeypatch.context() as patched:
        patched.setattr(sql, "load", broken)
        with pytest.raises(DataMalformed):
            open_store(url)
    open_store(url).close()
