"""Pairs through a relay, made one after the other with plain blocking sockets.

What comes out are the two sockets of each pair, spliced: what one sends the other receives. Hosts
and callers have keys of their own, as in life: a relay counts by keys.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crowdgrad.net.framing import FrameReader, refuse_payload
from crowdgrad.net.identity import Identity, digest_of, guest
from crowdgrad.net.messages import RelayKnock
from crowdgrad.net.relaying import Answering, Calling, Serving
from crowdgrad.net.transport.layers import Layer

ANSWER_S = 30.0
Address = tuple[str, int]
Tune = Callable[[socket.socket], None]


def name(relay: Address) -> str:
    return f"{relay[0]}:{relay[1]}"


class Pair(NamedTuple):
    caller: socket.socket
    host: socket.socket


class Host:
    """A host that waits at the relay to be called."""

    def __init__(self, relay: Address, tune: Tune) -> None:
        """`tune`: sets options of a socket before it dials."""
        self._relay, self._tune = relay, tune
        self.key = guest()
        layer = Serving(self.key, at=name(relay))
        self._control = dial(relay, layer, tune)
        until_ready(self._control, layer)
        self._reader = FrameReader(refuse_payload)

    def answer(self) -> tuple[socket.socket, Layer]:
        """Wait for a knock, and dial."""
        layer = Answering(self._knock())
        return dial(self._relay, layer, self._tune), layer

    def _knock(self) -> bytes:
        while True:
            count = self._control.recv_into(self._reader.buffer())
            for message, _ in self._reader.filled(count):
                if isinstance(message, RelayKnock):
                    return message.ticket
            if not count:
                raise SystemExit("The relay has gone.")

    def close(self) -> None:
        self._control.close()


def call(relay: Address, host: Host, key: Identity, tune: Tune) -> Pair:
    calling = Calling(digest_of(host.key.public), key, at=name(relay))
    caller = dial(relay, calling, tune)
    hear(caller, calling)  # the challenge; what it asks for goes out
    answered, answering = host.answer()
    until_ready(answered, answering)
    until_ready(caller, calling)
    return Pair(caller, answered)


@contextlib.contextmanager
def pairs(
    relay: Address, hosts: int, each: int, tune: Tune = lambda sock: None
) -> Iterator[list[Pair]]:
    """`each`: callers of every host."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(hosts):
            host = Host(relay, tune)
            stack.callback(host.close)
            for _ in range(each):
                pair = call(relay, host, guest(), tune)
                for sock in pair:
                    stack.callback(sock.close)
                made.append(pair)
        yield made


def dial(relay: Address, layer: Layer, tune: Tune) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tune(sock)
    sock.settimeout(ANSWER_S)
    sock.connect(relay)
    layer.begin()
    sock.sendall(layer.take())
    return sock


def hear(sock: socket.socket, layer: Layer) -> None:
    said = sock.recv(4096)
    if not said:
        raise SystemExit("The relay hung up.")
    layer.feed(memoryview(said))
    sock.sendall(layer.take())


def until_ready(sock: socket.socket, layer: Layer) -> None:
    while not layer.ready:
        hear(sock, layer)
