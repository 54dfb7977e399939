"""Whatever lies between the socket and the frames, the carrier keeps its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import uvloop

from crowdgrad.net import identity
from crowdgrad.net.transport import secure, tcp, tls, websocket
from crowdgrad.net.transport.base import Connection, Listener, OnConnection
from crowdgrad.net.transport.layers import Bare, Layer, Stack
from tests.contracts.transport_contract import TransportContract

T = TypeVar("T")
KEY = identity.guest("a listener")
PIN = identity.digest_of(KEY.public)


class LayeredContract(TransportContract):
    large_bytes = 30_000_128
    bare = False
    loop_factory: ClassVar[Callable[[], asyncio.AbstractEventLoop]]

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=type(self).loop_factory) as runner:
            return runner.run(main)

    def layer(self, host: str, port: int) -> Layer:
        raise NotImplementedError

    async def listen(self, host: str, port: int, handler: OnConnection) -> Listener:
        return await secure.listen(host, port, handler, KEY)

    async def connect(self, host: str, port: int) -> Connection:
        return await tcp.connect(host, port, layer=self.layer(host, port))


class OverTls(LayeredContract):
    def layer(self, host: str, port: int) -> Layer:
        return tls.dialler(PIN)


class OverWebSocket(LayeredContract):
    """Bare frames: as a browser sends them, and who comes from this machine may."""

    def layer(self, host: str, port: int) -> Layer:
        url = f"ws://{host}:{port}{websocket.PATH}"
        return Stack(websocket.Dialling(url, websocket.FRAMES_INSIDE), Bare())


class OverTlsInAWebSocket(LayeredContract):
    def layer(self, host: str, port: int) -> Layer:
        url = f"ws://{host}:{port}{websocket.PATH}"
        return Stack(websocket.Dialling(url), tls.dialler(PIN))


class TestTlsOnUvloop(OverTls):
    loop_factory = staticmethod(uvloop.new_event_loop)


class TestTlsOnAsyncio(OverTls):
    loop_factory = asyncio.SelectorEventLoop


class TestWebSocketOnUvloop(OverWebSocket):
    loop_factory = staticmethod(uvloop.new_event_loop)


class TestWebSocketOnAsyncio(OverWebSocket):
    loop_factory = asyncio.SelectorEventLoop


class TestTlsInAWebSocketOnUvloop(OverTlsInAWebSocket):
    loop_factory = staticmethod(uvloop.new_event_loop)


class TestTlsInAWebSocketOnAsyncio(OverTlsInAWebSocket):
    loop_factory = asyncio.SelectorEventLoop
