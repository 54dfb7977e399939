"""A host and people without trainers over real conversations, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from crowdgrad.domain.work import Update, VolunteerId
from crowdgrad.host.gate import LARGE_BYTES
from crowdgrad.host.server import Server
from crowdgrad.host.training import Training
from crowdgrad.net.framing import pack
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant, Wait
from crowdgrad.net.transport.inproc import InprocConnection, InprocNetwork, Route, straight
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small
from tests.host.people import SAMPLES
from tests.virtual_time import run_virtual

SIZE = LARGE_BYTES // 4 + 1
"""Numbers of a vector that needs a place, and is still worked on without a thread."""
ADDRESS = ("host", 1)
SILENCE_S = 10.0


class House:
    """A host of a large model, its listener, and a watch on what it holds."""

    def __init__(
        self, recipe: Recipe, *, exchanges: int, epochs: int = 4, size: int = SIZE
    ) -> None:
        data, blobs = small.manifest(validation=False, test=False)
        job = small.job(epochs=epochs, of=data, recipe=recipe)
        self.training: Training = small.training(recipe=recipe, data=data, the_job=job, size=size)
        self.blobs = {**blobs, job.program: b"p", job.manifest: b"m"}
        self.server = Server(
            self.training,
            self.blobs,
            token="secret",
            max_volunteers=100,
            heartbeat_s=2.0,
            silence_s=SILENCE_S,
            clock=asyncio.get_running_loop().time,
            exchanges=exchanges,
        )
        self.network = InprocNetwork()
        self.most = 0
        self.reasons: dict[str, str] = {}

    async def open(self) -> None:
        await self.network.listen(*ADDRESS, self.server.serve)
        self._tick = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while self.training.course.phase != "over":
            await self.training.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.1)

    def slow_down(self, seconds: float) -> None:
        """Arithmetic takes its time, and whatever is made is counted."""
        pool, parameters = self.training.parameters.pool, self.training.parameters
        take = pool.take

        def count() -> None:
            held = pool.taken + pool.spare
            self.most = max(self.most, held)

        def counted(size: int) -> memoryview:
            taken = take(size)
            count()
            return taken

        async def slowly(work: Callable[[], None]) -> None:
            await asyncio.sleep(seconds)
            count()
            work()

        pool.take = counted  # type: ignore[method-assign]
        parameters._do = slowly  # type: ignore[method-assign]

    @property
    def over(self) -> bool:
        return self.training.course.phase == "over"

    async def connect(self, *, there: Route = straight, back: Route = straight) -> Person:
        return await Person.join(self, there=there, back=back)


class Person:
    """A volunteer without a trainer."""

    def __init__(self, house: House, talk: Conversation, name: VolunteerId) -> None:
        self.house = house
        self.talk = talk
        self.name = name
        self.into = np.empty(house.training.spec.size, np.float32)
        self.waits: list[str] = []
        self.update: Update | None = None

    @classmethod
    async def join(
        cls, house: House, *, there: Route = straight, back: Route = straight, identity: Any = None
    ) -> Person:
        identity = identity or guest()
        me = small.volunteer("someone")
        object.__setattr__(me, "id", identity.id)
        connection = await house.network.connect(*ADDRESS, there=there, back=back)
        talk = Conversation(connection)
        await talk.join(me, identity)
        person = cls(house, talk, identity.id)
        person.listening = asyncio.create_task(talk.run(beat_s=2.0, silence_s=SILENCE_S))
        person.listening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return person

    listening: asyncio.Task[Any]

    @property
    def state(self) -> str:
        return self.house.training.ledger[self.name].state

    @property
    def connection(self) -> InprocConnection:
        assert isinstance(self.talk.connection, InprocConnection)
        return self.talk.connection

    async def exchange(self) -> Grant | Wait:
        packing = Packing(self.house.training.job.local.codec, len(self.into))
        size = packing.bytes(len(self.into))
        payload = memoryview(bytearray(size if self.update is not None else 0))
        if len(payload):
            packing.encode(np.ones_like(self.into), payload)
        answer = await self.talk.exchange(
            Exchange(update=self.update), payload, as_bytes(self.into)[:size]
        )
        self.update = None
        if isinstance(answer, Wait):
            self.waits.append(answer.reason)
        else:
            unit = answer.unit
            numbers = range(unit.first_batch, unit.first_batch + unit.batches)
            self.update = Update(
                unit=unit.id, base=answer.base, samples=sum(SAMPLES[n] for n in numbers),
                loss=1.0, metrics={}, compute_s=0.1, link=answer.link,
            )  # fmt: skip
        return answer

    async def work(self, pause_s: float = 0.01) -> None:
        while not self.house.over:
            answer = await self.exchange()
            await asyncio.sleep(answer.seconds if isinstance(answer, Wait) else pause_s)

    async def begin_upload(self, part: int) -> None:
        """The first `part` bytes of an update, and no more."""
        assert self.update is not None
        head = pack(Exchange(update=self.update, ticket=99), 4 * len(self.into))
        assert self.connection._twin is not None
        self.connection._twin._arrive(head + bytes(part))
        await asyncio.sleep(0)


def in_house(
    test: Callable[[House], Coroutine[Any, Any, None]],
    *,
    exchanges: int = 3,
    recipe: Recipe | None = None,
    epochs: int = 4,
    size: int = SIZE,
) -> House:
    async def main() -> House:
        house = House(
            recipe or AsyncSGD(lr=0.01, batch_size=10, overlap=0),
            exchanges=exchanges,
            epochs=epochs,
            size=size,
        )
        await house.open()
        try:
            await test(house)
        finally:
            await house.server.farewell("over")
            await asyncio.sleep(0.1)
        return house

    return run_virtual(main())
