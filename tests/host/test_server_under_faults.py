"""The real server and the real messages, over a network that loses, doubles, delays and (for
some) reorders, with volunteers that vanish and a host that crashes and restarts, in virtual time.

No batch is in the parameters twice, none is lost, credit is what is in the parameters, versions
only grow, chains go on only from where they were, and the job gets done. Each update says in its
numbers which batches it stands for, and the rule writes them down in its own memory, so that what
goes back with a checkpoint is forgotten like everything else.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from crowdgrad.domain.work import Unit, Update, Version
from crowdgrad.errors import PeerError, Unreachable
from crowdgrad.host.checkpoint import Checkpoint
from crowdgrad.host.server import Server
from crowdgrad.host.training import Training
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant, Heartbeat, Message, Wait
from crowdgrad.net.transport.inproc import InprocNetwork, Route
from crowdgrad.numerics.rules.base import Memory, Step
from crowdgrad.numerics.vectors import Vector, as_bytes
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from crowdgrad.volunteer.conversation import Conversation
from tests.host import small
from tests.virtual_time import run_virtual

SAMPLES = {0: 8, 1: 8, 2: 9, 3: 10, 4: 10}
ADDRESS = ("host", 1)
EPOCHS = 3
RECIPES: dict[str, Recipe] = {
    "plain": AsyncSGD(batch_size=10, overlap=0),
    "two lanes, three batches a unit": AsyncSGD(batch_size=10, overlap=1, batches_per_unit=3),
    "chains": Downpour(batch_size=10, push_every=1, fetch_every=3, warm_start_batches=4),
    "delay compensation": DCASGD(batch_size=10, publish_every=2, half_backups=True),
    "few publications": DCASGD(batch_size=10, publish_every=8),
    "threshold": Crowd(batch_size=10, max_staleness=3, batches_per_unit=2),
    "rounds": Synchronous(batch_size=10),
    "quorum": Synchronous(batch_size=10, quorum=0.5, grace_s=0.5),
    "averaging": WeightAveraging(batch_size=10, batches_per_unit=2),
    "segments": AsyncSGD(batch_size=10, batches_per_unit=2, assignment="segments"),
}


@dataclass(frozen=True, kw_only=True)
class Remembering:
    """A rule whose memory says how often each batch of each epoch is in the parameters.

    A vector that arrives is (1 at the places of its batches…): merged rounds, which weight and
    divide, are undone by looking only at what is not zero.
    """

    name: ClassVar[str] = "remembering"
    sentence: ClassVar[str] = "It remembers."
    vectors: ClassVar[tuple[str, ...]] = ()
    needs_base: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    base_wanted: bool = False

    def step(self, parameters_D: Vector, update_D: Vector, memory: Memory, step: Step) -> None:
        assert (step.base_D is not None) == self.base_wanted
        for place in np.flatnonzero(update_D):
            key = str(int(place))
            memory.numbers[key] = memory.numbers.get(key, 0) + 1


@dataclass(frozen=True, kw_only=True)
class RememberingWithBase(Remembering):
    needs_base: ClassVar[bool] = True
    base_wanted: bool = True


SIZE = small.TRAIN_BATCHES * EPOCHS
"""One parameter for every batch of every epoch."""


def marked(unit: Unit) -> Vector:
    vector = np.zeros(SIZE, np.float32)
    start = unit.epoch * small.TRAIN_BATCHES + unit.first_batch
    vector[start : start + unit.batches] = 1.0
    return vector


@dataclass
class Hold:
    """What one lane of a volunteer is at."""

    unit: Unit | None = None
    base: Version | None = None
    chain: int = 0
    update: Update | None = None
    vector: Vector = field(default_factory=lambda: np.zeros(SIZE, np.float32))


class Scripted:
    """A volunteer without a trainer that meets every kind of misfortune its dice show."""

    def __init__(self, network: InprocNetwork, dice: random.Random, number: int) -> None:
        self.network = network
        self.dice = dice
        self.identity = guest()
        self.me = small.volunteer(f"v{number}")
        self.newest: Version | None = None
        self.hasty = dice.random() < 0.5
        self.reorders = dice.random() < 0.2
        self.holds: dict[int, Hold] = {}
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
        tasks: list[asyncio.Task[Any]] = []
        try:
            admit = await talk.join(self.me, self.identity)
            tasks.append(asyncio.create_task(talk.run(beat_s=2.0, silence_s=8.0)))
            self.newest = None
            for lane in range(admit.job.local.overlap + 1):  # with what they still have in hand
                hold = self.holds.setdefault(lane, Hold())
                tasks.append(asyncio.create_task(self.lane(talk, hold)))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            connection.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def lane(self, talk: Conversation, hold: Hold) -> None:
        while True:
            await self.exchange(talk, hold)

    async def exchange(self, talk: Conversation, hold: Hold) -> None:
        """One round; what was sent is sent again where the answer was lost."""
        into = np.empty(SIZE, np.float32)
        payload = as_bytes(hold.vector.copy()) if hold.update is not None else b""
        try:
            async with asyncio.timeout(6.0):
                answer = await talk.exchange(Exchange(update=hold.update), payload, as_bytes(into))
        except TimeoutError:
            raise PeerError("The answer was lost.") from None
        if isinstance(answer, Wait):
            hold.update = None
            await asyncio.sleep(answer.seconds)
            return
        assert isinstance(answer, Grant)
        self.look(hold, answer)
        await self.compute()
        if self.dice.random() < 0.1 and hold.update is not None:
            return  # say the old one again, and never this one
        hold.unit, hold.base = answer.unit, answer.base
        hold.vector = marked(answer.unit)
        batches = range(answer.unit.first_batch, answer.unit.first_batch + answer.unit.batches)
        hold.update = Update(
            unit=answer.unit.id,
            base=answer.base,
            samples=sum(SAMPLES[batch] for batch in batches),
            loss=1.0,
            metrics={},
            compute_s=0.1,
            link=answer.link,
        )

    def look(self, hold: Hold, grant: Grant) -> None:
        if grant.link:  # it goes on from our own last unit, from the same fetch
            assert hold.update is not None
            assert grant.verdict == "accepted"
            assert grant.base == hold.base
            assert grant.link == hold.chain + 1
        else:
            if not self.reorders:
                assert self.newest is None or grant.base >= self.newest, "versions only grow"
            self.newest = grant.base
        hold.chain = grant.link

    async def compute(self) -> None:
        """Usually quick, sometimes longer than the lease."""
        quick = [0.001, 0.01, 0.01, 0.1, 0.1] if self.hasty else [0.01, 0.1, 0.1, 1.0]
        await asyncio.sleep(self.dice.choice([*quick, 1.5 * small.LEASE_S]))

    def route(self) -> Route:
        dice, last = self.dice, 0.0
        lossy = dice.choice([0.0, 0.02, 0.1])

        def carry(message: Message) -> tuple[float, ...]:
            nonlocal last
            if dice.random() < lossy:
                return ()
            now = asyncio.get_running_loop().time()
            if self.reorders and isinstance(message, Exchange | Grant | Wait):
                return (dice.choice([0.0, 0.0, 0.3, 2.0]),)  # whichever comes first
            # A carrier keeps the order, and timers of the very same moment would not.
            last = max(last + 1e-6, now + dice.choice([0.0, 0.0, 0.3, 2.0]))
            twice = isinstance(message, Exchange | Heartbeat) and dice.random() < 0.05
            return (last - now,) * (2 if twice else 1)

        return carry


class Machine:
    """A host that crashes, forgets everything after its last checkpoint, and starts again."""

    def __init__(self, recipe: Recipe, network: InprocNetwork, dice: random.Random) -> None:
        self.recipe = recipe
        self.network = network
        self.dice = dice
        self.kept: Checkpoint | None = None
        self.crashes = 0
        self.setbacks = 0
        self.talking: set[asyncio.Task[None]] = set()
        self.errors: list[Exception] = []
        self.data, self.blobs = small.manifest(validation=False, test=False)
        self.training = self.anew()

    def anew(self) -> Training:
        rule = RememberingWithBase() if self.recipe.server_rule().needs_base else Remembering()
        job = small.job(epochs=EPOCHS, of=self.data, recipe=self.recipe)
        training = small.training(
            rule=rule, recipe=self.recipe, data=self.data, the_job=job, size=SIZE
        )
        training.parameters._do = self.slowly  # type: ignore[method-assign]
        training.parameters.finite = self.is_finite  # type: ignore[method-assign]
        return training

    async def is_finite(self, update: Vector) -> bool:
        await asyncio.sleep(self.dice.choice([0.0, 0.0, 0.001, 0.05]))
        return bool(np.isfinite(update).all())

    async def slowly(self, work: Callable[[], None]) -> None:
        """Arithmetic takes its time, as with large vectors, and others go on meanwhile."""
        await asyncio.sleep(self.dice.choice([0.0, 0.0, 0.001, 0.05, 0.5]))
        work()

    async def run(self) -> None:
        while self.training.course.phase != "over":
            server = Server(
                self.training,
                {**self.blobs, self.training.job.program: b"p", self.training.job.manifest: b"m"},
                token="secret",
                max_volunteers=100,
                heartbeat_s=2.0,
                silence_s=8.0,
                clock=asyncio.get_running_loop().time,
            )
            listener = await self.network.listen(*ADDRESS, self.serving(server.serve))
            try:
                await self.until_crash()
            finally:
                await listener.close()
                for task in self.talking:
                    task.cancel()
                await asyncio.gather(*self.talking, return_exceptions=True)
                self.talking.clear()
            if self.training.course.phase != "over":
                await self.restart()

    def serving(self, serve: Callable[..., Any]) -> Callable[..., Any]:
        async def handler(connection: Any) -> None:
            task = asyncio.create_task(serve(connection))
            self.talking.add(task)
            try:
                await task
            except asyncio.CancelledError:
                raise PeerError("The host crashed.") from None
            except PeerError:
                raise
            except Exception as error:  # it would only be logged
                self.errors.append(error)
                raise
            finally:
                self.talking.discard(task)

        return handler

    async def until_crash(self) -> None:
        while self.training.course.phase != "over":
            await self.training.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.2)
            if self.dice.random() < 0.03:
                self.kept = await self.training.checkpoint(0.0)
            if self.dice.random() < 0.005 and self.crashes < 4:
                self.crashes += 1
                return
            if self.dice.random() < 0.003 and self.setbacks < 3:
                self.setbacks += 1
                await self.training._setbacks.go_back("the loss is no longer a finite number (nan)")

    async def restart(self) -> None:
        await asyncio.sleep(self.dice.uniform(0.0, 5.0))
        incarnation = self.training.parameters.version.incarnation
        self.training = self.anew()
        if self.kept is not None:
            await self.training.resume(0.0, self.kept, incarnation + 1)
        else:  # nothing was kept: it begins from nothing, and must not be mistaken for the first
            await self.training.resume(0.0, await self.training.checkpoint(0.0), incarnation + 1)


async def whole_job(recipe: Recipe, seed: int) -> Machine:
    dice = random.Random(seed)
    network = InprocNetwork()
    host = Machine(recipe, network, dice)
    people = [Scripted(network, random.Random(dice.random()), n) for n in range(dice.randint(1, 5))]
    tasks = [asyncio.create_task(person.live()) for person in people]
    hosting = asyncio.create_task(host.run())
    try:
        await asyncio.wait([hosting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()  # a volunteer's assertion failed
        await hosting
    finally:
        for task in [hosting, *tasks]:
            task.cancel()
        await asyncio.gather(hosting, *tasks, return_exceptions=True)
    return host


def judge(host: Machine) -> None:
    if host.errors:
        raise host.errors[0]
    training = host.training
    assert training.course.ending is not None
    assert training.course.ending.state == "finished", training.course.ending.reason
    applied = {int(k): int(v) for k, v in training.parameters._memory.numbers.items()}
    aside: Counter[int] = Counter()
    for entry in training.book.set_aside:
        aside.update(np.flatnonzero(marked(entry.unit)).tolist())
    if host.recipe.serving().assignment == "leases":  # else tests/planner says what is exact
        assert set(applied.values()) <= {1}, "a batch is in the parameters twice"
        assert Counter(applied.keys()) + aside == Counter(range(SIZE)), "a batch is missing"
    assert training.book.leased == 0
    credited = sum(account.samples for account in training.ledger.everyone())
    samples = sum(n * SAMPLES[place % small.TRAIN_BATCHES] for place, n in applied.items())
    if host.setbacks == 0:  # going back takes nobody's credit away
        assert credited == samples
        assert training.book.done_units == training.ledger.total_updates
    assert credited >= samples
    if not training.turns.in_rounds and host.setbacks == host.crashes == 0:
        assert training.parameters.version.count == training.book.done_units
    backups: Any = training.parameters._backups
    assert backups is None or not backups._kept, "what nobody works from any more is kept"
    assert not training.parameters._held


def tried(name: str, seeds: range) -> None:
    for seed in seeds:
        try:
            judge(run_virtual(whole_job(RECIPES[name], seed)))
        except BaseException as error:
            error.add_note(f"recipe {name}, seed {seed}")
            raise


@pytest.mark.parametrize("name", RECIPES)
def test_whatever_happens_every_unit_counts_once(name: str) -> None:
    """A hundred and five lives of a job each: 1,050 in all."""
    tried(name, range(105))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RECIPES)
def test_the_same_five_hundred_times_each(name: str) -> None:
    tried(name, range(105, 605))
