"""What may befall a job: machines die, freeze and move, links break, disks fill and forget."""

from __future__ import annotations

from collections.abc import Callable

from crowdgrad.errors import CrowdgradError
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_bytes import decode_checkpoint
from crowdgrad.host.keeping.checkpoint_files import Name
from crowdgrad.host.setbacks import MAX_TRIES
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.disk import Mount
from crowdgrad.simulator.machine import FOLDER, NAME, Machine
from crowdgrad.simulator.matching import NAME as MATCHMAKER
from crowdgrad.simulator.people import Person, World
from crowdgrad.store import packed

BACK_S = 15.0
"""How long a host may be away after it died."""


class Misfortunes:
    def __init__(self, world: World, machine: Machine, people: list[Person], dice: Dice) -> None:
        self._world = world
        self._story, self._network, self._loop = world.story, world.network, world.network.loop
        self._machine = machine
        self._people = people
        self._dice = dice
        self._diverged = 0
        self.until = 0.0
        """By then whatever has happened so far is in nobody's way any more."""

    def strike(self) -> None:
        """One of them, now."""
        kind = self._dice.choice(self._kinds())
        self._story.counts[kind.__name__] += 1
        kind()

    def _kinds(self) -> list[Callable[[], None]]:
        kinds = [
            self.crashes,
            self.power_fails,
            self.dies_while_writing,
            self.dies_while_writing,
            self.host_freezes,
            self.worker_dies,
            self.diverges,
            self.disk_is_full,
            self.disk_fails,
            self.person_dies,
            self.person_freezes,
            self.partitions,
            self.half_open,
        ]
        if self._world.matchmaker is not None:
            kinds += [self.matchmaker_dies, self.matchmaker_is_cut_off]
            kinds += [self.host_moves, self.host_moves]
        return kinds

    def _for(self, seconds: float) -> float:
        """Something is in somebody's way for so long."""
        self.until = max(self.until, self._loop.now + seconds)
        return seconds

    # -- of the host --------------------------------------------------------------------------

    def crashes(self) -> None:
        self._machine.die(told=True)
        self._for(BACK_S)

    def power_fails(self) -> None:
        self._machine.die(told=False)
        if self._dice.random() < 0.4:
            self.bit_flips()
        self._for(BACK_S)

    def dies_while_writing(self) -> None:
        """At one of the disk's next steps, whichever it is."""
        self._machine.disk.dies_in = self._dice.randint(1, 25)
        self._for(20.0)

    def host_moves(self) -> None:
        """The machine comes back somewhere else."""
        self._machine.die(told=self._dice.random() < 0.5)
        self._machine.address = (NAME, self._machine.address[1] + 1)
        self._for(BACK_S)

    def host_freezes(self) -> None:
        self._freeze(self._machine)

    def diverges(self) -> None:
        """The next number of worker 0 is not finite: everything goes back to a good checkpoint."""
        self._diverged += 1
        if self._diverged <= MAX_TRIES:  # more from one checkpoint, and a host rightly gives up
            self._machine.diverges = 1

    def worker_dies(self) -> None:
        """Worker 0 alone, and its host starts another."""
        machine, node = self._machine, self._machine.node
        if not machine.serving or not machine.worker.alive:
            return
        self._story.tell("worker 0 dies")
        machine.worker.die(told=self._dice.random() < 0.5)

        def start() -> None:
            if not node.dead:
                machine.worker.start()

        self._loop.call_later(self._for(1.0), start)

    # -- of its disk --------------------------------------------------------------------------

    def disk_is_full(self) -> None:
        seconds = self._for(self._dice.uniform(1.0, 8.0))
        self._story.tell(f"the disk is full for {seconds:.1f} s")
        self._machine.disk.full = True
        self._loop.call_later(seconds, lambda: setattr(self._machine.disk, "full", False))

    def disk_fails(self) -> None:
        seconds = self._for(self._dice.uniform(1.0, 8.0))
        self._story.tell(f"the disk fails now and then for {seconds:.1f} s")
        self._machine.disk.fails = 0.3
        self._loop.call_later(seconds, lambda: setattr(self._machine.disk, "fails", 0.0))

    def bit_flips(self) -> None:
        """In one of the checkpoints, if there is another."""
        platter = self._machine.platter
        folder = platter.folders.get(str(FOLDER))
        names = sorted(name for name in (folder.now if folder else ()) if Name.parse(name))
        if len(names) < 2:
            return
        victim = names[-1] if self._dice.random() < 0.6 else self._dice.choice(names)
        left = self._readable([name for name in names if name != victim])
        if left:
            self._story.tell("a bit flips in a checkpoint")
            self._story.counts["bits_flipped"] += 1
            platter.flip_a_bit(str(FOLDER), victim, self._dice)
            self._world.monitor.promises.forgive(max(left))

    def _readable(self, names: list[str]) -> list[int]:
        """The numbers of those checkpoints that can be read."""
        mount = Mount(self._machine.platter, self._dice)
        found: list[Checkpoint] = []
        for name in names:
            try:
                found.append(decode_checkpoint(packed.read(mount, FOLDER / name)))
            except CrowdgradError:
                continue
        return self._world.monitor.promises.numbers_of(found)

    # -- of volunteers ------------------------------------------------------------------------

    def person_dies(self) -> None:
        person = self._dice.choice(self._people)
        if not person.alive:
            return
        self._story.tell(f"{person.name} dies")
        person.die(told=self._dice.random() < 0.5)
        self._loop.call_later(self._for(self._dice.uniform(0.5, 6.0)), person.start)

    def person_freezes(self) -> None:
        self._freeze(self._dice.choice(self._people))

    def _freeze(self, somebody: Machine | Person) -> None:
        """SIGSTOP, or a closed lid: some clocks go on meanwhile, others do not."""
        node, seconds = somebody.node, self._for(self._dice.choice((0.5, 3.0, 9.0)))
        stands_still = self._dice.random() < 0.5
        self._story.tell(f"{node.name} is frozen for {seconds} s")
        self._loop.freeze(node)

        def thaw() -> None:
            if node.frozen:
                self._story.tell(f"{node.name} goes on")
                node.offset_s -= seconds if stands_still else 0.0
                self._loop.thaw(node)

        self._loop.call_later(seconds, thaw)

    # -- of links -----------------------------------------------------------------------------

    def partitions(self) -> None:
        """Some cannot reach the host for a while."""
        seconds = self._for(self._dice.choice((1.0, 3.0, 9.0)))
        for person in self._people:
            if self._dice.random() < 0.6:
                self._story.tell(f"{person.name} is cut off for {seconds} s")
                self._network.cut(person.name, NAME, seconds)

    def half_open(self) -> None:
        name = self._dice.choice([*(person.name for person in self._people), NAME])
        self._story.tell(f"the links of {name} are half-open")
        self._network.lose(name)
        self._for(10.0)

    # -- of the matchmaker --------------------------------------------------------------------

    def matchmaker_dies(self) -> None:
        matchmaker = self._world.matchmaker
        if matchmaker is None or not matchmaker.up:
            return
        self._story.tell("the matchmaker dies")
        matchmaker.stop(told=self._dice.random() < 0.5)
        matchmaker.set_clock(self._dice.choice((-1e6, 0.0, 1e6)))
        self._loop.call_later(self._for(self._dice.uniform(0.5, 10.0)), matchmaker.start)

    def matchmaker_is_cut_off(self) -> None:
        seconds = self._for(self._dice.choice((2.0, 9.0)))
        for name in (*(person.name for person in self._people), NAME):
            if self._dice.random() < 0.5:
                self._story.tell(f"{name} cannot reach the matchmaker for {seconds} s")
                self._network.cut(name, MATCHMAKER, seconds)
