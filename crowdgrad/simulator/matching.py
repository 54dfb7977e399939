"""The matchmaker in the virtual world: the real room, desk and client over made-up sockets."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.websockets import WebSocketState

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, MessageError, TurnedAway, Unreachable
from crowdgrad.matchmaker.connection import SocketConnection, visit
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.loop import Room, keep
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import rooms
from crowdgrad.net.presence import Socket, Wire
from crowdgrad.planner.matchmaking import Patience
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.network import LATENCIES_S, VirtualNetwork
from crowdgrad.simulator.virtual_time import Node
from crowdgrad.store.memory import MemoryStore

NAME = "matchmaker"
URL = "http://matchmaker:8700"
REQUEST_S = 5.0
RULES = Rules(
    heartbeat_s=2.0, patience=Patience(suspect_after_s=5.0, gone_after_s=10.0), forget_after_s=600.0
)
_publish = msgspec.json.Decoder(rooms.Publish)
_register = msgspec.json.Decoder(rooms.Register)


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
    """A matchmaker that forgets everything when it is restarted."""

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
        self._wall_s = 1e9
        self.node = Node(NAME)
        self._room: Room | None = None
        self._pipes: list[Pipe] = []

    def start(self) -> None:
        self.node = Node(NAME)
        self.node.offset_s = self._dice.uniform(-500, 5000)
        loop = self._network.loop
        store = MemoryStore()
        desk = Desk(
            store,
            wall=lambda: self._wall_s + loop.now,
            random_bytes=self._dice.randbytes,
            rules=RULES,
        )
        self._room = self._make_room(store, desk, clock=loop.time, rules=RULES)
        self.node.spawn(keep(self._room))

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

    def set_clock(self, seconds: float) -> None:
        """Somebody sets its wall clock, forwards or back."""
        self._wall_s += seconds

    # -- how others reach it ------------------------------------------------------------------

    def wire(self, node: Node) -> Wire:
        """What somebody's presence goes through."""

        async def post(url: str, body: bytes) -> bytes:
            return await self._post(node, url, body)

        async def connect(url: str) -> Socket:
            return await self._connect(node, url)

        def abort(socket: Socket) -> None:
            assert isinstance(socket, Pipe)
            socket.abort()

        return Wire(post=post, connect=connect, abort=abort)

    async def _way(self, node: Node) -> float:
        """Go there; returns how long that takes. Raises Unreachable."""
        delay_s = self._dice.choice(LATENCIES_S)
        wait_s = self._network.wait_s(node.name, NAME)
        await asyncio.sleep(min(REQUEST_S, wait_s + delay_s))
        if self._room is None or wait_s >= REQUEST_S or self.node.frozen:
            raise Unreachable(f"Nobody answers at {URL}.")
        return delay_s

    async def _post(self, node: Node, url: str, body: bytes) -> bytes:
        await self._way(node)
        room = self._room
        assert room is not None

        def answer() -> rooms.Body:
            if urlsplit(url).path == "/v1/jobs":
                return room.publish(rooms.decode(_publish, body))
            return room.register(rooms.decode(_register, body))

        try:
            return rooms.encode(self.node.context.copy().run(answer))
        except Refusal as refusal:
            problem = refusal.problem
            kind = Unreachable if refusal.status == 429 else TurnedAway
            raise kind(problem.message, advice=problem.advice) from None
        except MessageError as error:
            raise TurnedAway(error.message) from None

    async def _connect(self, node: Node, url: str) -> Pipe:
        try:
            delay_s = await self._way(node)
        except CrowdgradError as error:
            raise ConnectionRefusedError(error.message) from None
        room = self._room
        assert room is not None
        near = Pipe(self._network, node, self.node, delay_s)
        far = Pipe(self._network, self.node, node, delay_s)
        near.other, far.other = far, near
        self._pipes.append(far)
        _, _, kind, name, _ = urlsplit(url).path.split("/")
        self.node.spawn(_stay(room, kind, name, ServerSide(far)))
        return near


async def _stay(room: Room, kind: str, name: str, socket: ServerSide) -> None:
    """What the routes of `matchmaker.app` do."""
    welcome = rooms.Welcome(heartbeat_s=RULES.heartbeat_s, gone_after_s=RULES.patience.gone_after_s)
    job, who = JobId(name), VolunteerId(name)

    def host_arrives(hello: rooms.Hello, connection: SocketConnection) -> None:
        connection.send(welcome)
        room.host_arrives(job, hello.token, connection)

    def volunteer_arrives(hello: rooms.Hello, connection: SocketConnection) -> None:
        connection.send(welcome)
        room.volunteer_arrives(who, hello.token, connection)

    if kind == "jobs":
        await visit(
            socket,  # type: ignore[arg-type]
            rooms.from_host,
            hello_within_s=RULES.hello_within_s,
            arrive=host_arrives,
            hear=lambda message, connection: room.host_says(job, message, connection),
            leave=lambda connection: room.host_leaves(job, connection),
        )
    else:
        await visit(
            socket,  # type: ignore[arg-type]
            rooms.from_volunteer,
            hello_within_s=RULES.hello_within_s,
            arrive=volunteer_arrives,
            hear=lambda message, connection: room.volunteer_says(who, message, connection),
            leave=lambda connection: room.volunteer_leaves(who, connection),
        )
