"""The host's machine: it serves, crashes at any moment, and goes on from what its disk still has.

What runs on it is the real server, training, keeper and checkpoint files, put together as
`host.serve` does. Dying takes everything but the platter; worker 0 lives and dies with its host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np

from crowdgrad.domain.job import Member
from crowdgrad.domain.matching import Offer
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, TurnedAway
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_bytes import Best
from crowdgrad.host.keeping.checkpoint_files import CheckpointFiles, Found
from crowdgrad.host.keeping.keeper import Keeper
from crowdgrad.host.looking import Looking
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.server import Server
from crowdgrad.host.training import Training
from crowdgrad.net.identity import guest
from crowdgrad.net.matchmaker import HostPresence, publish
from crowdgrad.numerics.vectors import Vector
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.disk import Mount, Platter
from crowdgrad.simulator.matching import URL
from crowdgrad.simulator.people import Helper, World
from crowdgrad.simulator.virtual_time import Node

FOLDER = Path("run/checkpoints")
NAME = "host"
TOKEN = "worker 0's secret"  # noqa: S105 (nobody is kept out with it)
TICK_S = 0.25
CHECKPOINT_S = 1.5
HEARTBEAT_S = 1.5
SILENCE_S = 4.0
RESTART_S = 2.0
"""The longest a machine usually takes to come back."""
AWAY_S = 12.0
"""… and sometimes: longer than volunteers dial."""


class WatchedFiles(CheckpointFiles):
    """The real files, under the eyes of the monitor."""

    def __init__(self, world: World, mount: Mount) -> None:
        super().__init__(FOLDER, mount)
        self._world = world

    def write(self, checkpoint: Checkpoint, best: Best | None) -> int:
        number = self._world.monitor.promises.handed(checkpoint, best)
        written = super().write(checkpoint, best)
        self._world.monitor.promises.promised(number)
        return written

    def claim(self) -> int:
        incarnation = super().claim()
        self._world.monitor.promises.claimed(incarnation)
        return incarnation


class Machine:
    def __init__(
        self,
        world: World,
        dice: Dice,
        *,
        files: Callable[[World, Mount], CheckpointFiles] = WatchedFiles,
        mount: Callable[[Platter, Dice], Mount] = Mount,
        keeper: Callable[..., Keeper] = Keeper,
    ) -> None:
        self.world = world
        self.dice = dice
        self._make_files, self._make_mount, self._make_keeper = files, mount, keeper
        self.platter = Platter()
        self.disk = mount(self.platter, dice)
        self.node = Node(NAME)
        self.address = (NAME, 1)
        self.training: Training | None = None
        self.serving = False
        self.over = asyncio.Event()
        self.worker = Helper(world, "worker 0", dice, token=TOKEN, matched=False)
        self.diverges = 0
        """How many of worker 0's next numbers are not finite."""
        self.worker.life.diverges = self._diverges
        self._wish = ""

    # -- life and death -----------------------------------------------------------------------

    def start(self) -> None:
        self.node = node = Node(NAME)
        node.offset_s = self.dice.uniform(-500, 5000)
        full, fails = self.disk.full, self.disk.fails
        self.disk = self._make_mount(self.platter, self.dice)
        self.disk.full, self.disk.fails = full, fails
        self.disk.on_death = lambda: self.die(told=False)
        node.spawn(self._guarded())

    def die(self, *, told: bool) -> None:
        """At once; `told`: the system survives, keeps all that was written, and resets links."""
        if self.node.dead:
            return
        world = self.world
        world.story.tell("the host crashes" if told else "the power of the host fails")
        world.story.counts["restarts"] += 1
        self.serving = False
        self.disk.dead = True
        world.network.gone(self.node, told=told)
        self.worker.die(told=told)
        world.network.loop.thaw(self.node)
        self.node.kill()
        if not told:
            for _ in range(2):
                self.look_after_a_cut()
            self.platter.cut(self.dice)
        away_s = AWAY_S if self.dice.random() < 0.15 else self.dice.uniform(0.1, RESTART_S)
        world.network.loop.call_later(away_s, self.start)

    def look_after_a_cut(self) -> None:
        """Whether the run could go on if the power failed now."""
        image = self.platter.image(self.dice)
        files = CheckpointFiles(FOLDER, self._make_mount(image, self.dice))
        self.world.story.counts["images"] += 1
        try:
            self.world.monitor.promises.found(files.load())
        except (CrowdgradError, OSError) as error:
            self.world.story.violate("lost", f"nothing can be read: {error}")

    async def _guarded(self) -> None:
        try:
            await self._live()
        except Exception as error:
            self.world.story.violate("error", f"the host: {type(error).__name__}: {error}")

    # -- one life -----------------------------------------------------------------------------

    async def _live(self) -> None:
        world, node = self.world, self.node
        files = self._make_files(world, self.disk)
        found = await asyncio.to_thread(files.load)
        number = world.monitor.promises.found(found)
        incarnation = await self._claimed(files)
        training = self._training(files)
        world.monitor.watch(training, lambda: not node.dead)
        await self._resume(training, found, incarnation)
        world.monitor.resumed(training, found, number)
        self.training = training
        keeper = self._make_keeper(training, files, every_s=CHECKPOINT_S)
        presence: HostPresence | None = None
        server = self._server(training, lambda: presence)
        listener = world.network.listen(node, *self.address, server.serve)
        publishing = asyncio.create_task(self._publish(training))
        self.serving = True
        world.story.tell(f"the host listens at {self.address[0]}:{self.address[1]}")
        self.worker.start()
        while training.course.phase != "over":
            now = world.network.loop.time()
            await training.tick(now)
            await keeper.tick(now)
            self._grant_wish(now, training)
            world.monitor.tick(now, training)
            world.monitor.promises.acknowledged(keeper.health().version)
            if self.dice.random() < 0.02:
                self.look_after_a_cut()
            if publishing.done() and presence is None:
                presence = publishing.result()
            await asyncio.sleep(TICK_S)
        await server.farewell("it is over")
        await keeper.write_now(world.network.loop.time())
        await listener.close()
        publishing.cancel()
        world.monitor.finished(training)
        self.over.set()

    def wish(self, what: str) -> None:
        """Its owner wants it to `pause` or `go on`; until it is told otherwise."""
        self._wish = what

    def _grant_wish(self, now: float, training: Training) -> None:
        if self._wish == "pause":
            training.pause(now)
        elif self._wish == "go on":
            training.go_on(now)

    async def _claimed(self, files: CheckpointFiles) -> int:
        """As often as it takes: a disk may be full, or fail, when a host starts."""
        while True:
            try:
                return await asyncio.to_thread(files.claim)
            except OSError:
                await asyncio.sleep(1.0)

    async def _claim(self, files: CheckpointFiles) -> int:
        return await self._claimed(files)

    def _training(self, files: CheckpointFiles) -> Training:
        job = self.world.job
        training = Training(
            job=job.job,
            spec=job.spec,
            manifest=job.manifest,
            initial=job.initial(),
            recipe=job.recipe,
            lease_s=self.world.lease_s,
            claim=lambda: self._claim(files),
            looking=Looking(job.manifest, job.spec, job.job.local, seed=job.job.seed, classes=2),
        )
        parameters = training.parameters
        assert isinstance(parameters, Parameters)
        parameters._small = self.dice.choice((True, False))  # taken at once, or the long way
        parameters._do = self._slowly  # type: ignore[method-assign]
        parameters.finite = self._is_finite  # type: ignore[method-assign]
        return training

    async def _slowly(self, work: Callable[[], None]) -> None:
        """Arithmetic takes its time, as with large vectors, and others go on meanwhile."""
        await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.001, 0.05, 0.3)))
        work()

    async def _is_finite(self, vector: Vector) -> bool:
        await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.001, 0.05)))
        return bool(np.isfinite(vector).all())

    async def _resume(self, training: Training, found: Found | None, incarnation: int) -> None:
        now = self.world.network.loop.time()
        if found is not None:
            best = found.best.vector if found.best is not None else None
            await training.resume(now, found.checkpoint, incarnation, best)
        else:  # nothing was kept: it begins anew, and must not be mistaken for the first
            await training.resume(now, await training.checkpoint(now), incarnation)

    def _server(self, training: Training, presence: Callable[[], HostPresence | None]) -> Server:
        def place_of(who: VolunteerId) -> int | None:
            here = presence()
            members = here.roster.members if here is not None else ()
            return next((member.position for member in members if member.id == who), None)

        return Server(
            training,
            self.world.job.blobs,
            token=TOKEN,
            max_volunteers=100,
            heartbeat_s=HEARTBEAT_S,
            silence_s=SILENCE_S,
            clock=self.world.network.loop.time,
            place_of=place_of,
            key=guest(NAME),
        )

    async def _publish(self, training: Training) -> HostPresence | None:
        world = self.world
        if world.matchmaker is None:
            return None
        job, key = world.job.job, guest(NAME)
        offer = Offer(
            id=job.id,
            title=job.title,
            cause="",
            address=f"{self.address[0]}:{self.address[1]}",
            key=key.id,
            minimum=0,
            maximum=50,
            hyperparameters=job.hyperparameters,
        )
        members = [
            Member(position=a.position, id=a.volunteer.id, name=a.volunteer.name)
            for a in training.ledger.everyone()
            if a.position
        ]
        worker = Member(position=0, id=self.worker.identity.id, name="worker 0")
        while True:
            try:
                return await publish(
                    URL,
                    offer,
                    worker=worker,
                    key=key,
                    state="running",
                    members=members,
                    random01=self.dice.random,
                    wire=world.matchmaker.wire(self.node),
                )
            except TurnedAway as error:
                world.story.violate("matchmaker", f"the host is turned away: {error.message}")
                return None
            except CrowdgradError:
                await asyncio.sleep(1.0)

    def _diverges(self) -> bool:
        self.diverges -= 1
        return self.diverges >= 0
