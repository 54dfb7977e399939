"""The WebSockets: hosts and volunteers come, prove who they are, and stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.api.answers import answer
from crowdgrad.matchmaker.connection import SocketConnection
from crowdgrad.matchmaker.desk import Rules, fingerprint
from crowdgrad.matchmaker.doorkeeper import Admission, Doorkeeper
from crowdgrad.matchmaker.refusal import Refusal, nonsense
from crowdgrad.matchmaker.room import Room
from crowdgrad.matchmaker.telling import Telling
from crowdgrad.net import rooms, signing
from crowdgrad.net.guarded import SEND_NOW

T = TypeVar("T")
PATH = re.compile(r"/v1/(?P<kind>jobs|volunteers)/(?P<name>[^/]{1,64})/presence")


class Sockets:
    """In front of the HTTP routes, which would only cost time here: ten thousand people wait."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        room: Room,
        rules: Rules,
        doorkeeper: Doorkeeper,
        admission: Admission,
        tell: Telling,
    ) -> None:
        self._app = app
        self._room = room
        self._door = _Door(rules, doorkeeper, admission, tell)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"]) if scope["type"] == "websocket" else None
        if found is None:
            await self._app(scope, receive, send)
        elif found["kind"] == "jobs":
            await self._host(WebSocket(scope, receive, send), JobId(found["name"]))
        else:
            await self._volunteer(WebSocket(scope, receive, send), VolunteerId(found["name"]))

    async def _host(self, socket: WebSocket, job: JobId) -> None:
        connection, room = _connection(socket), self._room

        def arrive(hello: rooms.Hello) -> None:
            self._door.prove(socket, hello)
            body = rooms.decode_exactly(rooms.publish_body, hello.body)
            if body.offer.id != job:
                raise nonsense(f"You publish job {body.offer.id!r} where {job[:64]!r} belongs.")
            room.host_arrives(hello.key, body, connection)

        await self._door.let_in(
            socket,
            connection,
            decoder=rooms.from_host,
            arrive=arrive,
            hear=lambda message: room.host_says(job, message, connection),
            leave=lambda: room.host_leaves(job, connection),
        )

    async def _volunteer(self, socket: WebSocket, name: VolunteerId) -> None:
        connection, room = _connection(socket), self._room

        def arrive(hello: rooms.Hello) -> None:
            self._door.prove(socket, hello)
            body = rooms.decode_exactly(rooms.register_body, hello.body)
            if not name == body.volunteer.id == fingerprint(hello.key):
                raise nonsense("A volunteer's id is the fingerprint of its key.")
            room.volunteer_arrives(hello.key, body, connection)

        await self._door.let_in(
            socket,
            connection,
            decoder=rooms.from_volunteer,
            arrive=arrive,
            hear=lambda message: room.volunteer_says(name, message, connection),
            leave=lambda: room.volunteer_leaves(name, connection),
        )


def _connection(socket: WebSocket) -> SocketConnection:
    return SocketConnection(socket, socket.scope["extensions"][SEND_NOW]["call"])


class _Door:
    """Who cannot be let in hears so before it costs anything."""

    def __init__(
        self, rules: Rules, doorkeeper: Doorkeeper, admission: Admission, tell: Telling
    ) -> None:
        self._rules = rules
        self._doorkeeper = doorkeeper
        self._admission = admission
        self._tell = tell

    def prove(self, socket: WebSocket, hello: rooms.Hello) -> None:
        """That whoever holds this key says this, here and now. Raises Refusal."""
        self._doorkeeper.check(
            signing.Proof(
                key=hello.key, time_ms=hello.time_ms, nonce=hello.nonce, signature=hello.signature
            ),
            method=signing.SOCKET,
            authority=socket.headers.get("host", ""),
            path=socket.url.path,
            body=hello.body.encode(),
        )
        self._doorkeeper.admit_key(hello.key)

    async def let_in(
        self,
        socket: WebSocket,
        connection: SocketConnection,
        *,
        decoder: msgspec.json.Decoder[T],
        arrive: Callable[[rooms.Hello], None],
        hear: Callable[[T], None],
        leave: Callable[[], None],
    ) -> None:
        """From the handshake to the end."""
        try:
            address = self._doorkeeper.address_of(socket.scope)
            self._doorkeeper.admit_address(address)
            entering = self._admission.enter(address)
        except Refusal as refusal:
            self._tell.refused(refusal)
            denial = answer(refusal.problem, refusal.status, refusal.headers)
            await socket.send_denial_response(denial)
            return

        def arrived(hello: rooms.Hello) -> None:
            entering.over()
            arrive(hello)

        try:
            await socket.accept()
            await connection.visit(
                decoder,
                hello_within_s=self._rules.hello_within_s,
                arrive=arrived,
                hear=hear,
                leave=leave,
                refused=self._tell.refused,
            )
        finally:
            entering.over()
