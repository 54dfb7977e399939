"""Databases of older crowdgrads are brought up to date, newer ones left alone, strange ones too."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from crowdgrad.errors import DataMissing, SettingError
from crowdgrad.store import database, migration, schema
from crowdgrad.store.database import Database
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.migration import migrate, version
from crowdgrad.store.opening import open_store
from crowdgrad.store.rows import JOBS, MEMBERS, RECORD, SECRETS, VOLUNTEERS, Seat, Secret
from tests.contracts.store_contract import JOB, contents, credit, job, member, volunteer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/matchmaker.db"
    found = request.getfixturevalue("postgres_url")
    assert isinstance(found, str)
    return found


def make_first(url: str) -> None:
    """A database as the first crowdgrad with one left it, with rows."""
    place = Database(url)
    with place.claimed() as connection:
        assert migration.upgrade(connection, "here", to="0001") == [
            "0001: Jobs, their rosters, volunteers, and what the service keeps for itself"
        ]
        schema.upsert(connection, JOBS, [JOBS.row(job())])
        schema.upsert(connection, MEMBERS, [MEMBERS.row(Seat(JOB, member(1, "a")))])
        schema.upsert(connection, VOLUNTEERS, [VOLUNTEERS.row(volunteer("a"))])
        schema.upsert(connection, SECRETS, [SECRETS.row(Secret("key", b"secret"))])
        connection.commit()


def test_records_of_before_there_were_ways_are_read(url: str) -> None:
    """Their JSON lacks what has been added since; no table has changed for it."""
    today_job, today_volunteer = job(), volunteer("a")
    jobs, volunteers = JOBS.row(today_job), VOLUNTEERS.row(today_volunteer)
    old = json.loads(str(jobs[RECORD]))
    del old["listing"]["offer"]["public"], old["listing"]["offer"]["routes"]
    jobs[RECORD] = json.dumps(old)
    old = json.loads(str(volunteers[RECORD]))
    del old["machine"]["reachable"]
    volunteers[RECORD] = json.dumps(old)
    open_store(url).close()
    with Database(url).claimed() as connection:
        schema.upsert(connection, JOBS, [jobs])
        schema.upsert(connection, VOLUNTEERS, [volunteers])
        connection.commit()
    store = open_store(url)
    try:
        found = store.job(JOB)
        assert found is not None
        offer = replace(today_job.listing.offer, public="", routes=())
        assert found.listing.offer == offer
        somebody = store.volunteer(today_volunteer.id)
        assert somebody is not None
        assert somebody.machine == replace(today_volunteer.machine, reachable=False)
    finally:
        store.close()


def statement(url: str, text: str) -> None:
    with Database(url).claimed() as connection:
        connection.execute(sa.text(text))
        connection.commit()


def test_an_empty_database_gets_the_tables_of_today(url: str) -> None:
    open_store(url).close()
    assert version(url) == migration.head() == "0002"
    assert migrate(url) == []


def test_migrating_an_empty_database_makes_it(url: str) -> None:
    assert [step[:5] for step in migrate(url)] == ["0001:", "0002:"]
    open_store(url).close()


def test_an_old_one_is_refused_then_migrated_with_all_that_is_in_it(url: str) -> None:
    make_first(url)
    with pytest.raises(SettingError, match="0001") as caught:
        open_store(url)
    assert "backup" in caught.value.advice
    assert "crowdgrad matchmaker migrate" in caught.value.advice
    assert version(url) == "0001"
    assert migrate(url) == ["0002: Who gave what; and what belongs to a key is found by an index"]
    expected = MemoryStore()
    expected.put_job(job())
    expected.add_member(JOB, member(1, "a"))
    expected.put_volunteer(volunteer("a"))
    expected.keep_secret("key", b"secret")
    store = open_store(url)
    assert contents(store) == contents(expected)
    store.put_credit(credit("a"))
    store.close()
    again = open_store(url)
    assert again.gave(credit("a").volunteer) == [credit("a")]
    again.close()


def test_a_migration_that_fails_changes_nothing(url: str) -> None:
    make_first(url)
    statement(url, "CREATE INDEX ix_jobs_owner ON jobs (owner)")  # in the way of the last step
    with pytest.raises(Exception, match="ix_jobs_owner"):
        migrate(url)
    assert version(url) == "0001"
    with Database(url).reading() as connection:
        assert "credits" not in sa.inspect(connection).get_table_names()
    statement(url, "DROP INDEX ix_jobs_owner")
    migrate(url)
    open_store(url).close()


def test_a_newer_one_is_left_alone(url: str) -> None:
    open_store(url).close()
    statement(url, f"UPDATE {migration.VERSION_TABLE} SET version_num = '0999'")
    for use in (open_store, migrate):
        with pytest.raises(SettingError, match="0999") as caught:
            use(url)
        assert "update" in caught.value.advice
    assert version(url) == "0999"


def test_somebody_else_s_tables_are_left_alone(url: str) -> None:
    statement(url, "CREATE TABLE jobs (boss TEXT)")
    for use in (open_store, migrate):
        with pytest.raises(SettingError, match="jobs"):
            use(url)
    assert version(url) is None


def test_nobody_migrates_under_a_running_matchmaker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CLAIM_S", 0.0)
    store = open_store(url)
    with pytest.raises(SettingError, match="Another matchmaker"):
        migrate(url)
    assert version(url) == "0002"  # anybody may look
    store.close()


def test_the_steps_lead_to_the_tables_we_describe(url: str) -> None:
    migrate(url)
    with Database(url).reading() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"version_table": migration.VERSION_TABLE, "compare_type": True},
        )
        assert compare_metadata(context, schema.METADATA) == []


def test_it_says_nothing_by_itself(
    url: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    make_first(url)
    migrate(url)
    open_store(url).close()
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def test_what_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(DataMissing):
        version(f"sqlite:///{tmp_path}/nowhere.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_odd_characters_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "100 % größe"
    store = open_store(f"sqlite:///{folder}/matchmaker.db")
    store.put_job(job())
    store.close()
    assert (folder / "matchmaker.db").exists()
