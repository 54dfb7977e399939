"""Who may speak how: TLS with everybody, plain frames only within one machine.

A listener has one port for all: the first bytes tell whether somebody speaks TLS, comes by
WebSocket, or sends frames as they are, which only a process of this machine may.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdgrad.errors import FrameError, TurnedAway
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.framing import MAGIC, UPDATE_ADVICE
from crowdgrad.net.identity import Identity, digest_of
from crowdgrad.net.throttle import Throttle
from crowdgrad.net.transport import tcp, tls, websocket
from crowdgrad.net.transport.base import OnConnection
from crowdgrad.net.transport.layers import Bare, Late, Layer, Sniffing, Stack


def served(key: Identity, *, always: bool = False) -> Callable[[str], Layer]:
    """The layer of a connection from an address, for a listener with this key.

    `always`: TLS also for those on this machine.
    """

    def layer_for(address: str) -> Layer:
        return Sniffing(lambda first: _chosen(first, key, near=not always and is_loopback(address)))

    return layer_for


def _chosen(first: bytes, key: Identity, *, near: bool) -> Layer:
    """Raises PeerError."""
    if first[0] == tls.FIRST_BYTE:
        return tls.listener(key)
    if first == websocket.FIRST_BYTES:
        web = websocket.Answering(lambda inside: _check_inside(inside, near))
        return Stack(web, Late(lambda: _inside(web.subprotocol, key)))
    if first != MAGIC:
        raise FrameError(
            f"The other side does not speak crowdgrad (it began with {first!r}).",
            advice="Check the address and port.",
        )
    if not near:
        raise _unencrypted()
    return Bare()


def _check_inside(inside: str, near: bool) -> None:
    if inside != websocket.TLS_INSIDE and not near:
        raise _unencrypted()


def _inside(subprotocol: str, key: Identity) -> Layer:
    return tls.listener(key) if subprotocol == websocket.TLS_INSIDE else Bare()


def _unencrypted() -> TurnedAway:
    return TurnedAway(
        "Only encrypted connections are taken from other machines.", advice=UPDATE_ADVICE
    )


async def listen(
    host: str,
    port: int,
    handler: OnConnection,
    key: Identity,
    *,
    always: bool = False,
    up: Throttle | None = None,
    down: Throttle | None = None,
) -> tcp.TcpListener:
    """As `tcp.listen`, for whoever dials as whoever has `key`."""
    layer = served(key, always=always)
    return await tcp.listen(host, port, handler, layer=layer, up=up, down=down)


async def knock(host: str, port: int, key: bytes | str, *, timeout_s: float = 5.0) -> bytes:
    """Dial, see who answers, and go: the whole public key.

    `key`: its public key, or a pin of it; empty: anybody's. Raises Unreachable, Impostor or another
    PeerError.
    """
    pin = key if isinstance(key, str) else digest_of(key) if key else ""
    connection = await tcp.connect(host, port, layer=tls.dialler(pin), timeout_s=timeout_s)
    found = connection.binding
    connection.close()
    return found
