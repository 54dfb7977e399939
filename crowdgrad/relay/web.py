"""A dialler that comes by WebSocket: also through a proxy, which then tells for whom it speaks."""

from __future__ import annotations

from collections.abc import Callable

from websockets.http11 import Request, Response

from crowdgrad.net.transport.websocket import Answering

Headers = list[tuple[bytes, bytes]]


class Web(Answering):
    def __init__(self, asked: Callable[[Headers], None]) -> None:
        """`asked`: hears the headers of a sound request. Raises PeerError, to refuse it."""
        super().__init__(lambda inside: asked(self._headers), pages=True)
        self._headers: Headers = []

    def _agree(self, event: Request | Response) -> None:
        self._headers = [
            (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in event.headers.raw_items()
        ]
        super()._agree(event)
