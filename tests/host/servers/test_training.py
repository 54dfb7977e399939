"""A training whose parameters lie on servers: it stands still while one is away, and goes back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from crowdgrad.domain.work import UnitId, Update, Version, VolunteerId
from crowdgrad.errors import ConnectionLost
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.training import STANDS_STILL, Training
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small
from tests.host.servers.town import BEGIN, Town, Volunteer, gradient, in_town

SPEC = small.spec(size=8)


def training_in(town: Town) -> Training:
    recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=1)
    return Training(
        job=small.job(recipe=recipe),
        spec=SPEC,
        manifest=small.manifest()[0],
        initial=np.zeros(8, np.float32),
        recipe=recipe,
        lease_s=small.LEASE_S,
        hold=lambda initial, rule, version: town.parameters,
    )


async def one_unit(training: Training, account: Contribution, person: Volunteer) -> str:
    """A unit from its grant to its verdict."""
    parameters = training.parameters
    granted, why = training.lease(0.0, account, (), parameters.version)
    assert granted is not None, why
    samples = training.book.samples(granted.unit)
    update = Update(
        unit=granted.unit.id, base=granted.base, samples=samples, loss=1.0, metrics={},
        compute_s=0.1,
    )  # fmt: skip
    await person.push(granted.unit.id, gradient(SPEC, granted.unit.id), granted.base)
    received = await parameters.received(account.volunteer.id, update, memoryview(b""))
    try:
        return await training.take(0.0, account, update, received)
    finally:
        parameters.let_go(received)


def test_units_are_done_and_a_lost_server_costs_only_what_came_since() -> None:
    async def test(town: Town) -> None:
        training = training_in(town)
        account = training.join(0.0, small.volunteer("ada"), own=False)
        ada, rate = await town.volunteer("ada"), training.state.rate
        assert await one_unit(training, account, ada) == "accepted"
        assert training.parameters.version == BEGIN.next()
        await town.stop_server(1)
        granted, why = training.lease(0.0, account, (), training.parameters.version)
        assert granted is None
        assert "parameter server 2 is away" in why
        await training.tick(0.1)
        assert training.state.warning.startswith(STANDS_STILL)
        await training.numbers_lost(town.lost[0])
        assert training.parameters.version == Version(incarnation=1, count=0)
        assert training.parameters.away
        await town.start_server(1)
        await asyncio.sleep(6.0)
        await training.tick(0.2)
        assert (training.state.warning, training.state.setbacks) == ("", 0)
        assert training.state.rate == rate
        assert "was lost" in training.state.notice
        assert account.failures == 0
        ada.go()
        training.leave(VolunteerId("ada"), "its connection was lost", 0.2)
        account = training.join(0.3, small.volunteer("ada"), own=False)
        back = await Volunteer.enter(town, "ada")
        assert await one_unit(training, account, back) == "accepted"
        assert training.book.done_batches == 1
        assert account.units == 2  # credit is accepted work, also what had to be done again

    in_town(SPEC, 2, test)


def test_an_update_of_somebody_who_has_gone_is_not_waited_for() -> None:
    async def test(town: Town) -> None:
        training = training_in(town)
        account = training.join(0.0, small.volunteer("ada"), own=False)
        granted, _ = training.lease(0.0, account, (), training.parameters.version)
        assert granted is not None
        training.leave(VolunteerId("ada"), "gone", 0.1)
        update = town.update(UnitId(granted.unit.id), granted.base)
        with pytest.raises(ConnectionLost):
            await training.parameters.received(VolunteerId("ada"), update, memoryview(b""))

    in_town(SPEC, 2, test)


def test_the_result_without_servers_is_the_last_good_one() -> None:
    async def test(town: Town) -> None:
        training = training_in(town)
        await town.stop_server(0)
        assert (await training.result()).tobytes() == np.zeros(8, np.float32).tobytes()

    in_town(SPEC, 2, test)
