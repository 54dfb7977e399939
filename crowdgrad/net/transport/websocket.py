"""A WebSocket as a layer: for networks that let nothing else pass, and for browsers.

What it carries is a stream: where one message ends and the next begins means nothing. The name of
the subprotocol says what is inside, TLS or bare frames. The library's protocol objects do the work,
without a socket of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from crowdgrad.errors import ConnectionLost, FrameError, PeerError, one_line
from crowdgrad.net.transport.base import Payload
from crowdgrad.net.transport.layers import Bytes

FIRST_BYTES = b"GET "
PATH = "/crowdgrad"
TLS_INSIDE = "crowdgrad.tls"
FRAMES_INSIDE = "crowdgrad.frames"
MESSAGE_BYTES = 64 << 10
"""We send no longer ones. A proxy may hold a message until it is whole."""
MAX_MESSAGE_BYTES = 1 << 20
_SILENT = logging.getLogger(f"{__name__}.library")
_SILENT.setLevel(logging.CRITICAL)  # strangers' requests are no news


class _Carried:
    """What both ends do once they agree."""

    def __init__(self, protocol: ClientProtocol | ServerProtocol) -> None:
        self.ready = False
        self.closed = False
        """The other side has said that it sends no more."""
        self._protocol = protocol
        self._up = Bytes()

    @property
    def subprotocol(self) -> str:
        """What is inside."""
        return str(self._protocol.subprotocol or "")

    def begin(self) -> None:
        return

    def feed(self, data: memoryview) -> None:
        self._protocol.receive_data(bytes(data))
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._hear(event)
            else:
                self._agree(event)
        error = self._protocol.parser_exc
        if error is not None:
            raise FrameError(f"That is no WebSocket: {_words(error)}.")

    def _agree(self, event: Request | Response) -> None:
        raise NotImplementedError

    def _hear(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._up.put(frame.data)
        elif frame.opcode is Opcode.TEXT:
            raise FrameError("A WebSocket here carries bytes, not text.")
        elif frame.opcode is Opcode.CLOSE:
            self.closed = True

    def read_into(self, room: memoryview) -> int:
        return self._up.read_into(room)

    def write(self, data: Payload) -> None:
        if self._protocol.state is not State.OPEN:
            raise ConnectionLost("The WebSocket is closed.")
        view = memoryview(data)
        for at in range(0, len(view), MESSAGE_BYTES):
            self._protocol.send_binary(bytes(view[at : at + MESSAGE_BYTES]))

    def take(self) -> bytes:
        data = self._protocol.data_to_send()
        # To a good-bye nothing is answered: nobody may be there to hear it.
        return b"" if self.closed else b"".join(data)

    def end(self) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close()


class Dialling(_Carried):
    def __init__(self, url: str, inside: str = TLS_INSIDE) -> None:
        """`url`: ws://… or wss://…; the TLS of the latter is not ours to do."""
        self._client = ClientProtocol(
            parse_uri(url),
            subprotocols=[Subprotocol(inside)],
            max_size=MAX_MESSAGE_BYTES,
            logger=_SILENT,
        )
        super().__init__(self._client)

    def begin(self) -> None:
        self._client.send_request(self._client.connect())

    def _agree(self, event: Request | Response) -> None:
        error = self._client.handshake_exc
        if error is not None:
            raise PeerError(
                f"No WebSocket came about: {_words(error)}.",
                advice="Does a crowdgrad host or relay listen there?",
            )
        self.ready = True

    def feed(self, data: memoryview) -> None:
        super().feed(data)
        if self._client.handshake_exc is not None:
            raise PeerError(f"No WebSocket came about: {_words(self._client.handshake_exc)}.")


class Answering(_Carried):
    def __init__(
        self, allowed: Callable[[str], None] = lambda inside: None, *, pages: bool = False
    ) -> None:
        """`allowed`: raises PeerError where that may not be inside. `pages`: also for web pages,
        which come from anywhere and run on the machine of whoever looks at them."""
        self._server = ServerProtocol(
            origins=None if pages else [None],
            subprotocols=[Subprotocol(TLS_INSIDE), Subprotocol(FRAMES_INSIDE)],
            max_size=MAX_MESSAGE_BYTES,
            logger=_SILENT,
        )
        self._allowed = allowed
        super().__init__(self._server)

    def feed(self, data: memoryview) -> None:
        super().feed(data)
        if not self.ready and self._server.handshake_exc is not None:
            raise FrameError(f"That is no web request: {_words(self._server.handshake_exc)}.")

    def _agree(self, event: Request | Response) -> None:
        assert isinstance(event, Request)
        response = self._server.accept(event)
        refusal: PeerError | None = None
        if response.status_code == 101:
            try:
                self._allowed(self.subprotocol)
            except PeerError as error:
                refusal = error
                response = self._server.reject(403, f"{error.message}\n")
        self._server.send_response(response)
        if response.status_code != 101:
            raise refusal or PeerError(
                f"A web request that is none of ours: {response.reason_phrase}.",
                advice="Volunteers come with `crowdgrad work`, not with a browser.",
            )
        self.ready = True


def _words(error: Exception) -> str:
    """What the library says, which may repeat what a stranger said."""
    return one_line(str(error))[:200]
