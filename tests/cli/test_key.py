"""`crowdgrad key`: what it shows, what it brings back, what it asks the matchmaker."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from crowdgrad.cli.main import main
from crowdgrad.domain.matching import Machine, Wants
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import Identity, guest, load_or_make, recover
from tests.cli.terminal import Terminal
from tests.net.answering import Answering
from tests.net.scripted import a_volunteer, an_offer

pytestmark = pytest.mark.usefixtures("like_a_process_of_its_own")

ME = guest("me")
WORDS = " ".join(ME.phrase)
GIFT = bodies.GiftBody(units=1234, samples=123_400, flop=4.2e15)
LESS = bodies.GiftBody(units=1, samples=2, flop=3.0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    recover(tmp_path / "home", WORDS)
    return tmp_path / "home"


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering() as running:
        yield running


def run(home: Path, *arguments: str) -> int:
    return main(["key", *arguments, "--home", str(home)])


def credit(title: str = "Digits", **changes: object) -> rooms.CreditBody:
    body = rooms.CreditBody(
        job="mnist-1", title=title, host="ab" * 8, volunteer=ME.id, reported=GIFT,
        reported_at=1.7e9, agreed=True, signed=GIFT, signature="cd" * 64,
    )  # fmt: skip
    return msgspec.structs.replace(body, **changes)


def kept(key: Identity = ME) -> rooms.Kept:
    machine = Machine(gpu="H200", gpu_memory_mb=141_000, gflops=12.5)
    registered = rooms.Register(
        volunteer=bodies.VolunteerBody.of(a_volunteer(key)),
        session="not-kept",
        machine=bodies.MachineBody.of(machine),
        wants=bodies.WantsBody.of(Wants(hosts=frozenset({"ef" * 8}), causes=("climate",))),
        working_for="mnist-1",
    )
    return rooms.Kept(
        key=key.id,
        registered=registered,
        since=1.7e9,
        places=(rooms.PlaceKept(job="mnist-1", position=7, name="Ada's \x1b[2JPC"),),
        jobs=(bodies.OfferBody.of(an_offer("mine-1")),),
        gave=(credit(),),
        received=(credit(volunteer="ee" * 8, agreed=False, signed=None, signature=""),),
    )


# -- this machine -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [(), ("show",)])
def test_the_key_is_shown(
    home: Path, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    assert run(home, *verb) == 0
    shown = capsys.readouterr().out
    assert f"Key          {ME.id}\n" in shown
    assert ME.public.hex() in shown
    assert str(home / "key") in shown
    assert run(home, *verb, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == {
        "id": ME.id, "public": ME.public.hex(), "file": str(home / "key"),
    }  # fmt: skip


def test_options_before_the_verb_hold(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "--home", str(home), "--json", "-", "show"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == ME.id


def test_a_key_is_made_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "new") == 0
    assert load_or_make(tmp_path / "new").id in capsys.readouterr().out


def test_the_words_are_shown_on_a_terminal_only(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(home, "phrase") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "[CG106]" in said.err
    assert "--yes" in said.err
    assert run(home, "phrase", "--yes") == 0
    said = capsys.readouterr()
    assert "Whoever has these words is you" in said.err
    assert len(said.out.splitlines()) == 6
    assert said.out.startswith(f" 1 {ME.phrase[0]}")
    assert max(len(line) for line in said.out.splitlines()) <= 60
    assert [word for word in said.out.split() if word.isalpha()] == list(ME.phrase)
    monkeypatch.setattr("sys.stdin", io.StringIO(said.out))
    assert run(home.parent / "elsewhere", "recover") == 0
    assert f"You are {ME.id}" in capsys.readouterr().out
    assert load_or_make(home.parent / "elsewhere").id == ME.id


def test_recovering_names_the_wrong_word_and_keeps_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_or_make(tmp_path)
    for typed, options, code, told in (
        (WORDS.replace(ME.phrase[2], "abandonn", 1), (), 1, "Word 3, 'abandonn', is none"),
        ("", (), 1, "0 words"),
        (WORDS, (), 1, "Another key is kept"),
        (WORDS, ("--replace",), 0, ME.id),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert run(tmp_path, "recover", *options) == code
        said = capsys.readouterr()
        assert told in said.out + said.err
        assert ME.phrase[5] not in said.out + said.err, "no secrets in errors"
    assert load_or_make(tmp_path).id == ME.id
    (tmp_path / "key.old").rename(tmp_path / "key")
    assert load_or_make(tmp_path).id == before.id


def test_at_a_terminal_words_are_shown_and_asked_for(home: Path, tmp_path: Path) -> None:
    with Terminal(["-m", "crowdgrad", "key", "phrase", "--home", str(home)], tmp_path) as terminal:
        assert terminal.end() == 0
        assert f"24 {ME.phrase[23]}" in terminal.shown
        assert "show them to nobody" in terminal.shown
    there = str(tmp_path / "there")
    with Terminal(["-m", "crowdgrad", "key", "recover", "--home", there], tmp_path) as terminal:
        terminal.until("Type the 24 words")
        terminal.type(" ".join(ME.phrase[:10]) + "\n")
        terminal.until(ME.phrase[9])
        terminal.type(" ".join(ME.phrase[10:]) + "\n")
        terminal.until(f"You are {ME.id}")
        assert terminal.end() == 0


# -- the matchmaker ---------------------------------------------------------------------------


def test_what_is_kept_is_shown(
    home: Path, server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [(200, {}, rooms.encode(kept()))]
    assert run(home, "kept", "--matchmaker", server.url) == 0
    shown = capsys.readouterr().out
    for told in (
        ME.id, "as “Ada's PC”", "2 cores", "4,000 MB", "GPU H200", "12.5 GFLOP/s", "hosts efef",
        "rather climate", "mnist-1", "7 in job mnist-1", "“Digits” (mine-1), public, at 127.0.0.1",
        "1,234 units", "4.2 PFLOP", "(countersigned)", "(not countersigned)", "by eeee",
    ):  # fmt: skip
        assert told in shown
    assert "\x1b" not in shown
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("GET", "/v1/me")
    assert asked.holds
    assert asked.proof.key == ME.public.hex()
    assert run(home, "kept", "--matchmaker", server.url, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(rooms.encode(kept()))


def test_nothing_may_be_kept(
    home: Path, server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = rooms.Kept(
        key=ME.id, registered=None, since=None, places=(), jobs=(), gave=(), received=()
    )
    server.answers = [(200, {}, rooms.encode(nothing))]
    assert run(home, "kept", "--matchmaker", server.url) == 0
    shown = capsys.readouterr().out
    assert "Nothing      at all." in shown
    assert "forget" not in shown


def test_being_forgotten_is_asked_for_twice(
    home: Path, server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [(200, {}, rooms.encode(rooms.Forgotten(entries=3)))]
    assert run(home, "forget", "--matchmaker", server.url) == 1
    assert "[CG106]" in capsys.readouterr().err
    assert not server.asked
    assert run(home, "forget", "--matchmaker", server.url, "--yes") == 0
    assert "3 entries are gone" in capsys.readouterr().out
    assert (server.asked[0].method, server.asked[0].path) == ("DELETE", "/v1/me")
    assert server.asked[0].holds
    assert load_or_make(home).id == ME.id, "the key stays"
    assert run(home, "forget", "--matchmaker", server.url, "--yes", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == {"entries": 3}


def test_being_forgotten_at_a_terminal(home: Path, server: Answering, tmp_path: Path) -> None:
    server.answers = [(200, {}, rooms.encode(rooms.Forgotten(entries=1)))]
    command = ["-m", "crowdgrad", "key", "forget", "--home", str(home), "--matchmaker", server.url]
    for answer, told in (("n\n", "Nothing was forgotten"), ("y\n", "1 entry is gone")):
        with Terminal(command, tmp_path) as terminal:
            terminal.until("cannot be undone")
            terminal.until(r"Forget it all\? \[y\]es, \[n\]o: ")
            terminal.type(answer)
            terminal.until(told)
            assert terminal.end() == 0
    assert len(server.asked) == 1


def test_what_a_key_gave_is_a_table(
    home: Path, server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    gave = (
        credit(),
        credit("Weather \x1b[2J", agreed=False, signed=None, signature=""),
        credit("", job="unlisted", host="", agreed=False, signed=LESS),
    )
    found = rooms.KeySummary(key="\x1b[2J", gave=gave, received=(), flop=4.2e15)
    server.answers = [(200, {}, rooms.encode(found))]
    assert run(home, "gave", "--matchmaker", server.url) == 0
    shown = capsys.readouterr().out
    head, first, second, third, last = shown.splitlines()
    assert head.split() == ["units", "samples", "work", "countersigned", "to"]
    assert first.split()[:5] == ["1,234", "123,400", "4.2", "PFLOP", "yes"]
    assert first.endswith(f"“Digits” of {'ab' * 8}")
    assert " no  " in second
    assert third.endswith("3 FLOP         a job that is not public")
    assert last == f"In all 4.2 PFLOP are countersigned by {ME.id}."
    assert "\x1b" not in shown
    assert (server.asked[0].path, server.asked[0].authorization) == (f"/v1/keys/{ME.id}", None)
    other = guest("other").id
    server.answers = [(200, {}, rooms.encode(msgspec.structs.replace(found, gave=())))]
    assert run(home, "gave", other.upper(), "--matchmaker", server.url) == 0
    assert f"{other} has given nothing here yet" in capsys.readouterr().out
    assert run(home, "gave", "Ada", "--matchmaker", server.url) == 1
    assert "[CG105] 'Ada' is not the id of a key" in capsys.readouterr().err


def test_what_was_given_to_the_jobs_of_a_key(
    home: Path, server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    received = (credit(volunteer="ee" * 8), credit("", volunteer="\x1b[2J", agreed=False))
    found = rooms.KeySummary(key=ME.id, gave=(), received=received, flop=0.0)
    server.answers = [(200, {}, rooms.encode(found))]
    assert run(home, "gave", "--matchmaker", server.url) == 0
    nothing, title, head, first, second = capsys.readouterr().out.splitlines()
    assert "has given nothing here yet" in nothing
    assert title == "What was given to its jobs:"
    assert head.split()[-1] == "by"
    assert first.split()[:4] == ["1,234", "123,400", "4.2", "PFLOP"]
    assert first.endswith(f"yes            {'ee' * 8} to “Digits”")
    assert second.endswith("[2J to a job that is not public")
    assert "\x1b" not in second


def test_a_matchmaker_that_is_not_there(
    home: Path, server: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [(404, {}, b"")]
    assert run(home, "kept", "--matchmaker", server.url) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"[CG202] {server.url} answers with 404" in said
    assert "Check --matchmaker or the setting `matchmaker`" in said
    server.answers = [(200, {}, b"{}")]
    assert run(home, "kept", "--matchmaker", server.url) == 1
    assert "[CG503]" in capsys.readouterr().err
