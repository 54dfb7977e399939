"""A network with weather: delays, cuts, half-open links, machines that vanish.

A connection is a stream as TCP's: what arrives arrives in order, and what a cut holds up arrives
after it, unless the connection is given up before. Scripted volunteers dial over a worse kind
(`Weather.lossy`), which loses, doubles and reorders single frames, so that the host meets those
too. What arrives does so in the name of the machine it arrives at: a frozen one reads it when it
thaws.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from crowdgrad.errors import PeerError, PortBusy, Unreachable
from crowdgrad.net.framing import pack
from crowdgrad.net.messages import Exchange, Grant, Heartbeat, Message, Wait, problem
from crowdgrad.net.transport.base import OnConnection, Payload, guarded, lost
from crowdgrad.net.transport.inproc import InprocConnection, straight
from crowdgrad.simulator.chance import Dice, others
from crowdgrad.simulator.virtual_time import Node, VirtualLoop

Tell = Callable[[str], None]
DIAL_S = 5.0
"""How long somebody dials an address that does not answer."""
LATENCIES_S = (0.0005, 0.002, 0.02, 0.1)
STEP_S = 1e-6
"""Between two frames of one stream: timers of the very same moment would not keep the order."""


class Weather:
    """What happens between two machines at the moment."""

    def __init__(self, dice: Dice, *, lossy: bool) -> None:
        self._dice = dice
        self._usual_s = dice.choice(LATENCIES_S)
        self._losses = dice.choice((0.0, 0.02, 0.1)) if lossy else 0.0
        self._doubles = 0.05 if lossy else 0.0
        self.reorders = lossy and dice.random() < 0.3
        self.lossy = lossy

    def delays(self, message: Message) -> tuple[float, ...]:
        dice = self._dice
        if self._losses and dice.random() < self._losses:
            return ()
        delay_s = self._usual_s if dice.random() < 0.9 else dice.choice((0.3, 1.0))
        said = isinstance(message, Exchange | Grant | Wait)
        twice = isinstance(message, Exchange | Heartbeat) and dice.random() < self._doubles
        if self.reorders and said:
            delay_s = dice.choice((0.0005, 0.3, 2.0))
        return (delay_s,) * (2 if twice else 1)


class End(InprocConnection):
    """One end of a connection."""

    def __init__(self, network: VirtualNetwork, here: Node, there: Node, weather: Weather) -> None:
        super().__init__(there.name, straight)
        self.here = here
        self.there = there
        self._network = network
        self._weather = weather
        self._last_at = 0.0

    async def send(self, message: Message, payload: Payload = b"") -> None:
        self._inbox.check()
        data = pack(message, len(payload)) + bytes(payload)
        self.sent_at = self._loop.time()
        self._sent_bytes += len(data)
        self._put(message, data)
        await asyncio.sleep(0)
        other = self._other
        while not other._reading.is_set() and not self._network.is_cut(self):
            await other._reading.wait()
            self._inbox.check()

    @property
    def _other(self) -> End:
        assert isinstance(self._twin, End)
        return self._twin

    def _put(self, message: Message, data: bytes) -> None:
        for delay_s in self._weather.delays(message):
            self._soon(delay_s, self._other._arrive, data)

    def _soon(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        """Let it happen at the other end, behind what was sent before, if it gets there at all."""
        if self.here.dead or self.there.dead:
            return
        delay_s += self._network.held_up_s(self)
        if delay_s == math.inf:
            return
        if not self._weather.reorders:
            now = self._network.loop.now
            self._last_at = max(now + delay_s, self._last_at + STEP_S)
            delay_s = self._last_at - now
        self._loop.call_later(delay_s, call, *args, context=self.there.context)

    def close(self, error: PeerError | None = None) -> None:
        already = self._inbox.error is not None
        self._end(error or lost(self.peer, "We closed the connection"))
        if not already:
            self.hang_up("The other side closed the connection")
        self._network.forget(self)

    def hang_up(self, why: str) -> None:
        """The other side hears that it is over, behind all that was sent before."""
        self._soon(0.0005, self._other._end, lost(self._other.peer, why))

    def refuse(self, error: PeerError) -> None:
        if self._inbox.error is None:
            message = problem(error)
            self._put(message, pack(message))
        self.close(error)

    def drop(self, why: str) -> None:
        """Gone on this side only; the other hears nothing."""
        self._end(lost(self.peer, why))


@dataclass
class VirtualListener:
    network: VirtualNetwork
    address: tuple[str, int]

    async def close(self) -> None:
        self.network.listeners.pop(self.address, None)


@dataclass
class VirtualNetwork:
    loop: VirtualLoop
    dice: Dice
    tell: Tell
    listeners: dict[tuple[str, int], tuple[Node, OnConnection]] = field(default_factory=dict)
    lossy: set[str] = field(default_factory=set)
    """Names of machines behind the worse kind of link."""
    _ports: Iterator[int] = field(default_factory=lambda: itertools.count(40_000))
    _cuts: dict[tuple[str, str], float] = field(default_factory=dict)
    """Between whom nothing passes, and until when."""
    _ends: dict[End, None] = field(default_factory=dict)
    _half_open: set[End] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # -- what machines do ---------------------------------------------------------------------

    def listen(self, node: Node, host: str, port: int, handler: OnConnection) -> VirtualListener:
        address = (host, port or next(self._ports))
        if address in self.listeners:
            raise PortBusy(f"Port {port} on {host} is in use.", advice="Choose another.")
        self.listeners[address] = (node, handler)
        return VirtualListener(self, address)

    async def connect(self, node: Node, host: str, port: int) -> End:
        """Raises Unreachable."""
        there, handler = self.listeners.get((host, port), (None, None))
        wait_s = self.wait_s(node.name, there.name if there else host)
        await asyncio.sleep(min(DIAL_S, wait_s + self.dice.choice(LATENCIES_S)))
        there, handler = self.listeners.get((host, port), (None, None))
        if there is None or handler is None or there.dead or wait_s >= DIAL_S:
            self.tell(f"{node.name} dials {host}:{port} in vain")
            raise Unreachable(f"Nobody answers at {host}:{port}.", advice="Is the host running?")
        weather = Weather(others(self.dice), lossy=node.name in self.lossy)
        near, far = End(self, node, there, weather), End(self, there, node, weather)
        near._twin, far._twin = far, near
        self._ends |= {near: None, far: None}
        self.tell(f"{node.name} reaches {host}:{port}")
        task = self.loop.create_task(guarded(handler, far), context=there.context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return near

    # -- weather ------------------------------------------------------------------------------

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Nothing passes between two machines for a while."""
        pair = (min(one, other), max(one, other))
        self._cuts[pair] = max(self.loop.now + seconds, self._cuts.get(pair, 0.0))

    def wait_s(self, one: str, other: str) -> float:
        """How long until something can pass between them."""
        until = self._cuts.get((min(one, other), max(one, other)), 0.0)
        return max(0.0, until - self.loop.now)

    def held_up_s(self, end: End) -> float:
        """How long what is sent now waits on its way, or for ever."""
        if end in self._half_open:
            return math.inf
        return self.wait_s(end.here.name, end.there.name)

    def is_cut(self, end: End) -> bool:
        return end in self._half_open or end.there.dead

    def lose(self, name: str) -> None:
        """All links of a machine are dead from now on, and nobody is told: half-open."""
        for end in self._ends:
            if name in (end.here.name, end.there.name):
                self._half_open.add(end)

    def gone(self, node: Node, *, told: bool) -> None:
        """A process ended (`told`: its system closes what it had open), or its machine did."""
        for end in [end for end in self._ends if end.here is node]:
            if told:
                end.hang_up("Connection reset")
            else:
                self._half_open |= {end, end._other}
            end.drop("It is dead")
            self.forget(end)
        for address in [a for a, (there, _) in self.listeners.items() if there is node]:
            del self.listeners[address]

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)
        self._half_open.discard(end)
