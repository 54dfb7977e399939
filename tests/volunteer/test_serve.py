"""Which job's trouble makes a volunteer look for another, which ends its work, who was expected;
what a matchmaker is asked for, when it is time to rest, and the last word on what was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import ANYONE, Gift, Hours, JobListing, Machine, Wants
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.errors import (
    CrowdgradError,
    GateError,
    NotAgreed,
    RefusedHere,
    SettingError,
    TargetError,
    TurnedAway,
    Unreachable,
    WallsMissing,
)
from crowdgrad.net import web
from crowdgrad.net.identity import guest
from crowdgrad.settings import Settings
from crowdgrad.volunteer import matched, serve, target
from crowdgrad.volunteer import searching as searching_jobs
from crowdgrad.volunteer.consent import Request, always
from crowdgrad.volunteer.countersigning import Countersigning
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.hosts import KnownHosts
from crowdgrad.volunteer.journal import Journal, Reader
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.talk import Trusted
from crowdgrad.volunteer.tally import Tally
from crowdgrad.volunteer.visits import Visits
from tests.net.scripted import CODE, an_offer
from tests.virtual_time import run_virtual
from tests.volunteer.test_consent import KEY, REQUEST

DONE = Outcome(reason="done", left=True, samples=1, credit=None, code=CODE)
COMPILING = Trusted(target="m:t", folder="", compile=True)
OTHER = "f" * 16
EAGER = Trusted(target="m:t", folder="")


def listed(key: str = KEY, **about: str) -> JobListing:
    offer = replace(an_offer("small-1", key), title="Small", **about)  # type: ignore[arg-type]
    return JobListing(offer=offer, state="running", published_at=1.0, code=CODE)


class Presence:
    """The same job again and again."""

    closed = False

    def __init__(self) -> None:
        listing = listed()
        self.match = SimpleNamespace(
            listing=listing, presence=self, introduction="the first", reason="it has room"
        )
        self.avoided: list[set[str] | None] = []
        self.wanted: list[Wants | None] = []

    async def next_job(self, *, avoid: set[str] | None = None, wants: Wants | None = None) -> Any:
        self.avoided.append(avoid)
        self.wanted.append(wants)
        return self.match

    async def close(self) -> None:
        self.closed = True


class Door:
    """Where `matched_jobs` meets the matchmaker and the hosts: what it says to both, and hears."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, home: Path, *answers: CrowdgradError | Outcome
    ) -> None:
        self.home = home
        self.presence = Presence()
        self.answers = list(answers)
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self.asked: dict[str, Any] = {}
        self.introductions: list[str] = []
        self.rested = 0
        self.agent: Any = SimpleNamespace(volunteer=None, work_for=self._work_for, rest=self._rest)
        self.tally = Tally(None, lambda: 0.0)
        self.journal = Journal(home, lambda: 0.0)
        monkeypatch.setattr(searching_jobs, "wait_for_job", self._wait_for_job)

    async def _wait_for_job(self, url: str, volunteer: object, **how: Any) -> Any:
        self.asked = {"url": url, **how}
        return self.presence.match

    async def _work_for(
        self, where: Whereabouts, *, introduction: Callable[[], str], **how: object
    ) -> Outcome:
        self.introductions.append(introduction())
        answer = self.answers.pop(0)
        if isinstance(answer, Outcome):
            return answer
        raise answer

    def _rest(self, why: str) -> None:
        assert why == "your hours are over"
        self.rested += 1

    async def work(self, options: serve.Options, settings: Settings | None = None) -> None:
        settings = settings or Settings(home=self.home)
        goal = target.read(options.target)
        wants = serve.wanted(goal, options, settings)
        searching = serve.Searching(
            url=goal.matchmaker or settings.matchmaker,
            linked=bool(goal.matchmaker),
            key=guest("ada"),
            wants=wants,
            options=options,
            settings=settings,
        )
        visits = Visits(always, self.journal, self.outcomes, only=wants.hosts)
        signing = Countersigning(self.tally, self.journal.write, self.events.append)
        await serve.matched_jobs(self.agent, visits, searching, signing, self.events.append)

    @property
    def troubles(self) -> list[str]:
        return [event.text for event in self.events if event.kind == "trouble"]


def worked(
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    trouble: CrowdgradError,
    options: serve.Options,
) -> Door:
    """Work where the first job has this trouble and the second ends well."""
    door = Door(monkeypatch, home, trouble, DONE)
    try:
        asyncio.run(door.work(options))
    finally:
        assert door.presence.closed
    assert door.outcomes == [DONE]
    return door


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
    options = serve.Options(target=None, trusted=trusted)
    door = worked(monkeypatch, tmp_path, trouble, options)
    assert door.troubles == [f"{trouble} Looking for another job."]
    unwanted = isinstance(trouble, matched.UNWANTED)  # it would be unwanted again
    assert door.presence.avoided == [{"small-1"} if unwanted else None]
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


def visited(
    home: Path, proven: str, expected: str, only: frozenset[str] | None = None
) -> tuple[bool, str]:
    """What is said when a host that proves one key was expected to have another."""
    outcomes: list[Outcome] = []
    visits = Visits(always, Journal(home, lambda: 0.0), outcomes, only=only)
    answers: list[tuple[bool, str]] = []

    async def work_for(where: Whereabouts, **how: object) -> Outcome:
        answers.append(await visits.consent(replace(REQUEST, host=proven)))
        return replace(DONE, code="")

    agent: Any = SimpleNamespace(work_for=work_for)
    asyncio.run(visits.pay(agent, at("127.0.0.1", 8710), listed(expected)))
    assert outcomes == [DONE]
    return answers[0]


def test_a_host_with_another_key_than_the_matchmaker_says_is_left(tmp_path: Path) -> None:
    with pytest.raises(TurnedAway, match=f"has the key {OTHER}; the matchmaker sent us to {KEY}"):
        visited(tmp_path, proven=OTHER, expected=KEY)
    (entry,) = Reader(tmp_path).all()
    assert (entry.host, entry.what) == (OTHER, "job")
    assert "has the key" in entry.words


@pytest.mark.parametrize(("proven", "expected"), [(KEY, KEY), (KEY, "")])
def test_the_expected_host_and_an_unexpected_one_are_a_matter_of_consent(
    tmp_path: Path, proven: str, expected: str
) -> None:
    assert visited(tmp_path, proven, expected)[0]
    (entry,) = Reader(tmp_path).all()
    assert entry.host == (proven or REQUEST.address)


def test_who_is_helped_is_told_why(tmp_path: Path) -> None:
    heard: list[object] = []

    async def work_for(where: Whereabouts, **how: object) -> Outcome:
        heard.append(how["why"])
        return DONE

    visits = Visits(always, Journal(tmp_path, lambda: 0.0), [])
    agent: Any = SimpleNamespace(work_for=work_for)
    asyncio.run(visits.pay(agent, at("127.0.0.1", 8710), why="It is near."))
    named = serve._why(serve.Options(target="127.0.0.1:8710"))
    assert (heard, named) == (["It is near."], "You named it, by its address.")
    assert serve._why(serve.Options(target=None)) == ""
    own = serve.Options(target="127.0.0.1:8710", token="t")
    assert serve._why(own) == "", "the host began it, not somebody here"


def test_what_the_matchmaker_told_of_a_job_is_part_of_the_question(tmp_path: Path) -> None:
    heard: list[Request] = []

    async def owner(request: Request) -> tuple[bool, str]:
        heard.append(request)
        return True, "yes"

    visits = Visits(owner, Journal(tmp_path, lambda: 0.0), [])

    async def work_for(where: Whereabouts, **how: object) -> Outcome:
        for job in ("small-1", "another-1"):
            await visits.consent(replace(REQUEST, job=job))
        return DONE

    agent: Any = SimpleNamespace(work_for=work_for)
    about = {"description": "Reads digits.", "contact": "ada@example.org"}
    asyncio.run(visits.pay(agent, at("127.0.0.1", 8710), listed(**about)))
    asyncio.run(visits.pay(agent, at("127.0.0.1", 8710)))
    assert [(asked.description, asked.contact) for asked in heard] == [
        ("Reads digits.", "ada@example.org"), ("", ""), ("", ""), ("", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("proven", [OTHER, ""])
def test_where_only_some_hosts_are_helped_a_matchmaker_cannot_send_us_to_others(
    tmp_path: Path, proven: str
) -> None:
    agreed, why = visited(tmp_path, proven, "", only=frozenset({KEY}))
    assert not agreed
    assert "not one of the hosts" in why
    assert visited(tmp_path, KEY, KEY, only=frozenset({KEY}))[0]


def test_the_matchmaker_is_told_what_is_offered_and_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    door = Door(monkeypatch, tmp_path, DONE)
    link = "https://match.example.org/j/K7Q-2MP"
    settings = Settings(home=tmp_path, causes="climate", only_causes=True, most_download_mb=7)
    asyncio.run(door.work(serve.Options(target=link, hosts=(KEY,)), settings))
    assert door.asked["url"] == "https://match.example.org"
    assert door.asked["key"].id == guest("ada").id
    assert door.asked["wants"] == Wants(
        job="K7Q-2MP", hosts=frozenset({KEY}), causes=("climate",), only_causes=True
    )
    assert door.asked["machine"].most_download_mb == 7
    assert door.asked["machine"].gflops > 0
    assert door.introductions == ["the first"]


def test_causes_of_the_command_line_take_the_place_of_the_settings(tmp_path: Path) -> None:
    options = serve.Options(target=None, causes=("games", "a, b"))
    settings = Settings(home=tmp_path, causes="climate")
    assert serve.wanted(target.read(None), options, settings).causes == ("games", "a, b")


def test_an_address_is_no_wish(tmp_path: Path) -> None:
    goal, settings = target.read("host:1"), Settings(home=tmp_path, only_causes=True)
    assert serve.wanted(goal, serve.Options(target="host:1"), settings) == ANYONE
    for options in (
        serve.Options(target="host:1", causes=("climate",)),
        serve.Options(target="host:1", hosts=(KEY,)),
    ):
        with pytest.raises(TargetError, match="no matchmaker is asked"):
            serve.wanted(goal, options, settings)


def test_hosts_that_the_owner_trusts(tmp_path: Path) -> None:
    KnownHosts(tmp_path).set(OTHER, "agreed", name="", now=1.0)
    settings = Settings(home=tmp_path, trusted_hosts=KEY, trusted_only=True)
    goal = target.read(None)
    assert serve.wanted(goal, serve.Options(target=None), settings).hosts == {KEY, OTHER}
    only = serve.Options(target=None, hosts=(KEY.upper(),))
    assert serve.wanted(goal, only, settings).hosts == {KEY}
    with pytest.raises(TargetError, match="not a host's key"):
        serve.wanted(goal, serve.Options(target=None, hosts=("nobody",)), settings)


@pytest.mark.parametrize("named", [None, "small-1"])
def test_when_its_hours_are_over_it_rests_and_waits_for_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str | None
) -> None:
    """In virtual time: the hours end at 01:00, long before the job does."""
    rested = Outcome(reason="your hours are over", left=True, samples=5, credit=None, code=CODE)
    finished = Outcome(reason="done", left=False, samples=1, credit=1.0, code=CODE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(serve.time, "time", lambda: loop.time() % 86_400)
        monkeypatch.setattr(searching_jobs, "machine", lambda *_, **__: NIGHT)
        monkeypatch.setattr(serve.asyncio, "to_thread", _at_once)
        door = Door(monkeypatch, tmp_path, rested, finished)
        leaving = asyncio.Event()
        work_for, rest = door.agent.work_for, door.agent.rest

        async def long(*where: object, **how: Any) -> Outcome:
            if len(door.answers) == 2:
                await leaving.wait()
                assert 3600 <= loop.time() < 3700
            answer: Outcome = await work_for(*where, **how)
            return answer

        def left(why: str) -> None:
            rest(why)
            leaving.set()

        door.agent.work_for, door.agent.rest = long, left
        await door.work(serve.Options(target=named, once=True))
        assert door.rested == 1
        assert door.outcomes == [rested, finished], "once: a rest is not the end of a job"
        wanted = None if named is None else Wants(job=named)
        assert door.presence.wanted == [wanted]
        assert [event.text for event in door.events] == [
            "Matched with “Small”.", "Your hours are over: left politely.", "Matched with “Small”.",
        ]  # fmt: skip

    run_virtual(main())


NIGHT = Machine(hours=Hours(start=1380, end=60))


async def _at_once(work: Callable[..., Any], *what: Any, **how: Any) -> Any:
    return work(*what, **how)


def test_a_job_that_ends_with_the_hours_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody waits for it to begin again."""
    finished = Outcome(reason="done", left=False, samples=1, credit=1.0, code=CODE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(serve.time, "time", lambda: loop.time() % 86_400)
        monkeypatch.setattr(searching_jobs, "machine", lambda *_, **__: NIGHT)
        monkeypatch.setattr(serve.asyncio, "to_thread", _at_once)
        door = Door(monkeypatch, tmp_path, finished)
        work_for = door.agent.work_for

        async def long(*where: object, **how: Any) -> Outcome:
            await asyncio.sleep(3700)
            answer: Outcome = await work_for(*where, **how)
            return answer

        door.agent.work_for = long
        await door.work(serve.Options(target="small-1"))
        assert (door.rested, door.outcomes) == (1, [finished])

    run_virtual(main())


def test_why_we_wait_is_told_by_the_owners_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(searching_jobs, "utc_offset_s", lambda now: -5 * 3600.0)
    door = Door(monkeypatch, tmp_path, DONE)
    asyncio.run(door.work(serve.Options(target=None)))
    door.asked["on_waiting"]("waiting: your hours begin at 08:00 UTC")
    assert door.events[-1].text == "waiting: your hours begin at 03:00"


def test_who_is_turned_away_while_it_works_is_told_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    door = Door(monkeypatch, tmp_path, DONE)
    work_for = door.agent.work_for

    async def meanwhile(*where: object, **how: Any) -> Outcome:
        door.asked["on_turned_away"](TurnedAway("Forgotten.", advice="Come again."))
        answer: Outcome = await work_for(*where, **how)
        return answer

    door.agent.work_for = meanwhile
    asyncio.run(door.work(serve.Options(target=None)))
    told = (
        "The matchmaker has turned us away: [CG506] Forgotten. Come again. The job at hand goes on."
    )
    assert door.troubles == [told]
    assert door.outcomes == [DONE]
    door.asked["on_turned_away"](TurnedAway("Again."))
    assert door.troubles == [told], "who waits hears it as an error"


@pytest.mark.parametrize(
    ("named", "settings", "told"),
    [
        (None, {}, "That is the default address"),
        (None, {"matchmaker": "http://127.0.0.1:1"}, "Check --matchmaker or the setting"),
        ("http://127.0.0.1:1/j/K7Q-2MP", {}, "Check the link"),
    ],
)
def test_where_nobody_answers_the_advice_fits(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    named: str | None,
    settings: dict[str, str],
    told: str,
) -> None:
    door = Door(monkeypatch, tmp_path)

    async def nobody(*what: object, **how: object) -> None:
        raise Unreachable("Nobody answers.", advice=web.ADVICE)

    monkeypatch.setattr(searching_jobs, "wait_for_job", nobody)
    with pytest.raises(Unreachable) as refused:
        asyncio.run(
            door.work(
                serve.Options(target=named),
                Settings(home=tmp_path, **settings),  # type: ignore[arg-type]
            )
        )
    assert refused.value.advice.startswith(told)


def test_the_last_word_on_a_gift_is_waited_for_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host reports as it says good-bye: by another way, so perhaps a moment later."""
    finished = Outcome(reason="done", left=False, samples=10, credit=20.0, code=CODE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(serve.asyncio, "to_thread", _at_once)
        for late_s, ended_at in ((0.3, 0.3), (5.0, 1.0)):
            began = loop.time()
            door = Door(monkeypatch, tmp_path, finished)
            door.tally.begin(JobId("small-1"), "Small", work=2.0)
            door.tally.computed(10)
            loop.call_later(late_s, lambda d=door: d.asked["on_credit"]("small-1", GIFT))
            await door.work(serve.Options(target=None, once=True))
            assert loop.time() - began == pytest.approx(ended_at, abs=0.01)
            await asyncio.sleep(5.0)

    run_virtual(main())
    lines = [entry.words for entry in Reader(tmp_path).all() if entry.what == "credit"]
    assert lines == ["You gave 10 samples to “Small”, countersigned."] * 2


GIFT = Gift(units=1, samples=10, flop=20.0)
