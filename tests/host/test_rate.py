"""Another learning rate at the owner's wish: at once, with the schedule, and in checkpoints."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from crowdgrad.host.keeping.checkpoint_checks import contradiction
from crowdgrad.host.remote.control import Control
from crowdgrad.host.telling.metrics import MetricsLog
from crowdgrad.host.telling.taking import take_status
from crowdgrad.host.training import Training
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small


def control(training: Training) -> Control:
    return Control(training, lambda: 1.0, asyncio.Event())


def test_it_is_so_at_once_for_the_host_and_for_replicas() -> None:
    async def scenario() -> None:
        training = small.training()
        before = training.state.rate
        answer = control(training).rate(before / 4)
        assert (answer.changed, answer.holds) == (True, True)
        assert training.state.rate == pytest.approx(before / 4)
        assert training.state.local_rate == pytest.approx(before / 4)
        again = control(training).rate(before / 4)
        assert (again.changed, again.holds) == (False, True)
        assert "already" in again.reason

    asyncio.run(scenario())


def test_a_setback_halves_it_as_well() -> None:
    async def scenario() -> None:
        training = small.training()
        control(training).rate(0.2)
        training.state.setbacks += 1
        assert training.state.rate == pytest.approx(0.1)
        control(training).rate(0.2)
        assert training.state.rate == pytest.approx(0.2)

    asyncio.run(scenario())


def test_the_schedule_goes_on_from_there() -> None:
    async def scenario() -> None:
        recipe = AsyncSGD(lr=0.5, batch_size=10, schedule=Schedule(shape="cosine"))
        training = small.training(recipe=recipe)
        control(training).rate(0.1)
        assert training.state.rate == pytest.approx(0.1)
        assert training.state.rate_factor == pytest.approx(0.2)

    asyncio.run(scenario())


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    async def scenario() -> None:
        training = small.training()
        before = training.state.rate
        with pytest.raises(ValueError, match="times away"):
            control(training).rate(1e-9)
        assert training.state.rate == before

    asyncio.run(scenario())


def test_when_it_is_over_nothing_learns_at_another_rate() -> None:
    async def scenario() -> None:
        training = small.training()
        before = training.state.rate
        training.stop("enough")
        answer = control(training).rate(0.01)
        assert (answer.changed, answer.holds) == (False, False)
        assert "enough" in answer.reason
        assert training.state.rate == before

    asyncio.run(scenario())


def test_a_checkpoint_keeps_it() -> None:
    async def scenario() -> None:
        training = small.training()
        control(training).rate(0.125)
        kept = await training.checkpoint(1.0)
        another = small.training()
        await another.resume(0.0, kept, 1)
        assert another.state.rate == pytest.approx(0.125)
        assert contradiction(kept) == ""
        assert "multiplied" in contradiction(replace(kept, rate_factor=0.0))

    asyncio.run(scenario())


def test_the_metrics_say_it_once() -> None:
    async def scenario() -> None:
        lines: list[dict[str, object]] = []
        log, training = MetricsLog(lines.append, wall=lambda: 0.0), small.training()
        log.note(0.0, take_status(training, 0.0))
        control(training).rate(0.25)
        for now in (0.1, 0.2):
            log.note(now, take_status(training, now))
        (told,) = [line for line in lines if line["kind"] == "rate"]
        assert (told["learning_rate"], told["rate_factor"]) == (0.25, 0.5)

    asyncio.run(scenario())
