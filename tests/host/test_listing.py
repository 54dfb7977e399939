"""The job at the matchmaker: what is published of it, and who is said to have given what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.domain.job import Roster
from crowdgrad.domain.matching import Gift, Requirements
from crowdgrad.domain.routes import route_of
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import JobFileError, TargetError, TurnedAway, Unreachable
from crowdgrad.host import listing, serve
from crowdgrad.host.appeal import Appeal
from crowdgrad.host.door import Door, anyone
from crowdgrad.host.folder import RESUME
from crowdgrad.host.job import Prepared
from crowdgrad.host.keeping import resume
from crowdgrad.host.listing import (
    AWAY,
    BACK,
    CREDIT_EVERY_S,
    PROGRESS_EVERY_S,
    Listing,
    gifts,
    list_job,
    look_for,
    offer_of,
)
from crowdgrad.host.members.ledger import Ledger
from crowdgrad.host.options import Here, Options
from crowdgrad.host.serve import Run
from crowdgrad.net.identity import guest
from crowdgrad.net.introduction import Introduction, write
from crowdgrad.settings import Settings
from tests.host import small
from tests.integration.conftest import digits, job_with
from tests.net.answering import Answering

__all__ = ["digits"]

KEY, MATCHMAKER = guest("host"), guest("matchmaker")


class Presence:
    """As `HostPresence`: what it was told."""

    code = "K7Q-2MP"
    link = "https://match.example.org/j/K7Q-2MP"
    matchmaker_key = MATCHMAKER.public
    roster = Roster(job=small.job().id, members=())
    failure: Exception | None = None
    connected = True

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.gifts: list[dict[VolunteerId, Gift]] = []

    def set_state(self, state: str) -> None:
        self.said.append(state)

    def set_progress(self, share: float) -> None:
        self.said.append(share)

    def credit(self, given: dict[VolunteerId, Gift]) -> None:
        self.gifts.append(dict(given))

    async def close(self) -> None:
        self.said.append("closed")


@pytest.fixture
def presence(monkeypatch: pytest.MonkeyPatch) -> Presence:
    """What publishing returns; how it was asked for is the first it was told."""
    here = Presence()

    async def publish(url: str, offer: object, **how: object) -> Presence:
        here.said.append({"url": url, "offer": offer, **how})
        return here

    monkeypatch.setattr(listing, "publish", publish)
    return here


def test_a_job_is_published_with_its_appeal_under_the_hosts_key(
    digits: Prepared, presence: Presence
) -> None:
    appeal = Appeal(description="Digits.", contact="me", requirements=Requirements(cores=2))
    job = replace(digits, appeal=appeal)
    ways = (route_of("relay:r:2"), route_of("h:1"))
    here = asyncio.run(list_job("http://m", job, ways=ways, key=KEY, members=()))
    (asked,) = presence.said
    assert asked["key"] is KEY
    assert asked["worker"].position == 0
    offer = asked["offer"]
    assert (offer.id, offer.key, offer.address) == (digits.job.id, KEY.id, "h:1")
    assert (offer.public, offer.routes) == (KEY.public.hex(), ("relay:r:2", "h:1"))
    assert (offer.description, offer.contact, offer.visibility) == ("Digits.", "me", "public")
    assert offer.requirements == Requirements(cores=2, data_mb=1), "what must be fetched is added"
    assert (here.code, here.link) == (presence.code, presence.link)
    assert here.matchmaker_key == MATCHMAKER.public


def test_what_is_fetched_is_program_manifest_and_training_data(digits: Prepared) -> None:
    blobs = digits.blobs
    train = [shard for shard in digits.manifest.shards if shard.split == "train"]
    assert 0 < len(train) < len(digits.manifest.shards)
    data = sum(len(blobs[chunk.hash]) for shard in train for chunk in shard.chunks)
    assert digits.volunteer_bytes == (
        data + len(blobs[digits.job.program]) + len(blobs[digits.job.manifest])
    )


def test_a_job_that_makes_no_sense_is_not_published(digits: Prepared) -> None:
    job = replace(digits, minimum=3, maximum=2)
    with pytest.raises(JobFileError, match="cannot be published"):
        offer_of(job, ways=(route_of("h:1"),), public=KEY.public)


def ledger() -> Ledger:
    """Worker 0, a helper, two volunteers who gave something and one who did not."""
    found = Ledger(work_per_sample=2.0)
    for name in ("worker", "local", "ada", "ben", "eve"):
        found.join(0.0, small.volunteer(name), own=name == "worker")
        if name != "eve":
            found.accept(1.0, VolunteerId(name), samples=10, staleness=0)
    found.accept(2.0, VolunteerId("ada"), samples=5, staleness=1)
    found.leave(VolunteerId("ben"), "left", 3.0)
    return found


def test_only_gifts_of_others_are_told() -> None:
    found = gifts(ledger().everyone(), ours={VolunteerId("local")})
    assert found == {
        "ada": Gift(units=2, samples=15, flop=30.0),
        "ben": Gift(units=1, samples=10, flop=20.0),
    }


@pytest.mark.parametrize(
    "link", ["", "javascript:alert(1)", "https://x/\x1b[2J", "https://x/ä", "https://" + "x" * 300]
)
def test_a_link_that_cannot_be_shown_is_none(link: str) -> None:
    presence = Presence()
    presence.link = link
    assert Listing(presence).link == ""  # type: ignore[arg-type]


def test_gifts_are_told_now_and_then() -> None:
    presence = Presence()
    here = Listing(presence)  # type: ignore[arg-type]
    given = gifts(ledger().everyone(), ours=())
    assert here.credit_due(0.0)
    here.credit(0.0, given)
    assert not here.credit_due(CREDIT_EVERY_S - 1)
    assert here.credit_due(CREDIT_EVERY_S)
    assert presence.gifts == [given]


def test_how_far_it_is_is_told_now_and_then_where_it_is_further() -> None:
    presence = Presence()
    here = Listing(presence)  # type: ignore[arg-type]
    here.progress(0.0, 0.101)
    here.progress(PROGRESS_EVERY_S, 0.109)
    assert presence.said == [0.1], "to a hundredth, and never more than there is"
    here.progress(PROGRESS_EVERY_S, 0.2)
    here.progress(PROGRESS_EVERY_S + 1, 0.3)
    assert presence.said == [0.1, 0.2]
    here.progress(2 * PROGRESS_EVERY_S, 1.0)
    assert presence.said == [0.1, 0.2, 1.0]


def test_how_far_it_came_is_told_at_the_end_however_soon_that_is() -> None:
    presence = Presence()
    here = Listing(presence)  # type: ignore[arg-type]
    here.progress(0.0, 0.97)
    here.progress(1.0, 1.0)
    here.tell("finished")
    asyncio.run(here.withdraw("finished", 1.0))
    assert presence.said == [0.97, "finished", 1.0, "closed"]


def test_that_the_matchmaker_goes_and_returns_is_said_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    presence = Presence()
    here = Listing(presence)  # type: ignore[arg-type]
    for connected in (True, False, False, True, True):
        presence.connected = connected
        here.tell("running")
    assert caplog.messages == [AWAY, BACK]
    presence.connected, presence.failure = False, TurnedAway("no more")
    here.tell("running")
    here.tell("running")
    assert len(caplog.messages) == 3, "who was turned away knows why"
    assert "no more" in caplog.messages[-1]


def test_a_matchmaker_is_looked_for_before_anything_slow() -> None:
    with Answering() as there:
        there.answers = [(200, {}, b"{}")]
        look_for(there.url)
        assert there.asked[0].path == "/healthz"
        there.answers = [(503, {"Retry-After": "5"}, b"")]
        look_for(there.url)
        there.answers = [(404, {}, b"")]
        with pytest.raises(Unreachable, match="no matchmaker is there"):
            look_for(there.url)
    with pytest.raises(Unreachable, match="Nobody answers"):
        look_for(there.url)
    with pytest.raises(TargetError, match="not the address of a matchmaker"):
        look_for("no sense")


def hosted(
    prepared: Prepared, home: Path, look: Any = lambda run: None, **options: Any
) -> tuple[Here, serve.Outcome]:
    """A host from its start to the moment when it could begin, without its workers."""

    async def main() -> tuple[Here, serve.Outcome]:
        stop, found = asyncio.Event(), []
        run = Run(prepared, Options(runs=home / "runs", **options), Settings(home=home / "home"))

        def note(here: Here) -> None:
            found.append(here)
            look(run)
            stop.set()

        outcome = await run.to_the_end(stop, started=note)
        return found[0], outcome

    return asyncio.run(main())


def test_a_published_host_lets_in_the_introduced_and_reports_at_the_end(
    digits: Prepared, presence: Presence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crowdgrad.host.workers.Workers.tend", lambda self, now: None)
    job = job_with(digits)
    ada = guest("ada")

    def look(run: Run) -> None:
        door = run._server()._admits
        assert isinstance(door, Door)
        with pytest.raises(TurnedAway, match="you bring none"):
            door(ada.id, "")
        word = Introduction(
            job=job.job.id, host=run._key.id, volunteer=ada.id, position=1,
            written_at=serve.time.time(),
        )  # fmt: skip
        door(ada.id, write(MATCHMAKER, word))
        run.training.join(0.0, replace(small.volunteer("ada"), id=ada.id), own=False)
        run.training.ledger.accept(1.0, ada.id, samples=10, staleness=0)
        door(ada.id, "")

    here, outcome = hosted(job, tmp_path, look, matchmaker="http://m")
    assert (here.code, here.admit) == (presence.code, "introduced")
    assert here.link.startswith(f"{presence.link}#{here.key}"), "it carries the key"
    assert outcome.link == here.link
    flop = digits.program.spec.work_per_sample * 10
    assert presence.gifts[-1] == {ada.id: Gift(units=1, samples=10, flop=flop)}
    assert presence.said[-2:] == ["stopped", "closed"]
    kept = resume._recall(outcome.folder / RESUME)
    assert kept is not None
    assert kept.matchmaker_key == MATCHMAKER.public.hex()
    assert kept.admit is None


@pytest.mark.parametrize("matchmaker", ["http://m", None])
def test_whoever_comes_is_let_in_where_that_is_said(
    digits: Prepared,
    presence: Presence,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    matchmaker: str | None,
) -> None:
    monkeypatch.setattr("crowdgrad.host.workers.Workers.tend", lambda self, now: None)

    def look(run: Run) -> None:
        assert run._server()._admits is anyone

    job = job_with(digits)
    if matchmaker is not None:
        job = replace(job, appeal=Appeal(admit="anyone"))
    here, _ = hosted(job, tmp_path, look, matchmaker=matchmaker)
    assert here.admit == "anyone"
    assert here.link.startswith(presence.link if matchmaker else f"crowdgrad://{here.address}/")
    assert f"#{here.key}" in here.link
