"""The hot path and the long way come to the same; what is not simple goes the long way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import UnitId
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.updates import Updates
from crowdgrad.net.messages import Exchange, Grant, Wait
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from tests.host import small
from tests.host.house import SIZE as LARGE
from tests.host.house import House, Person, in_house

SIZE = 5
RECIPES: tuple[Recipe, ...] = (
    AsyncSGD(lr=0.01, batch_size=10, overlap=0),
    AsyncSGD(lr=0.01, batch_size=10, overlap=1, rule="adam", publish_every=3),  # type: ignore[arg-type]
    AsyncSGD(lr=0.01, batch_size=10, overlap=1, codec="fp16"),
    Crowd(batch_size=10, max_staleness=1),
    DCASGD(batch_size=10),
    Downpour(batch_size=10, push_every=1, fetch_every=2, warm_start_batches=2),
    Synchronous(batch_size=10),
)
MOVES = ("work", "twice", "not finite", "infinite loss", "wrong samples", "old base", "unknown")


async def move(person: Person, how: str) -> str:
    """One exchange, more or less honest; what it was answered."""
    was = person.update
    if was is not None and how == "wrong samples":
        person.update = replace(was, samples=was.samples + 1)
    elif was is not None and how == "infinite loss":
        person.update = replace(was, loss=float("inf"))
    elif was is not None and how == "old base":
        person.update = replace(was, base=was.base.next())
    elif was is not None and how == "unknown":
        person.update = replace(was, unit=UnitId(10_000))
    answer = await (bad(person) if how == "not finite" else person.exchange())
    if how == "twice" and was is not None and isinstance(answer, Grant):
        again, person.update = person.update, was
        second = await person.exchange()
        person.update = again if isinstance(second, Wait) else person.update
        return f"{answer.verdict} {second.verdict}"
    return f"{type(answer).__name__} {answer.verdict}"


async def bad(person: Person) -> Grant | Wait:
    """An exchange with one number too large for anything."""
    numbers, exchange = np.ones(SIZE, np.float32), person.talk.exchange
    numbers[-1] = np.inf

    async def spoilt(ask: Exchange, payload: Any, into: Any) -> Grant | Wait:
        plain = len(payload) == 4 * SIZE
        coded = numbers if plain else numbers.astype(np.float16)
        return await exchange(ask, as_bytes(coded) if len(payload) else b"", into)

    person.talk.exchange = spoilt  # type: ignore[method-assign, assignment]
    try:
        return await person.exchange()
    finally:
        person.talk.exchange = exchange  # type: ignore[method-assign]


def story(recipe: Recipe, moves: list[tuple[int, str]], *, at_once: bool) -> tuple[object, ...]:
    """Everything that can be seen of a job after these moves."""
    told: list[object] = []

    async def test(house: House) -> None:
        assert isinstance(house.training.parameters, Parameters)
        house.training.parameters._small = at_once
        people = [await house.connect() for _ in range(3)]
        for who, how in moves:
            told.append(await move(people[who], how))
            await asyncio.sleep(0.01)
        training = house.training
        told.append((await training.parameters.copy())[0].tolist())
        told.append(training.parameters.version)
        told.append([
            (a.units, a.samples, dict(a.refused), dict(a.ignored_for), a.staleness_sum, a.unapplied,
             a.unit_s, a.batch_s, a.times.compute_s, a.times.work_s, a.times.wait_s)
            for a in (training.ledger[person.name] for person in people)
        ])  # fmt: skip
        told.append((training.book.done_batches, training.book.leased, training.state.train_loss))
        told.append(sorted(training.state.staleness.items()))
        assert training.parameters.pool.taken == training.parameters.pinned

    in_house(test, recipe=recipe, size=SIZE, epochs=3)
    return tuple(told)


@settings(max_examples=60, deadline=None)
@given(
    recipe=st.sampled_from(RECIPES),
    moves=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(MOVES)), max_size=14),
)
def test_both_ways_come_to_the_same(recipe: Recipe, moves: list[tuple[int, str]]) -> None:
    assert story(recipe, moves, at_once=True) == story(recipe, moves, at_once=False)


@pytest.mark.parametrize("recipe", RECIPES[:5], ids=lambda recipe: f"{recipe.name} {recipe.codec}")
def test_honest_work_goes_the_short_way(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    settled, settle = [], Updates.settle

    def counted(self: Updates, now: float, account: Any, taken: Any) -> None:
        settled.append(taken.update.unit)
        settle(self, now, account, taken)

    monkeypatch.setattr(Updates, "settle", counted)
    story(recipe, [(0, "work")] * 6, at_once=True)
    assert len(settled) == 5, "all but the first question, which brings nothing"


def test_an_error_in_the_middle_ends_the_job_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: Parameters, *args: Any, **more: Any) -> int:
        raise ZeroDivisionError("a planted one")

    monkeypatch.setattr(Parameters, "apply_at_once", breaks)

    async def test(house: House) -> None:
        person = await house.connect()
        await person.exchange()
        with pytest.raises(Exception, match="went wrong"):
            await person.exchange()
        assert house.training.course.ending is not None
        assert house.training.course.ending.state == "failed"

    in_house(test, size=small.SIZE)


def test_who_does_not_read_gets_its_answer_whole_and_keeps_nobody_waiting() -> None:
    """The state goes on elsewhere while the slow one still receives what it was."""

    async def test(house: House) -> None:
        slow, quick = await house.connect(), await house.connect()
        await slow.exchange()
        await quick.exchange()
        slow.connection._pause()  # its side reads no more
        begun = asyncio.create_task(slow.exchange())
        await asyncio.sleep(0.1)
        sent = house.training.parameters.version
        for _ in range(3):
            assert (await quick.exchange()).verdict == "accepted"
        assert house.training.parameters.pinned == 1
        slow.connection._resume()
        answer = await begun
        assert isinstance(answer, Grant)
        assert answer.base == sent
        await asyncio.sleep(0.1)
        assert house.training.parameters.pinned == house.training.parameters.pool.taken == 0

    in_house(test, size=small.SIZE)


@pytest.mark.parametrize("size", [small.SIZE, LARGE], ids=["no places", "places"])
def test_an_upload_that_breaks_off_costs_no_buffer_for_good(size: int) -> None:
    async def test(house: House) -> None:
        pool, honest = house.training.parameters.pool, await house.connect()
        await honest.exchange()
        for _ in range(10):
            person = await house.connect()
            await person.exchange()
            await person.begin_upload(8)
            person.connection.close()
            await asyncio.sleep(0.1)
        assert pool.taken == 0
        for _ in range(2):
            assert (await honest.exchange()).verdict == "accepted"
        assert pool.taken == 0
        assert pool.spare > 0

    in_house(test, size=size, epochs=20)
