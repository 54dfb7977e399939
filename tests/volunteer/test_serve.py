"""Which job's trouble makes a volunteer look for another, which ends its work, who was expected."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crowdgrad.errors import (
    CrowdgradError,
    GateError,
    NotAgreed,
    RefusedHere,
    SettingError,
    TurnedAway,
    WallsMissing,
)
from crowdgrad.settings import Settings
from crowdgrad.volunteer import matched, serve
from crowdgrad.volunteer.agent import Outcome
from crowdgrad.volunteer.consent import always
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.journal import Journal, Reader
from crowdgrad.volunteer.talk import Trusted
from tests.volunteer.test_consent import KEY, REQUEST

DONE = Outcome(reason="done", left=True, samples=1, credit=None)
COMPILING = Trusted(target="m:t", folder="", compile=True)
OTHER = "f" * 16
EAGER = Trusted(target="m:t", folder="")


class Presence:
    """The same job again and again."""

    closed = False

    def __init__(self) -> None:
        offer = SimpleNamespace(title="Small", address="127.0.0.1:8710", key=KEY)
        listing = SimpleNamespace(offer=offer, id="small-1")
        self.match = SimpleNamespace(listing=listing, presence=self)
        self.avoided: list[set[str] | None] = []

    async def next_job(self, *, avoid: set[str] | None = None) -> Any:
        self.avoided.append(avoid)
        return self.match

    async def close(self) -> None:
        self.closed = True


def worked(
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    trouble: CrowdgradError,
    options: serve.Options,
    presence: Presence | None = None,
) -> list[str]:
    """Work where the first job has this trouble and the second ends well; what was told."""
    presence, answers = presence or Presence(), [trouble, DONE]
    events: list[Event] = []
    outcomes: list[Outcome] = []
    visits = serve._Visits(always, Journal(home, lambda: 0.0), outcomes)

    async def wait_for_job(*args: object, **how: object) -> Any:
        return presence.match

    async def work_for(host: str, port: int, **how: object) -> Outcome:
        answer = answers.pop(0)
        if isinstance(answer, Outcome):
            return answer
        raise answer

    monkeypatch.setattr(serve, "wait_for_job", wait_for_job)
    agent: Any = SimpleNamespace(volunteer=None, work_for=work_for)
    try:
        asyncio.run(serve._matched_jobs(agent, visits, options, Settings(), events.append))
    finally:
        assert presence.closed
    assert outcomes == [DONE]
    return [event.text for event in events if event.kind == "trouble"]


@pytest.mark.parametrize(
    ("trouble", "trusted"),
    [
        (GateError("Another model."), None),
        (SettingError("It draws."), COMPILING),
        (NotAgreed("You said no."), None),
        (RefusedHere("It failed too often."), None),
    ],
)
def test_another_job_may_do(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    trouble: CrowdgradError,
    trusted: Trusted | None,
) -> None:
    options, presence = serve.Options(target=None, trusted=trusted), Presence()
    assert worked(monkeypatch, tmp_path, trouble, options, presence) == [
        f"{trouble} Looking for another job."
    ]
    unwanted = isinstance(trouble, matched.UNWANTED)  # it would be unwanted again
    assert presence.avoided == [{"small-1"} if unwanted else None]
    ends = [entry.words for entry in Reader(tmp_path).all() if entry.what == "job"]
    assert ends == [f"It ended: {trouble}", "It ended: done. 1 samples were used."]


@pytest.mark.parametrize(
    ("trouble", "options"),
    [
        (SettingError("No such device."), serve.Options(target=None, trusted=EAGER)),
        (SettingError("It draws."), serve.Options(target="small-1", trusted=COMPILING)),
        (GateError("Another model."), serve.Options(target="small-1")),
        (NotAgreed("You said no."), serve.Options(target="small-1")),
        (WallsMissing("No Landlock."), serve.Options(target=None)),
    ],
)
def test_what_every_job_would_have_or_the_one_named_has_is_raised(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    trouble: CrowdgradError,
    options: serve.Options,
) -> None:
    with pytest.raises(type(trouble)):
        worked(monkeypatch, tmp_path, trouble, options)


def visited(home: Path, proven: str, expected: str) -> tuple[bool, str]:
    """What is said when a host that proves one key was expected to have another."""
    outcomes: list[Outcome] = []
    visits = serve._Visits(always, Journal(home, lambda: 0.0), outcomes)
    answers: list[tuple[bool, str]] = []

    async def work_for(host: str, port: int, **how: object) -> Outcome:
        answers.append(await visits.consent(replace(REQUEST, host=proven)))
        return DONE

    agent: Any = SimpleNamespace(work_for=work_for)
    asyncio.run(visits.pay(agent, ("127.0.0.1", 8710), expected))
    assert outcomes == [DONE]
    return answers[0]


def test_a_host_with_another_key_than_the_matchmaker_says_is_left(tmp_path: Path) -> None:
    with pytest.raises(TurnedAway, match=f"has the key {OTHER}; the matchmaker sent us to {KEY}"):
        visited(tmp_path, proven=OTHER, expected=KEY)
    (entry,) = Reader(tmp_path).all()
    assert (entry.host, entry.what) == (OTHER, "job")
    assert "has the key" in entry.words


@pytest.mark.parametrize(("proven", "expected"), [(KEY, KEY), (KEY, ""), ("", KEY)])
def test_the_expected_host_an_unexpected_one_and_an_old_one_are_a_matter_of_consent(
    tmp_path: Path, proven: str, expected: str
) -> None:
    assert visited(tmp_path, proven, expected)[0]
    (entry,) = Reader(tmp_path).all()
    assert entry.host == (proven or REQUEST.address)
