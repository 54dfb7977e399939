"""Whom this machine helps: the order of reasons, what is remembered, and what people read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.domain.data import Card
from crowdgrad.errors import DiskFull, SettingError
from crowdgrad.volunteer.consent import (
    WIDTH,
    Answer,
    Circumstances,
    Owner,
    Request,
    always,
    decide,
    lines,
    size,
)
from crowdgrad.volunteer.hosts import Known, KnownHosts

KEY = "0123456789abcdef"
NOW = 1.7e9
REQUEST = Request(
    host=KEY,
    host_name="Ada's lab",
    address="192.0.2.7:8701",
    job="digits-1",
    title="Handwritten digits",
    cause="education",
    program="ab" * 32,
    memory_bytes=312_400_000,
    traffic_bytes=11_700_000,
    exchange_bytes=640_000,
    disk_bytes=11_000_000,
    walls=(),
)
UNPROVEN = replace(REQUEST, host="")


def known(status: str) -> Known:
    return Known(key=KEY, status=status, name="", first=NOW, last=NOW)  # type: ignore[arg-type]


ORDER = [
    (Circumstances(own=True, known=known("blocked")), True, "own worker"),
    (Circumstances(known=known("blocked"), listed=True, yes=True, person=True), False, "blocked"),
    (Circumstances(listed=True), True, "trusted_hosts"),
    (Circumstances(known=known("trusted"), person=True), True, "list of trusted hosts since"),
    (Circumstances(known=known("agreed"), person=True), True, "you agreed"),
    (Circumstances(yes=True, person=True), True, "--yes"),
    (Circumstances(person=True), None, "yet"),
    (Circumstances(), False, KEY),
]


@pytest.mark.parametrize(("now", "agreed", "why"), ORDER, ids=lambda case: str(case)[:20])
def test_the_order_of_reasons(now: Circumstances, agreed: bool | None, why: str) -> None:
    found, reason = decide(REQUEST, now)
    assert found is agreed
    assert why in reason


def test_a_host_without_a_proven_key_is_on_no_list() -> None:
    assert decide(UNPROVEN, Circumstances(listed=True))[0] is False
    assert "no key" in decide(UNPROVEN, Circumstances())[1]
    assert decide(UNPROVEN, Circumstances(yes=True))[0] is True


class Person:
    """Says what it was told to, and remembers having been asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def __call__(self, request: Request) -> Answer:
        return self.answers.pop(0)


def owner(home: Path, person: Person | None = None, **how: object) -> Owner:
    return Owner(KnownHosts(home), clock=lambda: NOW, ask=person, **how)  # type: ignore[arg-type]


def say(consent: Owner, request: Request = REQUEST) -> tuple[bool, str]:
    return asyncio.run(_say(consent, request))


async def _say(consent: Owner, request: Request) -> tuple[bool, str]:
    return await consent(request)


def test_yes_is_for_this_job_and_always_is_remembered(tmp_path: Path) -> None:
    person = Person("yes", "always")
    first = owner(tmp_path, person)
    assert say(first) == (True, "you said yes")
    assert say(first) == (True, "you said yes")  # it came back: not asked again
    assert len(person.answers) == 1
    assert KnownHosts(tmp_path).get(KEY) is None
    assert say(first, replace(REQUEST, job="digits-2"))[0]  # another job: asked again
    assert person.answers == []
    kept = KnownHosts(tmp_path).get(KEY)
    assert kept is not None
    assert (kept.status, kept.name) == ("agreed", "Ada's lab")
    assert say(owner(tmp_path))[0]  # nobody there, and still yes


def test_no_is_no_and_is_not_remembered(tmp_path: Path) -> None:
    first = owner(tmp_path, Person("no"))
    assert say(first) == (False, "you said no")
    again = replace(REQUEST, job="digits-2", program="9" * 64)
    assert say(first, again) == (False, "you said no to this host")  # and nobody was asked
    assert KnownHosts(tmp_path).all() == []


def test_no_to_a_host_without_a_key_is_for_that_job_only(tmp_path: Path) -> None:
    first = owner(tmp_path, Person("no", "yes"))
    assert not say(first, UNPROVEN)[0]
    assert say(first, replace(UNPROVEN, job="digits-2"))[0]


def test_always_to_a_host_without_a_key_is_only_for_this_time(tmp_path: Path) -> None:
    assert say(owner(tmp_path, Person("always")), UNPROVEN)[0]
    assert KnownHosts(tmp_path).all() == []


def test_lists_and_options_ask_nobody(tmp_path: Path) -> None:
    person = Person()
    assert say(owner(tmp_path, person, listed=frozenset({KEY})))[0]
    assert say(owner(tmp_path, person, yes=True))[0]
    assert say(owner(tmp_path, person, own=True))[0]
    KnownHosts(tmp_path).set(KEY, "blocked", name="", now=NOW)
    assert not say(owner(tmp_path, person, yes=True))[0]


def test_a_known_host_is_noted_when_it_comes_again(tmp_path: Path) -> None:
    KnownHosts(tmp_path).set(KEY, "trusted", name="", now=5.0)
    assert say(owner(tmp_path))[0]
    kept = KnownHosts(tmp_path).get(KEY)
    assert kept is not None
    assert (kept.name, kept.first, kept.last) == ("Ada's lab", 5.0, NOW)


def test_a_list_that_makes_no_sense_is_no_empty_list(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text("[{]")
    with pytest.raises(SettingError, match=r"hosts\.json cannot be read"):
        say(owner(tmp_path, Person("yes")))


def test_a_disk_that_cannot_remember_costs_the_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(rows: object) -> None:
        raise DiskFull("There is no room left.")

    known = KnownHosts(tmp_path)
    monkeypatch.setattr(known._rows, "write", full)
    assert say(Owner(known, clock=lambda: NOW, ask=Person("always")))[0]
    assert "no room left" in caplog.text


def test_always_agrees() -> None:
    assert asyncio.run(_always())[0]


async def _always() -> tuple[bool, str]:
    return await always(REQUEST)


# -- what people read -------------------------------------------------------------------------


def test_everything_is_said_at_80_columns() -> None:
    said = lines(REQUEST)
    assert max(map(len, said)) <= WIDTH
    text = " ".join(" ".join(said).split())
    for words in ("Handwritten digits", "Ada's lab", KEY, "192.0.2.7:8701", "education", "312 MB",
                  "12 MB once", "640 kB back and forth", "11 MB for its model",
                  "your network address", "your key's fingerprint", "cores", "other programs",
                  "Nothing the host wrote is run here"):  # fmt: skip
        assert words in text
    assert "do not hold" not in text


def test_data_that_may_have_to_come_again_is_said() -> None:
    kept = "12 MB once, then 640 kB back"
    again = "12 MB once, and again what the disk may not keep of it, then 640 kB back"
    assert kept in " ".join(" ".join(lines(REQUEST)).split())
    assert again in " ".join(" ".join(lines(replace(REQUEST, again=True))).split())


def test_what_does_not_hold_here_is_said() -> None:
    text = " ".join(lines(replace(REQUEST, walls=("no network namespace", "no Landlock"))))
    assert "do not hold: no network namespace; no Landlock." in " ".join(text.split())


def test_a_host_without_a_key_is_called_what_it_is() -> None:
    text = " ".join(" ".join(lines(UNPROVEN)).split())
    assert "calls itself Ada's lab" in text
    assert "proven no key" in text
    assert "a host without a name" in " ".join(lines(replace(UNPROVEN, host_name="")))


def test_a_strangers_words_do_nothing_to_the_terminal() -> None:
    text = "".join(lines(replace(REQUEST, host_name="\x1b[2J", title="a\nb", cause="\x07")))
    assert text.isprintable()


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (25_400_000, "25 MB"),
     (1_234_000_000, "1.2 GB"), (12_345_000_000_000, "12,345 GB")],
)  # fmt: skip
def test_sizes_for_people(count: int, words: str) -> None:
    assert size(count) == words


def test_the_servers_are_named_but_not_without_end() -> None:
    assert not any("servers" in line for line in lines(REQUEST))
    few = replace(REQUEST, servers=("198.51.100.2:8710", "198.51.100.3:8710"))
    text = " ".join(" ".join(lines(few)).split())
    assert "198.51.100.2:8710, 198.51.100.3:8710." in text
    many = replace(REQUEST, servers=tuple(f"{'a' * 200}{n}.example:1" for n in range(64)))
    assert len(lines(many)) < len(lines(REQUEST)) + 16
    assert "and 56 more" in " ".join(" ".join(lines(many)).split())


def test_what_the_host_has_published_is_shown_but_not_without_end() -> None:
    about = replace(REQUEST, description="Reads\n\x1b[2Jdigits.", contact="ada@example.org")
    said = " ".join(" ".join(lines(about)).split())
    assert "it says “Reads [2Jdigits.”" in said
    assert "contact ada@example.org" in said
    assert "it says" not in " ".join(lines(REQUEST))
    endless = replace(REQUEST, description="a b " * 500, contact="x" * 500)
    assert len(lines(endless)) <= len(lines(REQUEST)) + 9
    assert all(line.isprintable() and len(line) <= WIDTH for line in lines(endless))


def test_other_machines_are_another_question_other_ports_are_not(tmp_path: Path) -> None:
    asked: list[Request] = []

    async def ask(request: Request) -> Answer:
        asked.append(request)
        return "yes"

    async def main() -> None:
        owner = Owner(KnownHosts(tmp_path), clock=lambda: NOW, ask=ask)
        for servers in (("s:1", "s:2"), ("s:3", "s:4"), ("t:1",), ("s:5",)):
            assert (await owner(replace(REQUEST, servers=servers)))[0]

    asyncio.run(main())
    assert [request.machines for request in asked] == [["s"], ["t"]]


def test_what_it_trains_on_is_said_but_not_without_end() -> None:
    said = " ".join(" ".join(lines(REQUEST)).split())
    assert "data licence unknown" in said
    card = Card(
        source="holiday photos " * 100, licence="CC BY 4.0", left_out=12,
        classes=tuple(f"class {n}" for n in range(3000)),
    )  # fmt: skip
    request = replace(REQUEST, data="Photos", card=card, growing=True)
    shown = lines(request)
    told = " ".join(" ".join(shown).split())
    for words in ("“Photos”; source holiday photos", "licence CC BY 4.0", "classes 3,000: class 0",
                  "left out 12 records", "more may be added"):  # fmt: skip
        assert words in told
    assert len(shown) < len(lines(REQUEST)) + 12
    assert max(map(len, shown)) <= 80
