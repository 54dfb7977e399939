"""`crowdgrad matchmaker`: what its options mean, and its commands for the database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from crowdgrad.cli.main import main, parser
from crowdgrad.cli.matchmaker import _database, _door
from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Code, JobListing, JobRecord
from crowdgrad.store.migration import head
from crowdgrad.store.opening import open_store
from tests.cli.terminal import Terminal
from tests.matchmaker.running import offer, worker
from tests.net.certificates import certificate

pytestmark = pytest.mark.usefixtures("like_a_process_of_its_own")


@pytest.fixture(autouse=True)
def no_database_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDGRAD_DATABASE", raising=False)


def url_of(file: Path) -> str:
    return f"sqlite:///{file}"


def fill(file: Path, *names: str) -> None:
    store = open_store(url_of(file))
    for number, name in enumerate(names):
        listing = JobListing(
            offer=offer(name),
            state="waiting",
            published_at=1.0 + number,
            code=Code(f"ABC-23{4 + number}"),
        )
        store.put_job(JobRecord(listing=listing, owner="ab" * 32))
        store.add_member(JobId(name), worker())
    asyncio.run(store.kept())
    store.close()


def jobs(file: Path) -> list[str]:
    store = open_store(url_of(file))
    try:
        return [record.listing.id for record in store.jobs()]
    finally:
        store.close()


def test_without_options_it_is_for_this_machine() -> None:
    door = _door(parser().parse_args(["matchmaker"]))
    assert (door.host, door.port, door.scheme) == ("127.0.0.1", 8700, "http")
    assert (door.limits.connections, door.limits.per_address) == (20_000, 500)
    door.check()


def test_every_option_arrives_where_it_belongs(tmp_path: Path) -> None:
    file, key = certificate(tmp_path)
    door = _door(
        parser().parse_args(
            ["matchmaker", "--host", "0.0.0.0", "--port", "443", "--tls-cert", str(file),
             "--tls-key", str(key), "--public-url", "https://match.example.org",
             "--behind-proxy", "127.0.0.1", "--behind-proxy", "10.0.0.0/8", "--max-connections",
             "7", "--per-address", "3", "--joins-per-s", "11", "--address-joins-per-s", "2.5",
             "--key-joins-per-s", "0.5", "--most-entering", "9"]
        )
    )  # fmt: skip
    assert (door.host, door.port, door.scheme) == ("0.0.0.0", 443, "https")
    assert "10.1.2.3" in door.limits.proxies
    assert (door.limits.connections, door.limits.per_address) == (7, 3)
    rates = door.rates
    assert (rates.joins_per_s, rates.address_joins_per_s, rates.key_joins_per_s) == (11, 2.5, 0.5)
    assert door.most_entering == 9
    door.check()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "plain HTTP"),
        (["--tls-cert", "x"], "Give both --tls-cert and --tls-key"),
        (["--tls-cert", "missing", "--tls-key", "missing"], "cannot be read"),
        (["--behind-proxy", "caddy"], "named by its address"),
        (["--behind-proxy", "127.0.0.1"], "--public-url"),
        (["--public-url", "nowhere"], "no address people could be told"),
        (["--max-connections", "0"], "limits are at least 1"),
        (["--joins-per-s", "0"], "rates are above 0"),
        (["--joins-per-s", "nan"], "rates are above 0"),
        (["--database", "mysql://x"], "A database is"),
        (["--database", "sqlite:///nonexist/x.db"], "four slashes: sqlite:////nonexist/x.db"),
        (["--port", "70000"], "70000 is not a port"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matchmaker", "--home", str(tmp_path), "--port", "0", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "[CG104]" in said.err
    assert words in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_a_password_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://matchmaker:s3cret-word@127.0.0.1:9/crowdgrad"
    assert main(["matchmaker", "--home", str(tmp_path), "--port", "0", "--database", url]) == 1
    said = capsys.readouterr()
    assert "s3cret-word" not in said.out + said.err
    assert "[CG2" in said.err


def test_where_it_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*arguments: str) -> str:
        home = ("--home", str(tmp_path / "new"))
        return _database(parser().parse_args(["matchmaker", *home, *arguments]))

    assert found() == f"sqlite:///{tmp_path / 'new' / 'matchmaker.db'}"
    assert (tmp_path / "new").is_dir()
    monkeypatch.setenv("CROWDGRAD_DATABASE", "postgresql://u:p@h/d")
    assert found() == "postgresql://u:p@h/d"
    assert found("--database", "memory:") == "memory:"
    assert found("backup", "f", "--database", "memory:") == "memory:"
    assert found("--database", "memory:", "backup", "f") == "memory:"


def test_its_own_file_is_found_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = _database(parser().parse_args(["matchmaker", "--home", "mine"]))
    assert found == f"sqlite:///{tmp_path / 'mine' / 'matchmaker.db'}"


def test_files_that_hold_no_pem_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = certificate(tmp_path)
    letter = tmp_path / "letter"
    letter.write_text("Dear Anna")
    for cert, own, words in (
        (letter, key, f"no certificate in {letter}"),
        (file, letter, f"no key in {letter}"),
        (key, file, f"no certificate in {key}"),
    ):
        command = ["matchmaker", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(own)]
        assert main(command) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert words in said
        assert "_ssl" not in said


@pytest.mark.parametrize("database", ["memory:", ""])
def test_at_a_terminal_it_says_where_it_remembers_and_how_it_ends(
    tmp_path: Path, database: str
) -> None:
    words = ["-m", "crowdgrad", "matchmaker", "--port", "0", "--home", "home", "--database",
             database, "--public-url", "http://match.example.org"]  # fmt: skip
    with Terminal(words, tmp_path) as terminal:
        shown = terminal.until("Ctrl-C ends it")
        assert "The matchmaker listens on http://127.0.0.1:" in shown
        assert "People come to http://match.example.org" in shown
        place = str(tmp_path / "home" / "matchmaker.db") if not database else "memory"
        assert f"It remembers in {place}" in shown
        terminal.type("\x03")
        assert terminal.end() == 0


def test_what_was_done_is_told_to_machines_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, file = tmp_path / "old.db", tmp_path / "new.db", tmp_path / "backup.gz"

    def told(database: Path, *words: str) -> dict[str, object]:
        command = ["matchmaker", *words, "--database", url_of(database), "--json", "-"]
        assert main(command) == 0
        said = capsys.readouterr()
        assert said.err, "people are told on the other stream"
        found: dict[str, object] = json.loads(said.out)
        return found

    made = told(old, "migrate")
    assert (made["database"], made["tables"]) == (str(old), head())
    assert isinstance(made["steps"], list)
    assert made["steps"]
    assert told(old, "migrate")["steps"] == []
    fill(old, "mnist-1")
    expected = {"file": str(file), "rows": {"jobs": 1, "members": 1}}
    assert told(old, "backup", str(file)) == {"database": str(old), **expected}
    assert told(new, "restore", str(file)) == {"database": str(new), **expected}
    into = tmp_path / "done.json"
    command = ["matchmaker", "--json", str(into), "backup", str(file), "--database", url_of(old)]
    assert main(command) == 0
    assert json.loads(into.read_text())["rows"] == expected["rows"]
    assert capsys.readouterr().out.startswith("Wrote ")


def test_a_backup_comes_back_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, file = tmp_path / "old.db", tmp_path / "new.db", tmp_path / "backup.gz"
    fill(old, "mnist-1", "mnist-2")
    assert main(["matchmaker", "backup", str(file), "--database", url_of(old)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Wrote {file}: ")
    assert "2 in " in said.out
    assert main(["matchmaker", "restore", str(file), "--database", url_of(new)]) == 0
    assert capsys.readouterr().out.startswith(f"Restored {file}: ")
    assert jobs(new) == ["mnist-1", "mnist-2"]


def test_what_is_there_is_replaced_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, file = tmp_path / "old.db", tmp_path / "new.db", tmp_path / "backup.gz"
    fill(old, "mnist-1")
    fill(new, "other-1")
    assert main(["matchmaker", "--database", url_of(old), "backup", str(file)]) == 0
    assert main(["matchmaker", "restore", str(file), "--database", url_of(new)]) == 1
    said = capsys.readouterr().err
    assert "not empty" in said
    assert "--replace" in said
    assert jobs(new) == ["other-1"]
    again = ["matchmaker", "restore", str(file), "--replace", "--database", url_of(new)]
    assert main(again) == 0
    assert jobs(new) == ["mnist-1"]


def test_the_home_folders_database_is_the_one_that_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "matchmaker.db", "mnist-1")
    file = tmp_path / "backup.gz"
    assert main(["matchmaker", "backup", str(file), "--home", str(tmp_path)]) == 0
    assert file.exists()
    assert main(["matchmaker", "backup", str(file), "--home", str(tmp_path / "none")]) == 1
    assert "[CG401]" in capsys.readouterr().err


def test_tables_are_made_and_then_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["matchmaker", "migrate", "--database", url_of(tmp_path / "new.db")]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Done: ")
    assert said[-1] == "The tables are up to date."
    assert main(command) == 0
    assert capsys.readouterr().out == "The tables were up to date already.\n"
