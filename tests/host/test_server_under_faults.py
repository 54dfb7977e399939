"""The real server and the real messages, over a network that loses, doubles and delays, in virtual
time: no unit is counted twice, every lease ends, versions only grow, and the job gets done."""

from __future__ import annotations

import asyncio
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import Update, Version
from crowdgrad.errors import PeerError, Unreachable
from crowdgrad.host.server import Server
from crowdgrad.host.training import Training
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant, Heartbeat, Message, Wait
from crowdgrad.net.transport.inproc import InprocNetwork, Route
from crowdgrad.numerics.vectors import Vector, as_bytes
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small
from tests.virtual_time import run_virtual

SAMPLES = {0: 8, 1: 8, 2: 9, 3: 10, 4: 10}
ADDRESS = ("host", 1)
EPOCHS = 3


class Remembering:
    """A rule that writes down whose updates it applied: each vector carries its unit's number."""

    def __init__(self) -> None:
        self.applied: list[int] = []

    def apply(self, parameters_D: Vector, update_D: Vector, *, staleness: int) -> None:
        assert staleness >= 0
        self.applied.append(int(update_D[0]))


class Scripted:
    """A volunteer without a trainer that meets every kind of misfortune its dice show."""

    def __init__(self, network: InprocNetwork, dice: random.Random, number: int) -> None:
        self.network = network
        self.dice = dice
        self.identity = guest()
        self.me = small.volunteer(f"v{number}")
        self.versions: list[Version] = []
        object.__setattr__(self.me, "id", self.identity.id)

    async def live(self) -> None:
        while True:
            try:
                await self.one_connection()
            except (PeerError, Unreachable):
                await asyncio.sleep(self.dice.uniform(0.1, 3.0))

    async def one_connection(self) -> None:
        connection = await self.network.connect(*ADDRESS, there=self.route(), back=self.route())
        talk = Conversation(connection)
        listening = None
        try:
            await talk.join(self.me, self.identity)
            listening = asyncio.create_task(talk.run(beat_s=2.0, silence_s=8.0))
            self.versions.append(Version(incarnation=0, count=0))
            update = None
            while not listening.done():
                update = await self.exchange(talk, update)
        finally:
            connection.close()
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def exchange(self, talk: Conversation, update: Update | None) -> Update | None:
        """One round; the update returned is sent next, or again where the answer was lost."""
        into = np.empty(small.SIZE, np.float32)
        vector = np.full(small.SIZE, 0 if update is None else update.unit, np.float32)
        payload = as_bytes(vector) if update is not None else b""
        try:
            async with asyncio.timeout(6.0):
                answer = await talk.exchange(Exchange(update=update), payload, as_bytes(into))
        except TimeoutError:
            talk.connection.close()
            return update
        if isinstance(answer, Wait):
            await asyncio.sleep(answer.seconds)
            return None
        assert isinstance(answer, Grant)
        assert answer.base.count >= self.versions[-1].count, "versions only grow"
        self.versions[-1] = answer.base
        await self.compute()
        if self.dice.random() < 0.1 and update is not None:
            return update  # say the old one again
        return Update(
            unit=answer.unit.id,
            base=answer.base,
            samples=SAMPLES[answer.unit.first_batch],
            loss=1.0,
            metrics={},
            compute_s=0.1,
        )

    async def compute(self) -> None:
        """Usually quick, sometimes longer than the lease."""
        await asyncio.sleep(self.dice.choice([0.01, 0.1, 0.1, 1.0, 1.5 * small.LEASE_S]))

    def route(self) -> Route:
        dice, last = self.dice, 0.0
        lossy = dice.choice([0.0, 0.02, 0.1])

        def carry(message: Message) -> tuple[float, ...]:
            nonlocal last
            if dice.random() < lossy:
                return ()
            now = asyncio.get_running_loop().time()
            last = max(last, now + dice.choice([0.0, 0.0, 0.3, 2.0]))  # a carrier keeps the order
            twice = isinstance(message, Exchange | Heartbeat) and dice.random() < 0.05
            return (last - now,) * (2 if twice else 1)

        return carry


async def whole_job(seed: int, volunteers: int) -> tuple[Training, Remembering]:
    dice = random.Random(seed)
    data, blobs = small.manifest(validation=False, test=False)
    rule = Remembering()
    job = small.job(epochs=EPOCHS, of=data)
    training = small.training(rule=rule, data=data, the_job=job)
    server = Server(
        training,
        {**blobs, job.program: b"program", job.manifest: b"manifest"},
        token="secret",
        max_volunteers=100,
        heartbeat_s=2.0,
        silence_s=8.0,
        clock=asyncio.get_running_loop().time,
    )
    network = InprocNetwork()
    await network.listen(*ADDRESS, server.serve)
    people = [Scripted(network, random.Random(dice.random()), n) for n in range(volunteers)]
    tasks = [asyncio.create_task(person.live()) for person in people]
    try:
        while training.phase != "over":
            await training.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.2)
            for task in tasks:
                if task.done():
                    task.result()  # a volunteer's assertion failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return training, rule


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), volunteers=st.integers(1, 5))
def test_whatever_happens_every_unit_counts_once(seed: int, volunteers: int) -> None:
    training, rule = run_virtual(whole_job(seed, volunteers))
    units = small.TRAIN_BATCHES * EPOCHS
    aside = {entry.unit.id for entry in training.book.set_aside}
    assert sorted([*rule.applied, *aside]) == list(range(units))
    assert training.parameters.version.count == len(rule.applied)
    assert training.ledger.total_updates == len(rule.applied) == training.book.done_units
    assert training.book.leased == 0
    credited = sum(account.units for account in training.ledger.everyone())
    assert credited == len(rule.applied)
