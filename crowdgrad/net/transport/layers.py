"""What may lie between a socket and the frames: layers that turn bytes into bytes.

A layer does no input or output itself: bytes from the socket are fed to it and read out of it,
bytes for the socket are written to it and taken from it. So the same TLS runs over a socket, inside
a WebSocket, and through a relay, and a test needs no network to take one apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from crowdgrad.net.transport.base import Payload

PIECE_BYTES = 64 << 10
FIRST_BYTES = 4
"""So many tell what somebody speaks."""


class Layer(Protocol):
    @property
    def ready(self) -> bool:
        """The other end has been reached: what is written from now on is for it."""
        ...

    @property
    def closed(self) -> bool:
        """The other end has said that it sends no more: what still comes is nobody's."""
        ...

    def begin(self) -> None:
        """Say the first word, where it is ours to say."""

    def feed(self, data: memoryview) -> None:
        """Bytes from below; they are not kept. Raises PeerError."""

    def read_into(self, room: memoryview) -> int:
        """Put bytes for above there; 0: there are none yet. Raises PeerError."""
        ...

    def write(self, data: Payload) -> None:
        """Bytes from above, once it is ready. Raises PeerError."""

    def take(self) -> bytes:
        """What is to go below by now."""
        ...

    def end(self) -> None:
        """Say good-bye, where there is such a word."""


class Bytes:
    """A queue of bytes: put in at one end, taken from the other."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._at = 0

    def __len__(self) -> int:
        return len(self._held) - self._at

    def put(self, data: Payload) -> None:
        self._held += data

    def read_into(self, room: memoryview) -> int:
        count = min(len(self), len(room))
        room[:count] = memoryview(self._held)[self._at : self._at + count]
        self._at += count
        if self._at == len(self._held):  # never a memoryview of it is left: it may shrink
            self._held.clear()
            self._at = 0
        return count

    def take(self) -> bytes:
        taken = bytes(memoryview(self._held)[self._at :])
        self._held.clear()
        self._at = 0
        return taken


class Bare:
    """Nothing in between: bytes pass as they are."""

    closed = False

    def __init__(self) -> None:
        self.ready = True
        self._up, self._down = Bytes(), Bytes()

    def begin(self) -> None:
        return

    def feed(self, data: memoryview) -> None:
        self._up.put(data)

    @property
    def empty(self) -> bool:
        return not len(self._up)

    def read_into(self, room: memoryview) -> int:
        return self._up.read_into(room)

    def write(self, data: Payload) -> None:
        self._down.put(data)

    def take(self) -> bytes:
        return self._down.take()

    def end(self) -> None:
        return


class _Chosen:
    """A layer that is another one, once it is known which."""

    def __init__(self) -> None:
        self.chosen: Layer | None = None

    @property
    def ready(self) -> bool:
        return self.chosen is not None and self.chosen.ready

    @property
    def closed(self) -> bool:
        return self.chosen is not None and self.chosen.closed

    def feed(self, data: memoryview) -> None:
        if self.chosen is not None:
            self.chosen.feed(data)

    def read_into(self, room: memoryview) -> int:
        return self.chosen.read_into(room) if self.chosen is not None else 0

    def write(self, data: Payload) -> None:
        assert self.chosen is not None, "it is not ready"
        self.chosen.write(data)

    def take(self) -> bytes:
        return self.chosen.take() if self.chosen is not None else b""

    def end(self) -> None:
        if self.chosen is not None:
            self.chosen.end()


class Late(_Chosen):
    """Chosen when its turn comes, by what is known then."""

    def __init__(self, choose: Callable[[], Layer]) -> None:
        super().__init__()
        self._choose = choose

    def begin(self) -> None:
        self.chosen = self._choose()
        self.chosen.begin()


class Sniffing(_Chosen):
    """A listener's: what the other side begins with tells which layer it speaks."""

    def __init__(self, choose: Callable[[bytes], Layer]) -> None:
        """`choose`: by the first bytes. Raises PeerError."""
        super().__init__()
        self._choose = choose
        self._first = bytearray()

    def begin(self) -> None:
        return

    def feed(self, data: memoryview) -> None:
        if self.chosen is None:
            self._first += data
            if len(self._first) < FIRST_BYTES:
                return
            self.chosen = self._choose(bytes(self._first[:FIRST_BYTES]))
            self.chosen.begin()
            first, self._first = self._first, bytearray()
            data = memoryview(first)
        self.chosen.feed(data)


class Stack:
    """Layers one upon the other, the lowest first; each begins when the one below it is ready."""

    def __init__(self, *layers: Layer) -> None:
        self._layers = layers
        self._begun = 0
        self._piece = memoryview(b"")

    @property
    def top(self) -> Layer:
        return self._layers[-1]

    @property
    def ready(self) -> bool:
        return self._begun == len(self._layers) and self.top.ready

    @property
    def closed(self) -> bool:
        return any(layer.closed for layer in self._layers[: self._begun])

    def begin(self) -> None:
        self._begin_more()

    def feed(self, data: memoryview) -> None:
        if self._begun:
            self._layers[0].feed(data)
            self._rise()

    def _begin_more(self) -> None:
        while self._begun < len(self._layers) and (
            not self._begun or self._layers[self._begun - 1].ready
        ):
            self._layers[self._begun].begin()
            self._begun += 1
            self._sink()  # the first word of one goes out through those below

    def _rise(self) -> None:
        """Hand what has arrived from each to the next, as far as they have begun."""
        if not len(self._piece):
            self._piece = memoryview(bytearray(PIECE_BYTES))
        self._begin_more()
        at = 0
        while at + 1 < self._begun:
            while count := self._layers[at].read_into(self._piece):
                self._layers[at + 1].feed(self._piece[:count])
                self._sink()
            at += 1
            self._begin_more()

    def read_into(self, room: memoryview) -> int:
        return self.top.read_into(room) if self._begun == len(self._layers) else 0

    def write(self, data: Payload) -> None:
        self.top.write(data)

    def _sink(self) -> None:
        for at in range(self._begun - 1, 0, -1):
            if data := self._layers[at].take():
                self._layers[at - 1].write(data)

    def take(self) -> bytes:
        self._sink()
        return self._layers[0].take()

    def end(self) -> None:
        for layer in reversed(self._layers[: self._begun]):
            layer.end()
            self._sink()


def innermost(layer: Layer | None) -> Layer | None:
    """The one next to the frames; None where that is not known yet."""
    while isinstance(layer, Stack | _Chosen):
        layer = layer.top if isinstance(layer, Stack) else layer.chosen
    return layer
