"""A matchmaker that does as it is told: one script a connection, the last one ever after.

It checks every signature by the header Host and the path that really came.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from types import TracebackType
from typing import Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from crowdgrad.domain.job import JobId, Member, Roster, Volunteer
from crowdgrad.domain.matching import Code, JobListing, Offer
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError
from crowdgrad.net import bodies, rooms, signing
from crowdgrad.net.identity import Identity, guest

WITHIN_S = 20.0
KEY = guest("the matchmaker")
CODE = Code("AAA-222")


class Visit:
    """One connection, as the matchmaker has it."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        request = socket.request
        assert request is not None
        self.host, self.path = request.headers["Host"], request.path
        self.ours = False
        self.hello: rooms.Hello | None = None

    async def hear(self) -> rooms.Said:
        raw = await asyncio.wait_for(self._socket.recv(), WITHIN_S)
        decoder = rooms.from_host if "/jobs/" in self.path else rooms.from_volunteer
        message: rooms.Said = rooms.decode_exactly(decoder, raw)  # type: ignore[arg-type]
        return message

    async def say(self, *messages: rooms.Said) -> None:
        for message in messages:
            await self._socket.send(rooms.encode(message).decode())

    async def greeted(self) -> rooms.Hello:
        """Its Hello, of which the signature holds."""
        hello = await self.hear()
        assert isinstance(hello, rooms.Hello)
        proof = signing.Proof(
            key=hello.key, time_ms=hello.time_ms, nonce=hello.nonce, signature=hello.signature
        )
        body = hello.body.encode()
        assert signing.verify(
            proof, method="GET", authority=self.host, path=self.path, body=body
        ), "the signature does not hold"
        self.hello = hello
        return hello

    @property
    def registered(self) -> rooms.Register:
        assert self.hello is not None
        return rooms.decode_exactly(rooms.register_body, self.hello.body)

    @property
    def published(self) -> rooms.Publish:
        assert self.hello is not None
        return rooms.decode_exactly(rooms.publish_body, self.hello.body)

    async def until_gone(self) -> None:
        try:
            while True:
                await self.hear()
        except ConnectionClosed:
            pass

    def hang_up(self) -> None:
        self._socket.transport.abort()


Script = Callable[[Visit], Awaitable[None]]
Answer = tuple[int, dict[str, str], bytes]
"""Of a handshake that is refused: status, headers, body."""


class Scripted:
    """`async with Scripted(script, …) as matchmaker:` … `matchmaker.url`, `matchmaker.visits`."""

    def __init__(
        self, *scripts: Script | Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self._scripts = list(scripts)
        self._host = host
        self._tls = tls
        self._server: Server | None = None
        self._failure: BaseException | None = None
        self.visits: list[Visit] = []
        self.url = ""
        self.came_at: list[float] = []
        """When each connection was tried, refused ones too."""

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._receive, self._host, 0, process_request=self._handshake, ssl=self._tls,
            ping_interval=None, compression=None,
        )  # fmt: skip
        port = next(iter(self._server.sockets)).getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        if error is None and self._failure is not None:
            raise self._failure

    def _handshake(self, socket: ServerConnection, request: Request) -> Response | None:
        self.came_at.append(asyncio.get_running_loop().time())
        script = self._scripts[0]
        if not isinstance(script, tuple):
            return None
        self._done()
        status, headers, body = script
        return Response(status, HTTPStatus(status).phrase, Headers(headers), body)

    def _done(self) -> None:
        if len(self._scripts) > 1:
            del self._scripts[0]

    async def _receive(self, socket: ServerConnection) -> None:
        script = self._scripts[0]
        assert not isinstance(script, tuple)
        self._done()
        visit = Visit(socket)
        self.visits.append(visit)
        try:
            await script(visit)
        except ConnectionClosed:
            pass
        except (AssertionError, CrowdgradError) as failure:
            self._failure = self._failure or failure


def welcome(**changes: object) -> rooms.Welcome:
    fields: dict[str, object] = {
        "heartbeat_s": 60.0, "gone_after_s": 60.0, "key": KEY.public.hex(), "code": CODE,
        "link": "http://matchmaker.example/j/AAA-222",
    }  # fmt: skip
    return rooms.Welcome(**{**fields, **changes})  # type: ignore[arg-type]


def refused(**changes: object) -> rooms.Refused:
    fields: dict[str, object] = {"code": "CG506", "message": "Not now.", "advice": "Wait."}
    return rooms.Refused(**{**fields, **changes})  # type: ignore[arg-type]


def says(*messages: rooms.Said) -> Script:
    """Take whoever comes, say this, and stay until they go."""

    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(*messages)
        await visit.until_gone()

    return script


def turns_away(message: rooms.Refused) -> Script:
    async def script(visit: Visit) -> None:
        await visit.greeted()
        await visit.say(message)

    return script


def an_offer(name: str = "mnist-1", key: str = "") -> Offer:
    return Offer(
        id=JobId(name), title="Digits", cause="tests", address="127.0.0.1:8710", key=key,
        minimum=1, maximum=8, hyperparameters={"batch_size": 100},
    )  # fmt: skip


def a_worker() -> Member:
    return Member(position=0, id=VolunteerId("worker0"), name="the host's own")


def a_volunteer(key: Identity) -> Volunteer:
    return Volunteer(
        id=key.id, name="Ada's PC", cores=2, memory_mb=4000, engine="onnxruntime",
        software="crowdgrad 0.1.0",
    )  # fmt: skip


def matched(
    name: str = "mnist-1", introduction: str = "shown to the host", asked: int = 0
) -> rooms.Matched:
    listing = JobListing(offer=an_offer(name), state="running", published_at=1.0, code=CODE)
    return rooms.Matched(
        listing=bodies.ListingBody.of(listing),
        roster=rooms.RosterChanged.of(Roster(job=listing.id, members=(a_worker(),)), 2),
        position=1,
        reason="it needs you",
        introduction=introduction,
        asked=asked,
    )
