"""uvicorn's protocols, made for strangers: nobody keeps a seat (`net.gate`) for nothing.

A connection has a time for the head of its request, another one for the body, and may keep nothing
for us to hold that it does not read, also once it has become a WebSocket. Who has found no seat is
told so (`503`, `Retry-After`) before the socket closes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from http import HTTPStatus
from typing import Any

import h11
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn._types import ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from crowdgrad.errors import CrowdgradError, MessageError, TurnedAway
from crowdgrad.net import rooms
from crowdgrad.net.addresses import counted, forwarded
from crowdgrad.net.gate import LINGER_S, HttpLimits, Seat

FLUSH_S = 30.0
"""How long a peer may take to read the rest of an answer it has asked for."""
MOST_FRAGMENTS = 1024
MOST_UNREAD_BYTES = 256 << 10
"""Answers to pings a peer may leave unread."""
SEND_NOW = "crowdgrad.send_now"
"""An extension of ASGI's WebSockets: a `call` that sends a text at once, or says that it cannot.
ASGI's own `send` takes a task where nobody may wait, several times the work of sending."""

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # what strangers send is no news


class GuardedHttp(H11Protocol):
    """A connection that speaks HTTP, so far."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        seat: Seat,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = _log
        self._gate = seat.gate
        self._seat = seat
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_for = ""
        self._deaf = False
        """Nothing it says is heard: it is being turned away, or has become a WebSocket."""

    # Arriving

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for("head", self._gate.limits.header_s if self._seat.granted else LINGER_S)

    # Reading

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if not self._seat.granted:  # not before it has asked: who expects no answer is confused
            self._turn_away(503, no_seat(), self._gate.come_again_s())
        elif self._waits_for == "head" and self._gate.is_too_much(data):
            self._gate.turned_away += 1
            self._turn_away(429, too_much(), self._gate.come_again_s())
        else:
            super().data_received(data)
            self._mind_the_time()

    def _mind_the_time(self) -> None:
        """Everything a peer begins has to end: the head, then the body."""
        state = self.conn.their_state
        limits = self._gate.limits
        if self._deaf or self.transport.is_closing():
            return
        if state is h11.IDLE:
            self._wait_for("head", limits.header_s)
        elif state is h11.SEND_BODY:
            self._wait_for("body", limits.body_s)
        else:
            self._wait_for("", 0.0)

    def _wait_for(self, what: str, seconds: float) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._too_late) if what else None

    def _too_late(self) -> None:
        if not self._seat.granted:
            self._turn_away(503, no_seat(), self._gate.come_again_s())
        else:
            late = MessageError(
                f"The {self._waits_for} of your request did not come in time.",
                advice="Send it at once.",
            )
            self._turn_away(408, late)

    def on_response_complete(self) -> None:
        still_sending = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(FLUSH_S, self.transport.abort)
        elif still_sending:  # it has its answer: nobody reads the rest
            self._hang_up(FLUSH_S)
        else:
            self._mind_the_time()  # of a request that came behind this one

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(FLUSH_S, self.transport.abort)

    # Leaving

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._turn_away(431, _too_large(self._gate.limits))
        else:
            self._turn_away(400, MessageError("That is not HTTP.", advice="Ask for /openapi.json."))

    def _turn_away(self, status: int, error: CrowdgradError, retry_after_s: float = 0.0) -> None:
        """Say why, and hear nothing more: the peer gets a moment to read it, or none."""
        if self._deaf or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # not in the middle of an answer
            self.transport.write(answer(status, error, retry_after_s))
        self._hang_up(LINGER_S)

    def _hang_up(self, after_s: float) -> None:
        """Listen no more; what was said still goes out, if it is read in time."""
        self._deaf = True
        self._unset_keepalive_if_required()
        self._wait_for("", 0.0)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        self.loop.call_later(after_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._wait_for("", 0.0)
        self._seat.leave()

    def shutdown(self) -> None:
        if self._deaf:
            self.transport.abort()
        else:
            super().shutdown()

    # Becoming a WebSocket

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        seat, gate = self._seat, self._gate
        peer = self.client[0] if self.client else ""
        if peer in gate.limits.proxies:
            address = counted(forwarded(peer, self.headers, gate.limits.proxies))
            if not gate.has_room_for(address):
                gate.turned_away += 1
                self._turn_away(503, no_seat(), gate.come_again_s())
                return
            seat.belongs_to(address)
        self._wait_for("", 0.0)
        self._deaf = True
        self.ws_protocol_class = functools.partial(GuardedSocket, seat=seat)  # type: ignore[assignment]
        super().handle_websocket_upgrade(event)


class GuardedSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket; its seat is still the one it came with."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        seat: Seat,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = _log
        self._seat = seat
        self._last: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # Fine for HTTP but not for WebSockets: uvicorn would keep it without a word.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self._end()

    def _end(self) -> None:
        """Whoever does not read what was said last is not waited for."""
        self.transport.close()
        self._last = self.loop.call_later(LINGER_S, self.transport.abort)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MOST_FRAGMENTS:
            self.conn.fail(1009, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            self.transport.abort()
            return
        super().handle_ping()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_text(self.frames):
            self.frames = []
            self.conn.fail(1007, "not UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def send_now(self, text: str) -> bool:
        """Send it without waiting for anything. False: that cannot be done, or never again."""
        done = self.disconnected or self.close_sent or self.transport.is_closing()
        if done or not self.handshake_complete or not self.writable.is_set():
            return False
        self.conn.send_text(text.encode())
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # it is over: uvicorn would complain that it is not

    async def run_asgi(self) -> None:
        self.scope["extensions"][SEND_NOW] = {"call": self.send_now}
        try:
            await super().run_asgi()
        finally:
            del self.scope["extensions"][SEND_NOW]  # else only the collector would free us
            if not self.disconnected:
                self._last = self.loop.call_later(
                    self.close_timeout + LINGER_S, self.transport.abort
                )

    def shutdown(self) -> None:
        if self.transport.is_closing():  # uvicorn would say good-bye once more, and fail
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._last is not None:
            self._last.cancel()
        super().connection_lost(exc)
        self.conn.parser.close()  # it refers to itself: only the collector would free it
        self._seat.leave()


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True


def unheard(app: ASGIApp) -> ASGIApp:
    """The same, but a caller that goes in the middle of its request is no error of ours."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            return

    return call


def too_much() -> TurnedAway:
    return TurnedAway(
        "There is too much to do just now.", advice="Come again a little later, as told."
    )


def no_seat() -> TurnedAway:
    return TurnedAway(
        "This matchmaker has as many connections as it takes, in all or from your address.",
        advice="Try again in a few seconds.",
    )


def _too_large(limits: HttpLimits) -> MessageError:
    return MessageError(
        f"The head of a request has at most {limits.header_bytes} bytes.",
        advice="Send fewer or shorter headers.",
    )


def answer(status: int, error: CrowdgradError, retry_after_s: float = 0.0) -> bytes:
    """A whole HTTP answer to somebody who will not be listened to any further."""
    problem = rooms.Problem(code=error.code, message=error.message, advice=error.advice)
    body = rooms.encode(problem)
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if retry_after_s > 0:
        head.append(f"Retry-After: {retry_after_s:.0f}")
    return "\r\n".join([*head, "", ""]).encode() + body
