"""From a volunteer's lane through host and servers and back: as if there were no servers.

The real host, real servers and the real conversations of a volunteer, in one process and in virtual
time. What a volunteer sends depends on every number it has received, so one stale or misplaced word
would change everything that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.work import Update, VolunteerId
from crowdgrad.host.server import Server
from crowdgrad.host.servers import proofs
from crowdgrad.host.training import Training
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant, Wait
from crowdgrad.net.transport.inproc import InprocNetwork
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.rules import Momentum
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from crowdgrad.volunteer.conversation import Conversation, Reach
from crowdgrad.volunteer.parts import parts_of
from crowdgrad.volunteer.servers import reached
from tests.host import small
from tests.host.people import SAMPLES
from tests.host.servers.town import JOB, SECRET, Town, begins
from tests.virtual_time import run_virtual
from tests.volunteer.server_house import as_it_is

SPEC = small.spec(size=11)
EPOCHS = 3
BATCHES = EPOCHS * small.TRAIN_BATCHES
RECIPES: dict[str, Recipe] = {
    "lock-step": AsyncSGD(lr=0.05, batch_size=10, overlap=0),
    "momentum": AsyncSGD(lr=0.05, batch_size=10, overlap=0, rule=Momentum()),
    "rarely": AsyncSGD(lr=0.05, batch_size=10, overlap=0, publish_every=3),
    "half": AsyncSGD(lr=0.05, batch_size=10, overlap=0, codec="fp16"),
    "chains": Downpour(batch_size=10, push_every=1, fetch_every=3, overlap=0),
    "fetches": Downpour(batch_size=10, push_every=2, fetch_every=1, overlap=0),
    "delay": DCASGD(lr=0.05, batch_size=10, overlap=0),
    "rounds": Synchronous(lr=0.05, batch_size=10),
    "weights": WeightAveraging(batch_size=10, batches_per_unit=2, overlap=0),
}


class House:
    """A host that keeps the parameters itself, or leaves them to so many servers."""

    def __init__(self, recipe: Recipe, servers: int) -> None:
        data, blobs = small.manifest(validation=False, test=False)
        job = small.job(epochs=EPOCHS, of=data, recipe=recipe)
        self.town: Town | None = None
        hold = {}
        if servers:
            town = self.town = Town(
                SPEC,
                servers,
                rule=recipe.server_rule(),
                serving=recipe.serving(),
                local=recipe.local(),
            )
            hold = {"hold": lambda initial, rule, version: town.parameters}
        self.training = Training(
            job=job,
            spec=SPEC,
            manifest=data,
            initial=begins(SPEC),
            recipe=recipe,
            lease_s=small.LEASE_S,
            **hold,  # type: ignore[arg-type]
        )
        self.server = Server(
            self.training,
            {**blobs, job.program: b"p", job.manifest: b"m"},
            token="",
            max_volunteers=9,
            heartbeat_s=2.0,
            silence_s=10.0,
            clock=asyncio.get_running_loop().time,
            servers_for=self._places,
        )
        self.network = self.town.network if self.town is not None else InprocNetwork()

    def _places(self, who: VolunteerId) -> tuple[ServerPlace, ...]:
        if self.town is None:
            return ()
        admission = self.town.parameters.admission_of(who)
        return tuple(
            ServerPlace(
                address=f"server:{number + 1}",
                token=proofs.token(SECRET, JOB, who, admission),
                admission=admission,
                start=part.start,
                stop=part.stop,
                update_stop=part.update_stop,
            )
            for number, part in enumerate(self.town.parameters.crew.parts)
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[House]:
        if self.town is not None:
            await self.town.open()
        await self.network.listen("host", 1, self.server.serve)
        ticking = asyncio.create_task(self._tick())
        try:
            yield self
        finally:
            ticking.cancel()
            await self.server.farewell("over")
            if self.town is not None:
                await self.town.close()

    async def _tick(self) -> None:
        while True:
            await self.training.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.1)

    @property
    def done(self) -> int:
        return self.training.book.done_batches


class Person:
    """A volunteer without a trainer, in lock-step; its replica is real enough."""

    def __init__(self, house: House) -> None:
        local = house.training.job.local
        self._house = house
        self._every = local.fetch_every
        self._returns = local.returns
        self._packing = Packing(local.codec, SPEC.size)
        self._room = memoryview(bytearray(self._packing.bytes(SPEC.state_words)))
        self._replica: Vector = np.zeros(SPEC.size, np.float32)
        self.verdicts: list[str] = []

    async def live(self) -> None:
        identity = guest("the same every time")
        me = replace(small.volunteer("ada"), id=identity.id)
        connection = await self._house.network.connect("host", 1)
        talk = Conversation(connection)
        admit = await talk.join(me, identity)
        assert bool(admit.servers) == (self._house.town is not None)
        codec = admit.job.local.codec
        parts = parts_of(admit.servers, SPEC, codec, host="h") if admit.servers else ()
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(talk.run(beat_s=2.0, silence_s=10.0))
            connect = self._house.network.dial
            async with reached(
                talk, admit, parts, me, connect=connect, resolve=as_it_is, bases={}
            ) as lane_of:
                await self._go_round(lane_of(0))
            listening.cancel()
        connection.close()

    async def _go_round(self, reach: Reach) -> None:
        update: Update | None = None
        payload = memoryview(b"")
        while self._house.done < BATCHES:
            ask = Exchange(update=update)
            answer = await reach.exchange(ask, payload, self._room, self._room)
            if update is not None:
                self.verdicts.append(answer.verdict)
            update, payload = None, memoryview(b"")
            if isinstance(answer, Wait):
                await asyncio.sleep(answer.seconds)
            else:
                update, payload = await self._compute(reach, answer)

    async def _compute(self, reach: Reach, grant: Grant) -> tuple[Update, memoryview]:
        unit = grant.unit
        total: Vector = np.zeros(SPEC.size, np.float32)
        for number in range(unit.batches):
            if number and self._every and number % self._every == 0:
                await reach.fetch(self._room)
                self._packing.decode(self._room, self._replica)
            elif not number and not grant.link:
                self._packing.decode(self._room, self._replica)
            batch = unit.epoch * small.TRAIN_BATCHES + unit.first_batch + number
            gradient = np.sin(self._replica * 3 + batch).astype(np.float32)
            total += gradient
            self._replica -= np.float32(0.01) * gradient
        numbers = range(unit.first_batch, unit.first_batch + unit.batches)
        payload = memoryview(bytearray(self._packing.bytes(SPEC.update_words)))
        self._packing.encode(self._replica if self._returns == "weights" else total, payload)
        return Update(
            unit=unit.id,
            base=grant.base,
            link=grant.link,
            samples=sum(SAMPLES[n] for n in numbers),
            loss=1.0,
            metrics={},
            compute_s=0.1,
        ), payload  # fmt: skip


def trained(recipe: Recipe, servers: int) -> tuple[Vector, list[str]]:
    async def main() -> tuple[Vector, list[str]]:
        async with asyncio.timeout(600), House(recipe, servers).open() as house:
            person = Person(house)
            await person.live()
            vector, _ = await house.training.parameters.copy()
            return vector, person.verdicts

    return run_virtual(main())


@pytest.mark.parametrize("name", RECIPES)
def test_parameters_are_the_same_to_the_bit_with_and_without_servers(name: str) -> None:
    alone, verdicts = trained(RECIPES[name], 0)
    assert set(verdicts) == {"accepted"}
    assert not np.array_equal(alone, begins(SPEC))
    for servers in (1, 3):
        vector, said = trained(RECIPES[name], servers)
        assert said == verdicts
        np.testing.assert_array_equal(vector, alone)
