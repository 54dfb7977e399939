"""The storm: a whole job under a seed's worth of misfortunes, and then calm weather until it ends.

Everything that happens comes from the recipe's name and the seed. Misfortunes strike at random
moments of the first seconds; after the last of them everybody who lives must be at work again, and
the job must come to its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crowdgrad.matchmaker.room import Room
from crowdgrad.simulator.chance import Dice, dice_of, others
from crowdgrad.simulator.job import RECIPES, small_job
from crowdgrad.simulator.machine import Machine
from crowdgrad.simulator.matching import VirtualMatchmaker
from crowdgrad.simulator.misfortunes import Misfortunes
from crowdgrad.simulator.monitor import Monitor
from crowdgrad.simulator.network import VirtualNetwork
from crowdgrad.simulator.people import Helper, Person, Scripted, World
from crowdgrad.simulator.story import Story, Violation
from crowdgrad.simulator.virtual_time import START_S, Deadlock, VirtualLoop, run_virtual

LEASE_S = 4.0
LIMIT_S = 3600.0
"""A job that has not ended by then never does."""
STORM_S = 10.0
STUCK_S = 60.0
"""By then whoever lives is at work again, once nothing is in its way any more."""
LOOK_S = 2.0
ROLL_CALLS = 0.25
"""How often everybody has to be back before the job may end, also where nobody moved."""
NAMES = tuple(RECIPES)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Pieces of production code to be replaced: how the simulation itself is tested."""

    machine: dict[str, Any] = field(default_factory=dict)
    room: Callable[..., Room] = Room


@dataclass(frozen=True, kw_only=True)
class Told:
    """How one life went."""

    recipe: str
    seed: int
    fingerprint: str
    """Of all that happened: the same seed gives the same."""
    virtual_s: float
    counts: Counter[str]
    violation: Violation | None
    lines: tuple[str, ...]
    """The last of the story, or all of it."""

    @property
    def replay(self) -> str:
        """What shows it again, exactly."""
        return f"crowdgrad simulate storm --recipe {self.recipe} --seed {self.seed} --trace"


def storm(recipe: str, seed: int, *, planted: Planted | None = None, trace: bool = False) -> Told:
    """One whole life. What it finds is not raised: it is `Told.violation`."""
    loop = VirtualLoop(limit_s=LIMIT_S)
    story = Story(loop, trace=trace)
    life = _Life(loop, story, recipe, dice_of(f"{recipe} {seed}"), planted or Planted())
    with _errors_heard(loop, story):
        try:
            run_virtual(life.to_the_end(), loop=loop)
        except Deadlock as error:
            story.violate("never ends", str(error))
    story.counts["torn_writes"] += life.machine.platter.torn
    return Told(
        recipe=recipe,
        seed=seed,
        fingerprint=story.fingerprint,
        virtual_s=loop.now - START_S,
        counts=story.counts,
        violation=story.violation,
        lines=tuple(story.last),
    )


class _Life:
    """The world of one life, and what befalls it."""

    def __init__(
        self, loop: VirtualLoop, story: Story, recipe: str, dice: Dice, planted: Planted
    ) -> None:
        self._loop, self._story, self._dice = loop, story, dice
        loop.thread_s = lambda: dice.choice((0.0, 0.001, 0.02, 0.2))
        job = small_job(recipe, dice.choice((2, 3)))
        network = VirtualNetwork(loop, others(dice), story.tell)
        self._matchmaker: VirtualMatchmaker | None = None
        if dice.random() < 0.6:
            self._matchmaker = VirtualMatchmaker(network, others(dice), room=planted.room)
        world = World(
            job=job,
            network=network,
            monitor=Monitor(job, story),
            story=story,
            lease_s=LEASE_S,
            matchmaker=self._matchmaker,
            host_at=lambda: self.machine.address,
        )
        self.machine = Machine(world, others(dice), **planted.machine)
        self._people = [_person(world, n, others(dice)) for n in range(dice.randint(1, 4))]
        self._misfortunes = Misfortunes(world, self.machine, self._people, others(dice))

    @property
    def _agents(self) -> list[Person]:
        """Those who must come back; on a link that loses frames nobody can promise that."""
        return [*(p for p in self._people if isinstance(p, Helper)), self.machine.worker]

    async def to_the_end(self) -> None:
        if self._matchmaker is not None:
            self._matchmaker.start()
        self.machine.start()
        for person in self._people:
            person.start()
        tasks = [
            asyncio.create_task(self._fate()),
            asyncio.create_task(self._look_after_everybody()),
            over := asyncio.create_task(self.machine.over.wait()),
        ]
        either: list[asyncio.Future[Any]] = [over, self._story.broken]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for person in (self.machine.worker, *self._people):  # so that all can unwind
            self._loop.thaw(person.node)
        self._loop.thaw(self.machine.node)

    async def _fate(self) -> None:
        """The misfortunes, one after the other."""
        count = self._dice.choice((0, 1, 2, 3, 4, 6, 8))
        for moment in sorted(self._dice.uniform(0.2, STORM_S) for _ in range(count)):
            await asyncio.sleep(max(0.0, START_S + moment - self._loop.now))
            self._misfortunes.strike()
        moved = self._story.counts["host_moves"] > 0
        if self._dice.random() < (0.7 if moved else ROLL_CALLS):
            await self._roll_call()

    async def _roll_call(self) -> None:
        """The host pauses until everybody who lives has come back."""
        await self._until(lambda: self.machine.serving)
        self._story.counts["roll_calls"] += 1
        self.machine.wish("pause")
        await self._until(lambda: all(self._at_work(person) for person in self._agents))
        self.machine.wish("go on")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 (it is a question, nobody tells us)
            await asyncio.sleep(0.5)

    async def _look_after_everybody(self) -> None:
        """Whoever lives is at work again, once nothing is in its way any more."""
        fine_at: dict[str, float] = {}
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._loop.now
            calm = now >= self._misfortunes.until and self.machine.serving
            for person in self._agents:
                since = fine_at.setdefault(person.name, now)
                if not calm or self._at_work(person):
                    fine_at[person.name] = now
                elif now - since > STUCK_S:
                    self._story.violate("stuck", f"{person.name} does not come back to work")

    def _at_work(self, person: Person) -> bool:
        training = self.machine.training
        if training is None or not self.machine.serving:
            return False
        here = training.ledger.connected()
        return any(a.volunteer.id == person.identity.id and a.asked for a in here)


def _person(world: World, number: int, dice: Dice) -> Person:
    if dice.random() < 0.3:
        return Scripted(world, f"scripted {number}", dice)
    return Helper(world, f"helper {number}", dice, matched=dice.random() < 0.7)


class _Heard(logging.Handler):
    def __init__(self, story: Story) -> None:
        super().__init__(logging.ERROR)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._story.violate("error", f"{record.getMessage()}: {error!r}")


@contextmanager
def _errors_heard(loop: VirtualLoop, story: Story) -> Iterator[None]:
    """What production code logs as an error, or lets escape, is one; all else is not printed."""

    def trouble(context: dict[str, Any]) -> None:
        story.violate("error", f"{context.get('message')}: {context.get('exception')!r}")

    loop.on_trouble = trouble
    logger, handler = logging.getLogger("crowdgrad"), _Heard(story)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
