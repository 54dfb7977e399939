"""Members who fall silent, go early, ask too much or send nonsense: nobody else is held up by it.

What becomes of the numbers when they stop being finite is in `test_sound_numbers.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdgrad.domain.work import UnitId, Update
from crowdgrad.errors import MessageError
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.members.ledger import MAX_STRANGERS, Ledger
from crowdgrad.host.server import Server
from crowdgrad.host.training import Training
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant
from crowdgrad.net.transport.inproc import InprocNetwork
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.planner.entries import STORY_KEPT
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small
from tests.host.people import (
    ONES,
    D,
    Person,
    asynchronous,
    evaluate,
    leased,
    plain_manifest,
    run,
    stage,
    updated,
    weights,
)
from tests.virtual_time import run_virtual

LEASE_S = small.LEASE_S
LONG = plain_manifest(3200)


# -- rounds -----------------------------------------------------------------------------------


def test_who_falls_silent_is_not_waited_for_until_it_asks_again() -> None:
    async def scenario() -> None:
        training, (ada, eve) = stage(Synchronous(batch_size=10), 2)
        await ada.ask(0.0)
        await eve.ask(0.0)
        await ada.push(1.0)
        await training.tick(LEASE_S)
        assert training.parameters.version.count == 1
        for _ in range(3):
            await ada.step(LEASE_S + 1.0)
        assert training.parameters.version.count == 4, "each round closed at once, without eve"
        await eve.ask(LEASE_S + 2.0)
        await ada.step(LEASE_S + 2.0)
        assert training.parameters.version.count == 4, "she is here again"
        await eve.push(LEASE_S + 3.0)
        assert training.parameters.version.count == 5

    run(scenario)


def test_who_does_not_ask_again_is_waited_for_as_long_as_a_lease() -> None:
    async def scenario() -> None:
        training, (ada, eve) = stage(Synchronous(batch_size=10), 2)
        for person in (ada, eve):
            await person.ask(0.0)
        for person in (ada, eve):
            await person.push(1.0)
        assert training.parameters.version.count == 1
        await ada.ask(10.0)
        await ada.push(15.0)
        await training.tick(10.0 + LEASE_S - 0.5)
        assert training.parameters.version.count == 1
        await training.tick(10.0 + LEASE_S)
        assert training.parameters.version.count == 2

    run(scenario)


def test_who_delivers_into_an_open_round_and_goes_is_not_forgotten() -> None:
    async def scenario() -> None:
        training, (ada, ben) = stage(Synchronous(batch_size=10), 2)
        await ada.ask()
        await ben.ask()
        assert await ben.push() == "accepted"
        training.leave(ben.account.volunteer.id, "had to go")
        for number in range(MAX_STRANGERS + 1):
            training.join(1.0, small.volunteer(f"guest{number}"), own=False)
            training.leave(small.volunteer(f"guest{number}").id, "bored")
        assert await ada.push() == "accepted"
        assert training.parameters.version.count == 1
        assert training.ledger[ben.account.volunteer.id].samples > 0
        assert training.ledger.total_updates == 2
        await ada.step(2.0)
        assert training.parameters.version.count == 2

    run(scenario)


def in_rounds(**rule: Any) -> tuple[Training, Contribution, Contribution]:
    """Ada has trained alone for a round; ada and ben are at work on the second since 50 s."""
    recipe = Synchronous(lr=0.5, batch_size=10)
    training = small.training(recipe=recipe, the_job=small.job(recipe=recipe, epochs=100, **rule))
    ada, ben = (training.join(0.0, small.volunteer(name), own=False) for name in ("ada", "ben"))
    return training, ada, ben


@pytest.mark.parametrize("end", ["time", "target", "stop"])
def test_what_was_accepted_into_an_open_round_counts_when_the_job_ends(end: str) -> None:
    async def scenario() -> None:
        training, ada, ben = in_rounds(minutes=1, target=0.9)
        unit, base = leased(training, ada, 0.0)
        await training.take(1.0, ada, updated(unit, base), ONES.copy())
        assert training.parameters.version.count == 1
        (unit, base), _ = leased(training, ada, 50.0), leased(training, ben, 50.0)
        assert await training.take(51.0, ada, updated(unit, base), ONES.copy()) == "accepted"
        assert (training.course.phase, ada.units) == ("training", 1)
        if end == "time":
            await training.tick(60.0)
        elif end == "target":
            own = training.join(52.0, small.volunteer("own"), own=True)
            await evaluate(training, own, 0.95, 52.0)
        else:
            training.stop("Ctrl-C")
            assert (await training.result()).tolist() == [-1.0] * D
        assert training.course.phase != "training"
        assert training.parameters.version.count == 2
        assert (await weights(training)).tolist() == [-1.0] * D
        assert (ada.units, ben.units) == (2, 0)
        await training.result()
        assert (await weights(training)).tolist() == [-1.0] * D, "once"

    run(scenario)


# -- sizes ------------------------------------------------------------------------------------

EIGHT = AsyncSGD(batch_size=10, batches_per_unit=8, overlap=0)


async def sizes(training: Training, people: list[Person], now: float) -> list[int]:
    await training.tick(now)
    granted = [await person.ask(now) for person in people]
    return [g.unit.batches for g in granted if g is not None]


@pytest.mark.parametrize(
    ("pushed_at", "batch_s", "batches"),
    [
        ([1.0, 1.0, 19.0], [0.1, 0.1, 0.1], [8, 8, 8]),  # one of them is far away
        ([8.0, 8.0, 0.001], [1.0, 1.0, 1e-5], [8, 8, 8]),  # one says it is a wonder
        ([1.0, 1.0, 4.0], [0.1, 0.1, 0.4], [8, 8, 2]),
    ],
)
def test_units_are_as_large_as_most_compute_them_in_the_same_time(
    pushed_at: list[float], batch_s: list[float], batches: list[int]
) -> None:
    async def scenario() -> None:
        training, people = stage(EIGHT, 3, LONG)
        for person in people:
            await person.ask(0.0)
        for person, now, seconds in zip(people, pushed_at, batch_s, strict=True):
            await person.push(now, batch_s=seconds)
        assert await sizes(training, people, 19.5) == batches

    run(scenario)


def test_nobody_computed_longer_than_we_waited() -> None:
    async def scenario() -> None:
        _, (ada,) = stage(EIGHT, 1, LONG)
        await ada.ask(0.0)
        await ada.push(4.0, batch_s=1e6)
        assert ada.account.batch_s == 0.5

    run(scenario)


def test_who_was_away_meanwhile_is_not_measured() -> None:
    async def scenario() -> None:
        training, (ada, ben) = stage(EIGHT, 2, LONG)
        await ada.ask(0.0)
        await ada.push(8.0, batch_s=1.0)
        await ben.ask(0.0)
        training.leave(ben.account.volunteer.id, "lost")
        training.join(7.9, small.volunteer("v1"), own=False)
        assert await ben.push(8.0, batch_s=1.0) == "accepted"
        assert (ben.account.batch_s, ben.account.unit_s) == (None, 0.0)
        assert await sizes(training, [ada, ben], 9.0) == [8, 8]

    run(scenario)


def test_who_is_always_too_late_is_measured_and_gets_less() -> None:
    async def scenario() -> None:
        recipe = Synchronous(batch_size=10, batches_per_unit=8, quorum=0.5, grace_s=0.0)
        training, (ada, ben, slow) = stage(recipe, 3, LONG)
        for person in (ada, ben, slow):
            await person.ask(0.0)
        for person in (ada, ben):
            await person.push(0.8, batch_s=0.1)
        assert training.parameters.version.count == 1
        late = slow.granted
        assert await slow.push(3.2, batch_s=0.4) == "too_late"
        assert slow.account.batch_s == pytest.approx(0.4)
        again = await ada.ask(4.0)  # what came too late goes to somebody else
        assert again is not None
        assert late is not None
        assert again.unit == late.unit
        assert await sizes(training, [ben, slow], 4.0) == [8, 2]

    run(scenario)


# -- the learning rate ------------------------------------------------------------------------


def test_the_rate_grows_with_those_who_helped_and_only_the_hosts() -> None:
    async def scenario() -> None:
        recipe = Synchronous(
            lr=0.1, batch_size=10, batches_per_unit=4,
            schedule=Schedule(scale_with_volunteers=True),
        )  # fmt: skip
        training, people = stage(recipe, 4, LONG)
        for person in people:
            granted = await person.ask()
            assert granted is not None
            assert granted.rate == pytest.approx(0.1)
        assert training.state.rate == pytest.approx(0.1), "they only asked"
        for person in people:
            await person.push()
        assert training.state.rate == pytest.approx(0.4)
        eve = Person(training, training.join(1.0, small.volunteer("eve"), own=False))
        granted = await eve.ask(1.0)
        assert granted is not None
        assert granted.rate == pytest.approx(0.1)
        assert training.state.rate == pytest.approx(0.4), "she only asked"

    run(scenario)


# -- fetching ---------------------------------------------------------------------------------

FETCHING = Downpour(batch_size=10, push_every=8, fetch_every=2, overlap=0)


def test_parameters_are_fetched_in_the_middle_of_a_unit_and_no_more_often() -> None:
    async def scenario() -> None:
        training, (ada, ben) = stage(FETCHING, 2, plain_manifest(80, 60), epochs=1)
        assert not training.may_fetch(ada.account), "it has no unit"
        counts = {}
        for person in (ada, ben):
            granted = await person.ask()
            assert granted is not None
            counts[granted.unit.batches] = [training.may_fetch(person.account) for _ in range(5)]
        assert counts == {8: [True] * 3 + [False] * 2, 6: [True] * 2 + [False] * 3}
        await ada.push()
        assert not training.may_fetch(ada.account)

    run(scenario)


def test_who_gave_its_unit_back_has_nothing_to_fetch_for() -> None:
    async def scenario() -> None:
        training, (ada,) = stage(FETCHING, 1)
        granted = await ada.ask()
        assert granted is not None
        assert training.may_fetch(ada.account)
        training.give_back(1.0, ada.account, granted.unit.id, "trainer died")
        assert not training.may_fetch(ada.account)

    run(scenario)


@pytest.mark.parametrize("with_a_unit", [False, True])
def test_who_fetches_for_nothing_is_told_so_and_let_go(with_a_unit: bool) -> None:
    async def scenario() -> None:
        recipe = Downpour(batch_size=10, push_every=2, fetch_every=1)
        training = small.training(recipe=recipe)
        _, blobs = small.manifest()
        server = Server(
            training, {**blobs, training.job.program: b"p", training.job.manifest: b"m"},
            token="secret", max_volunteers=9, heartbeat_s=2.0, silence_s=8.0,
            clock=asyncio.get_running_loop().time,
        )  # fmt: skip
        network = InprocNetwork()
        listener = await network.listen("host", 1, server.serve)
        identity = guest()
        talk = Conversation(await network.connect("host", 1))
        await talk.join(replace(small.volunteer("eve"), id=identity.id), identity)
        listening = asyncio.create_task(talk.run(beat_s=2.0, silence_s=8.0))
        into = as_bytes(np.empty(small.SIZE, np.float32))
        if with_a_unit:
            assert isinstance(await talk.exchange(Exchange(), b"", into), Grant)
            assert (await talk.fetch(into)).base == training.parameters.version
        with pytest.raises(MessageError, match="nothing to fetch for"):
            await talk.fetch(into)
        with pytest.raises(MessageError, match="nothing to fetch for"):
            await listening
        await talk.connection.wait_closed()
        await asyncio.sleep(1.0)
        assert not training.ledger[identity.id].connected
        await listener.close()

    run_virtual(scenario())


# -- segments ---------------------------------------------------------------------------------

SEGMENTS = AsyncSGD(batch_size=10, overlap=0, assignment="segments")


async def work_through(person: Person, now: float) -> int:
    units = 0
    while await person.ask(now):
        await person.push(now)
        units += 1
    return units


def test_who_never_asks_has_no_part_and_the_job_ends_without_it() -> None:
    async def scenario() -> None:
        training, (ada, _) = stage(SEGMENTS, 2, epochs=1)
        assert await work_through(ada, 0.0) == 32
        await training.tick(1.0)
        assert training.course.phase == "over"
        assert training.course.ending is not None
        assert training.course.ending.state == "finished"

    run(scenario)


def test_the_part_of_who_fell_silent_goes_to_the_others() -> None:
    async def scenario() -> None:
        training, (ada, ben) = stage(SEGMENTS, 2, epochs=1)
        await ben.ask(0.0)
        first = await work_through(ada, 0.0)
        assert first == 21, "two thirds, as two are at work"
        await training.tick(1.0)
        assert training.course.ending is None
        for now in range(2, int(LEASE_S) + 1):
            await training.tick(float(now))
        assert first + await work_through(ada, LEASE_S) == 32
        await training.tick(LEASE_S + 1.0)
        assert training.course.phase == "over"

    run(scenario)


# -- bounds -----------------------------------------------------------------------------------


@asynchronous
async def test_only_units_that_were_given_can_fail() -> None:
    training = small.training(the_job=small.job(epochs=50))
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    mine, _ = leased(training, eve)
    for number in range(1000):
        training.give_back(0.0, eve, UnitId(number), "I do not like it")
    assert eve.failed_units == {mine.id}


@asynchronous
async def test_whatever_somebody_sends_a_thousand_times_is_remembered_in_short() -> None:
    training = small.training(the_job=small.job(epochs=50))
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    unit, base = leased(training, eve)
    for number in range(1000):
        wrong: Update = updated(unit, base, samples=1000 + number)
        told = f"wrong_samples ({1000 + number} for {training.book.samples(unit)})"
        assert await training.take(1.0, eve, wrong, ONES.copy()) == told
    assert eve.refused == {"wrong_samples": 1000}
    entry, _ = training.book.judge(unit.id, eve.volunteer.id, base, 0)
    assert entry is not None
    assert len(entry.story) <= STORY_KEPT
    assert (entry.story[0], "1999" in entry.story[-1]) == ("leased to eve", True)


@pytest.mark.parametrize("setback", [False, True])
def test_who_is_slow_or_starts_from_what_diverged_may_still_fetch(setback: bool) -> None:
    async def scenario() -> None:
        training, (ada,) = stage(FETCHING, 1)
        await ada.ask(0.0)
        assert training.may_fetch(ada.account)
        if setback:
            await training._setbacks.go_back("the loss is no longer finite")
            assert training.state.setbacks == 1
        else:
            await training.tick(LEASE_S)
        assert [training.may_fetch(ada.account) for _ in range(3)] == [True, True, False]
        await ada.push(LEASE_S + 1.0)
        assert not training.may_fetch(ada.account)

    run(scenario)


def test_worker_0_is_one_member_whatever_key_it_comes_with() -> None:
    ledger = Ledger(10.0)
    first = ledger.join(0.0, small.volunteer("first"), own=True).volunteer.id
    ledger.leave(first, "killed")
    second = ledger.join(1.0, small.volunteer("second"), own=True).volunteer.id
    ledger.accept(1.0, first, samples=3, staleness=0)  # it was still being applied
    ledger.accept(1.0, second, samples=4, staleness=0)
    assert [(a.position, a.samples, a.units) for a in ledger.everyone()] == [(0, 7, 2)]
    assert len(ledger.snapshot().accounts) == 1
