"""The matchmaker in the virtual world: the real room, desk and client over made-up sockets."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.websockets import WebSocketState

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, Unreachable
from crowdgrad.matchmaker.connection import SocketConnection
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.doorkeeper import Doorkeeper
from crowdgrad.matchmaker.loop import keep
from crowdgrad.matchmaker.room import Room
from crowdgrad.net import rooms, signing
from crowdgrad.net.identity import guest
from crowdgrad.net.presence import Socket, Wire
from crowdgrad.planner.matchmaking import Patience
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.network import LATENCIES_S, VirtualNetwork
from crowdgrad.simulator.virtual_time import Node
from crowdgrad.store.memory import MemoryStore

NAME = "matchmaker"
URL = "http://matchmaker:8700"
REQUEST_S = 5.0
FORGETS = 0.5
"""How likely it is that a restarted one has lost its disk."""
WALL_S = 1e9
"""What everybody's clock shows when a life begins; the matchmaker's may be set since."""
RULES = Rules(
    heartbeat_s=2.0, patience=Patience(suspect_after_s=5.0, gone_after_s=10.0), forget_after_s=600.0
)


class Pipe:
    """One side of a virtual WebSocket, as the client sees it."""

    def __init__(self, network: VirtualNetwork, here: Node, there: Node, delay_s: float) -> None:
        self._network = network
        self._here, self._there = here, there
        self._delay_s = delay_s
        self._last_at = 0.0
        self._arrived: deque[str | None] = deque()
        self._news = asyncio.Event()
        self.other: Pipe | None = None
        self.ended = False

    def put(self, text: str | None) -> None:
        """Send; None ends it. It arrives in order, after whatever is in its way."""
        assert self.other is not None
        wait_s = self._network.wait_s(self._here.name, self._there.name)
        if self._here.dead or self._there.dead or wait_s == math.inf:
            return
        loop = self._network.loop
        self._last_at = max(loop.now + wait_s + self._delay_s, self._last_at + 1e-6)
        loop.call_later(
            self._last_at - loop.now, self.other._arrive, text, context=self._there.context
        )

    def _arrive(self, text: str | None) -> None:
        self._arrived.append(text)
        self._news.set()

    async def take(self) -> str | None:
        """The next message; None: it has ended."""
        while not self._arrived:
            if self.ended:
                return None
            self._news.clear()
            await self._news.wait()
        text = self._arrived.popleft()
        self.ended = self.ended or text is None
        return text

    async def send(self, message: str, /) -> None:
        if self.ended:
            raise ConnectionResetError("the socket is closed")
        self.put(message)

    async def recv(self) -> str:
        text = await self.take()
        if text is None:
            raise ConnectionResetError("the socket is closed")
        return text

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.ended:
            self.put(None)
        self.ended = True
        self._news.set()


class ServerSide:
    """The same, as Starlette's WebSocket."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    @property
    def application_state(self) -> WebSocketState:
        ended = self._pipe.ended
        return WebSocketState.DISCONNECTED if ended else WebSocketState.CONNECTED

    async def accept(self) -> None:
        return None

    async def receive(self) -> dict[str, Any]:
        text = await self._pipe.take()
        if text is None:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "text": text}

    async def send_text(self, text: str) -> None:
        if self._pipe.ended:
            raise RuntimeError("the socket is closed")
        self._pipe.put(text)

    async def close(self, code: int, reason: str) -> None:
        self._pipe.abort()


class VirtualMatchmaker:
    """A matchmaker that is restarted with what it knew, or with nothing."""

    def __init__(
        self,
        network: VirtualNetwork,
        dice: Dice,
        *,
        room: Callable[..., Room] = Room,
    ) -> None:
        self._network = network
        self._dice = dice
        self._make_room = room
        self._wall_s = WALL_S
        self._doorkeeper: Doorkeeper | None = None
        self.node = Node(NAME)
        self._room: Room | None = None
        self._store = MemoryStore()
        self._pipes: list[Pipe] = []

    def start(self) -> None:
        self.node = Node(NAME)
        self.node.offset_s = self._dice.uniform(-500, 5000)
        if self._dice.random() < FORGETS:
            self._store = MemoryStore()
        self.node.context.copy().run(self._open)
        assert self._room is not None
        self.node.spawn(keep(self._room))

    def _open(self) -> None:
        """As a process of its node: by that one's clock."""
        clock = self._network.loop.time
        desk = Desk(self._store, wall=self._wall, random_bytes=self._dice.randbytes, rules=RULES)
        self._room = self._make_room(
            self._store, desk, key=guest(NAME), clock=clock, wall=self._wall, rules=RULES
        )
        self._doorkeeper = Doorkeeper(wall=self._wall, clock=clock)

    @property
    def up(self) -> bool:
        return self._room is not None and not self.node.frozen

    def stop(self, *, told: bool) -> None:
        """It dies with all it knows; `told`: its system closes its sockets."""
        for pipe in self._pipes if told else ():
            pipe.abort()
        self._pipes.clear()
        self._room = None
        self.node.kill()

    def _wall(self) -> float:
        return self._wall_s + self._network.loop.now

    def set_clock(self, seconds: float) -> None:
        """Somebody sets its wall clock, forwards or back."""
        self._wall_s += seconds

    # -- how others reach it ------------------------------------------------------------------

    def wire(self, node: Node) -> Wire:
        """What somebody's presence goes through."""

        async def connect(url: str) -> Socket:
            return await self._connect(node, url)

        def abort(socket: Socket) -> None:
            assert isinstance(socket, Pipe)
            socket.abort()

        return Wire(connect=connect, abort=abort, wall=lambda: WALL_S + self._network.loop.now)

    async def _way(self, node: Node) -> float:
        """Go there; returns how long that takes. Raises Unreachable."""
        delay_s = self._dice.choice(LATENCIES_S)
        wait_s = self._network.wait_s(node.name, NAME)
        await asyncio.sleep(min(REQUEST_S, wait_s + delay_s))
        if self._room is None or wait_s >= REQUEST_S or self.node.frozen:
            raise Unreachable(f"Nobody answers at {URL}.")
        return delay_s

    async def _connect(self, node: Node, url: str) -> Pipe:
        try:
            delay_s = await self._way(node)
        except CrowdgradError as error:
            raise ConnectionRefusedError(error.message) from None
        room, doorkeeper = self._room, self._doorkeeper
        assert room is not None
        assert doorkeeper is not None
        near = Pipe(self._network, node, self.node, delay_s)
        far = Pipe(self._network, self.node, node, delay_s)
        near.other, far.other = far, near
        self._pipes.append(far)
        self.node.spawn(_stay(room, doorkeeper, url, ServerSide(far)))
        return near


async def _stay(room: Room, doorkeeper: Doorkeeper, url: str, socket: ServerSide) -> None:
    """What the routes of `matchmaker.api.presence` do."""
    where = urlsplit(url)
    _, _, kind, name, _ = where.path.split("/")
    connection = SocketConnection(socket)  # type: ignore[arg-type]
    job, who = JobId(name), VolunteerId(name)

    def prove(hello: rooms.Hello) -> None:
        doorkeeper.check(
            signing.Proof(
                key=hello.key, time_ms=hello.time_ms, nonce=hello.nonce, signature=hello.signature
            ),
            method=signing.SOCKET,
            authority=where.netloc,
            path=where.path,
            body=hello.body.encode(),
        )

    def host_arrives(hello: rooms.Hello) -> None:
        prove(hello)
        room.host_arrives(
            hello.key, rooms.decode_exactly(rooms.publish_body, hello.body), connection
        )

    def volunteer_arrives(hello: rooms.Hello) -> None:
        prove(hello)
        room.volunteer_arrives(
            hello.key, rooms.decode_exactly(rooms.register_body, hello.body), connection
        )

    if kind == "jobs":
        await connection.visit(
            rooms.from_host,
            hello_within_s=RULES.hello_within_s,
            arrive=host_arrives,
            hear=lambda message: room.host_says(job, message, connection),
            leave=lambda: room.host_leaves(job, connection),
        )
    else:
        await connection.visit(
            rooms.from_volunteer,
            hello_within_s=RULES.hello_within_s,
            arrive=volunteer_arrives,
            hear=lambda message: room.volunteer_says(who, message, connection),
            leave=lambda: room.volunteer_leaves(who, connection),
        )
