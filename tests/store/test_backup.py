"""A backup holds everything, is whole or refused, and comes back on either database."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import (
    CannotWrite,
    DataAltered,
    DataError,
    DataMalformed,
    DataMissing,
    SettingError,
)
from crowdgrad.store import backup as backups
from crowdgrad.store import database
from crowdgrad.store.backup import backup, restore
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.migration import version
from crowdgrad.store.opening import open_store
from tests.contracts.store_contract import contents, fill, volunteer
from tests.store.test_migration import make_first, statement

Fresh = Callable[[], str]
COUNTS = {"jobs": 2, "members": 4, "volunteers": 3, "credits": 2, "secrets": 1}


@pytest.fixture
def fresh_sqlite(tmp_path: Path) -> Fresh:
    numbers = iter(range(100))
    return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest) -> Fresh:
    name = "fresh_sqlite" if request.param == "sqlite" else "fresh_postgres"
    found: Fresh = request.getfixturevalue(name)
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh_other(request: pytest.FixtureRequest) -> Fresh:
    name = "fresh_sqlite" if request.param == "sqlite" else "fresh_postgres"
    found: Fresh = request.getfixturevalue(name)
    return found


@pytest.fixture
def full() -> MemoryStore:
    store = MemoryStore()
    fill(store)
    return store


@pytest.fixture
def made(fresh_sqlite: Fresh, tmp_path: Path) -> Path:
    """A backup of something of everything."""
    url = fresh_sqlite()
    store = open_store(url)
    fill(store)
    store.close()
    backup(url, tmp_path / "made.gz")
    return tmp_path / "made.gz"


def held(url: str) -> object:
    store = open_store(url)
    found = contents(store)
    store.close()
    return found


def test_out_of_either_into_either(
    fresh: Fresh, fresh_other: Fresh, tmp_path: Path, full: MemoryStore
) -> None:
    source, target, third = fresh(), fresh_other(), fresh()
    store = open_store(source)
    fill(store)
    asyncio.run(store.kept())
    seen: list[tuple[str, int]] = []
    counts = backup(source, tmp_path / "one.gz", lambda *told: seen.append(told))  # while it runs
    store.close()
    assert counts == dict(seen) == COUNTS
    seen.clear()
    assert restore(tmp_path / "one.gz", target, progress=lambda *t: seen.append(t)) == COUNTS
    assert dict(seen) == COUNTS
    assert held(target) == contents(full)
    backup(target, tmp_path / "two.gz")
    assert (tmp_path / "two.gz").read_bytes() == (tmp_path / "one.gz").read_bytes()
    restore(tmp_path / "two.gz", third)
    assert held(third) == contents(full)


def test_it_is_one_moment_of_a_database_that_changes(fresh: Fresh, tmp_path: Path) -> None:
    url = fresh()
    store = open_store(url)
    for number in range(2500):
        store.put_volunteer(volunteer(f"v{number}"))
    asyncio.run(store.kept())

    def meanwhile(table: str, rows: int) -> None:
        if table == "volunteers" and rows == 1000:
            for number in range(2500):
                store.put_volunteer(volunteer(f"v{number}", since=9.0))
            store.keep_secret("later", b"")
            asyncio.run(store.kept())

    assert backup(url, tmp_path / "file.gz", meanwhile) == {"volunteers": 2500}
    store.close()
    restored = fresh()
    restore(tmp_path / "file.gz", restored)
    again = open_store(restored)
    assert {r.since for r in again.volunteers()} == {1.0}
    assert again.secret("later") is None
    again.close()


def test_the_file_is_its_owner_s_alone_and_whole(
    fresh_sqlite: Fresh, tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    before = made.read_bytes()

    def stop(table: str, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(f"sqlite:///{tmp_path}/0.db", made, stop)
    assert made.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_what_is_not_empty_is_not_overwritten_unless_told(
    fresh: Fresh, made: Path, full: MemoryStore
) -> None:
    url = fresh()
    store = open_store(url)
    store.put_volunteer(volunteer("mine"))
    store.close()
    before = held(url)
    with pytest.raises(SettingError, match="not empty"):
        restore(made, url)
    assert held(url) == before
    restore(made, url, replace=True)
    assert held(url) == contents(full)
    restore(made, url, replace=True)
    assert held(url) == contents(full)


def test_an_empty_database_of_ours_is_filled(fresh: Fresh, made: Path, full: MemoryStore) -> None:
    url = fresh()
    open_store(url).close()
    restore(made, url)
    assert held(url) == contents(full)


def test_nothing_is_restored_under_a_running_matchmaker(
    fresh: Fresh, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CLAIM_S", 0.0)
    url = fresh()
    store = open_store(url)
    with pytest.raises(SettingError, match="Another matchmaker") as caught:
        restore(made, url, replace=True)
    assert "Stop" in caught.value.advice
    store.close()


def test_an_old_database_is_saved_as_it_is_and_comes_back_as_new(
    fresh: Fresh, fresh_other: Fresh, tmp_path: Path
) -> None:
    """The advice before a migration is to take a backup: it must be possible."""
    old, new = fresh(), fresh_other()
    make_first(old)
    assert backup(old, tmp_path / "old.gz") == {
        "jobs": 1,
        "members": 1,
        "volunteers": 1,
        "secrets": 1,
    }
    restore(tmp_path / "old.gz", new)
    assert version(new) == "0002"
    assert version(old) == "0001"
    store = open_store(new)
    assert store.volunteers() == [volunteer("a")]
    assert [m.id for m in store.members(store.jobs()[0].listing.id)] == ["a"]
    store.close()


def test_what_is_damaged_gives_no_backup(fresh: Fresh, tmp_path: Path) -> None:
    url = fresh()
    store = open_store(url)
    fill(store)
    store.close()
    statement(url, "UPDATE volunteers SET record = '{}' WHERE id = 'a'")
    with pytest.raises(DataMalformed, match="volunteers a"):
        backup(url, tmp_path / "file.gz")
    assert not (tmp_path / "file.gz").exists()


def test_where_there_is_nothing_there_is_no_backup(
    tmp_path: Path, postgres_url: str, made: Path
) -> None:
    for url in (f"sqlite:///{tmp_path}/nowhere.db", postgres_url):
        with pytest.raises(DataMissing):
            backup(url, tmp_path / "file.gz")
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(CannotWrite):
        backup(f"sqlite:///{tmp_path}/0.db", tmp_path / "0.db" / "file.gz")


# Files that are not as they were written


def lines(made: Path) -> list[bytes]:
    return gzip.decompress(made.read_bytes()).splitlines(keepends=True)


def sealed(body: list[bytes], counts: dict[str, int]) -> bytes:
    """With a trailer that is right, as a forger would."""
    digest = hashlib.sha256(b"".join(body)).hexdigest()
    trailer = msgspec.json.encode(backups.Trailer(counts, digest)) + b"\n"
    return gzip.compress(b"".join(body) + trailer)


def refused(tmp_path: Path, data: bytes, error: type[DataError]) -> DataError:
    """Into an empty database, which stays so."""
    file = tmp_path / "bad.gz"
    file.write_bytes(data)
    url = f"sqlite:///{tmp_path}/target.db"
    with pytest.raises(error) as caught:
        restore(file, url, replace=True)
    assert caught.value.advice
    store = open_store(url)
    assert store.count_jobs() == store.count_volunteers() == store.count_credits() == 0
    store.close()
    return caught.value


def test_a_torn_file_is_refused(tmp_path: Path, made: Path) -> None:
    whole = made.read_bytes()
    for length in (30, len(whole) // 2, len(whole) - 1):
        refused(tmp_path, whole[:length], DataAltered)
    refused(tmp_path, gzip.compress(b"".join(lines(made)[:-1])), DataAltered)
    refused(tmp_path, b"", DataError)


def test_what_is_no_backup_is_said_in_plain_words(tmp_path: Path, made: Path) -> None:
    whole = made.read_bytes()
    for data, error in (
        (b"title = 'Digits'\n", DataMalformed),
        (whole[:-8] + b"01234567", DataMalformed),
        (gzip.compress(b"title"), DataMalformed),
        (whole[:-1], DataAltered),
    ):
        found = refused(tmp_path, data, error)
        for raw in ("gzipped", "CRC", "JSON", "b'", "end-of-stream"):
            assert raw not in found.message
        assert "crowdgrad matchmaker backup" in found.advice


def test_an_altered_file_is_refused(tmp_path: Path, made: Path) -> None:
    said = lines(made)
    refused(tmp_path, gzip.compress(b"".join(said).replace(b"PC", b"Pc")), DataAltered)
    refused(tmp_path, gzip.compress(b"".join(said[:2] + said[3:])), DataAltered)
    refused(tmp_path, gzip.compress(b"".join([*said, said[1]])), DataMalformed)
    refused(tmp_path, made.read_bytes() + made.read_bytes(), DataMalformed)
    refused(tmp_path, sealed(said[:-1], {**COUNTS, "jobs": 1}), DataAltered)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_bit_flips_it_is_noticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flips"
    made = folder / "made.gz"
    if not made.exists():
        folder.mkdir(exist_ok=True)
        store = open_store(f"sqlite:///{folder}/source.db")
        fill(store)
        store.close()
        backup(f"sqlite:///{folder}/source.db", made)
    whole = bytearray(made.read_bytes())
    at = data.draw(st.integers(10, len(whole) - 1))  # what gzip says of itself before is not ours
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "flipped.gz").write_bytes(whole)
    with pytest.raises(DataError), (folder / "flipped.gz").open("rb") as opened:
        backups._check(opened, folder / "flipped.gz")


@pytest.fixture
def forged(made: Path) -> list[bytes]:
    """The hash is right; what they say is nothing that a matchmaker could have written."""
    header, *rows = lines(made)[:-1]
    one_job = next(row for row in rows if b'"table":"jobs"' in row)
    members = [row for row in rows if b'"table":"members"' in row]
    row = b'{"type":"row","table":"%s","row":%s}\n'
    return [
        sealed([header, one_job, one_job], {"jobs": 2}),
        sealed([header, *members], {"members": 4}),
        sealed([header, row % (b"holder", b'{"id":"x"}')], {"holder": 1}),
        sealed([header, row % (b"jobs", b'{"id":"x"}')], {"jobs": 1}),
        sealed([header, row % (b"jobs", b'{"id":[1]}')], {"jobs": 1}),
        sealed([header, row % (b"jobs", b'{"id":"\\u0000"}')], {"jobs": 1}),
        sealed([header, one_job.replace(b'"state":"waiting"', b'"state":7')], {"jobs": 1}),
        sealed(
            [header, one_job.replace(b'"published_at":', b'"published_at":"x","y":')], {"jobs": 1}
        ),
        sealed(
            [header, one_job.replace(b'"published_at":1.0', b'"published_at":"x"')], {"jobs": 1}
        ),
        sealed([header, one_job.replace(b'"owner":"0', b'"owner":"1')], {"jobs": 1}),
        sealed([header, header], {}),
        sealed([header, b"[]\n"], {}),
        sealed([header, b"{" * 100_000 + b"\n"], {}),
    ]


def test_what_a_forger_seals_is_still_judged(tmp_path: Path, forged: list[bytes]) -> None:
    for data in forged:
        refused(tmp_path, data, DataMalformed)


def test_what_a_forger_seals_is_judged_by_postgresql_too(
    tmp_path: Path, forged: list[bytes], postgres_url: str
) -> None:
    for data in forged:
        (tmp_path / "forged.gz").write_bytes(data)
        with pytest.raises(DataMalformed):
            restore(tmp_path / "forged.gz", postgres_url, replace=True)
        assert version(postgres_url) is None


def test_what_a_newer_crowdgrad_wrote_is_left_to_it(tmp_path: Path, made: Path) -> None:
    header, *rest = lines(made)[:-1]
    for old, new in ((b'"tables":"0002"', b'"tables":"0999"'), (b'"format":1', b'"format":2')):
        error = refused(tmp_path, sealed([header.replace(old, new), *rest], COUNTS), DataMalformed)
        assert "update" in error.advice


def test_lines_without_end_are_refused_before_they_fill_the_memory(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = lines(made)[0]
    bomb = gzip.compress(header + b"x" * (backups.MAX_LINE_BYTES + 1))
    assert "bytes" in refused(tmp_path, bomb, DataMalformed).message


@pytest.mark.parametrize(
    "data", [b"Dear Anna", b"\x1f\x8b", gzip.compress(b"Dear Anna\n", mtime=0)]
)
def test_what_is_no_backup_is_said(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data, DataError)
    with pytest.raises(DataMissing):
        restore(tmp_path / "nowhere.gz", f"sqlite:///{tmp_path}/target.db")
    with pytest.raises(DataMissing):
        restore(tmp_path, f"sqlite:///{tmp_path}/target.db")


def test_a_restore_that_is_interrupted_changes_nothing(fresh: Fresh, made: Path) -> None:
    url = fresh()
    store = open_store(url)
    store.put_volunteer(volunteer("mine"))
    store.close()
    before = held(url)

    def stop(table: str, rows: int) -> None:
        if table == "credits":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(made, url, replace=True, progress=stop)
    assert held(url) == before
    again = open_store(url)
    assert again.volunteer(VolunteerId("mine")) == volunteer("mine")
    again.close()
