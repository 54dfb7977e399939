"""Layers: in whichever pieces bytes come, what comes out is the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crowdgrad.errors import FrameError, TurnedAway
from crowdgrad.net.identity import digest_of, guest
from crowdgrad.net.transport import tls, websocket
from crowdgrad.net.transport.base import Payload
from crowdgrad.net.transport.layers import (
    FIRST_BYTES,
    Bare,
    Bytes,
    Late,
    Layer,
    Sniffing,
    Stack,
    innermost,
)

KEY = guest("a listener")
PIN = digest_of(KEY.public)


class Queue(RuleBasedStateMachine):
    """`Bytes` beside a list of numbers that says the same."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Bytes()
        self.model = b""

    @rule(data=st.binary(max_size=50), kind=st.sampled_from([bytes, bytearray, memoryview]))
    def put(self, data: bytes, kind: type[bytearray]) -> None:
        self.queue.put(kind(data))
        self.model += data

    @rule(room=st.integers(0, 60))
    def read(self, room: int) -> None:
        into = memoryview(bytearray(b"\xff" * room))
        count = self.queue.read_into(into)
        assert count == min(room, len(self.model))
        assert bytes(into) == self.model[:count] + b"\xff" * (room - count)
        self.model = self.model[count:]

    @rule()
    def take(self) -> None:
        assert self.queue.take() == self.model
        self.model = b""

    @invariant()
    def as_long_as_the_model(self) -> None:
        assert len(self.queue) == len(self.model)


TestBytes = Queue.TestCase
TestBytes.settings = settings(max_examples=50, deadline=None)


class Toll:
    """A layer that wants a word before it lets anything pass, and turns every byte over.

    `word`: said by both; the dialler says it first.
    """

    def __init__(self, word: bytes, *, dials: bool) -> None:
        self.ready = self.ended = self.began = False
        self._word, self._dials = word, dials
        self._heard = b""
        self._up, self._down = Bytes(), Bytes()

    def begin(self) -> None:
        assert not self.began, "once"
        self.began = True
        if self._dials:
            self._down.put(self._word)

    def feed(self, data: memoryview) -> None:
        assert self.began
        if self.ready:
            self._up.put(turned(bytes(data)))
            return
        self._heard += bytes(data)
        if len(self._heard) >= len(self._word):
            if not self._heard.startswith(self._word):
                raise FrameError("another word")
            self.ready = True
            if not self._dials:
                self._down.put(self._word)
            self._up.put(turned(self._heard[len(self._word) :]))

    def read_into(self, room: memoryview) -> int:
        return self._up.read_into(room)

    def write(self, data: Payload) -> None:
        assert self.ready, "written before it was ready"
        self._down.put(turned(bytes(data)))

    def take(self) -> bytes:
        return self._down.take()

    def end(self) -> None:
        self.ended = True
        if self.ready:
            self._down.put(turned(b"."))


def turned(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)


def all_of(layer: Layer, piece: int = 1 << 16) -> bytes:
    room, found = memoryview(bytearray(piece)), b""
    while count := layer.read_into(room):
        found += room[:count]
    return found


class Wire:
    """Between two layers, in pieces of given sizes; then whole."""

    def __init__(self, near: Layer, far: Layer, pieces: list[int]) -> None:
        self.near, self.far = near, far
        self._pieces = list(pieces)
        self._under_way: dict[Layer, bytes] = {near: b"", far: b""}

    def carry(self) -> None:
        """Until nobody has anything to say."""
        while self._turn():
            pass

    def _turn(self) -> bool:
        moved = False
        for one, other in ((self.near, self.far), (self.far, self.near)):
            self._under_way[one] += one.take()
            data = self._under_way[one]
            size = self._pieces.pop() if self._pieces else len(data)
            if data[:size]:
                other.feed(memoryview(data[:size]))
                self._under_way[one] = data[size:]
            moved = moved or bool(data)
        return moved


def stacked(dials: bool, heights: list[int]) -> Stack:
    return Stack(*(Toll(b"abcdefg"[:height], dials=dials) for height in heights))


pieces = st.lists(st.integers(0, 9), max_size=60)
heights = st.lists(st.integers(1, 7), min_size=1, max_size=4)


@settings(deadline=None)
@given(heights, pieces, st.binary(max_size=200), st.binary(max_size=200), st.booleans())
def test_a_stack_is_the_same_in_any_pieces(
    heights: list[int], pieces: list[int], there: bytes, back: bytes, early: bool
) -> None:
    near, far = stacked(True, heights), stacked(False, heights)
    wire = Wire(near, far, pieces)
    near.begin()
    far.begin()
    assert not near.ready
    wire.carry()
    assert near.ready
    assert far.ready
    near.write(there)
    if not early:
        wire.carry()
    far.write(back)
    wire.carry()
    assert all_of(far, 7) == there
    assert all_of(near) == back
    assert all_of(near) == all_of(far) == b""
    near.end()
    wire.carry()
    assert innermost(near) is near.top
    assert isinstance(near.top, Toll)
    assert near.top.ended


def test_a_layer_begins_when_the_one_below_is_ready() -> None:
    low, high = Toll(b"low", dials=False), Toll(b"high", dials=True)
    stack = Stack(low, high)
    stack.feed(memoryview(b"before anything has begun"))
    stack.begin()
    assert not high.began
    assert stack.read_into(memoryview(bytearray(9))) == 0
    stack.feed(memoryview(b"lo"))
    assert not high.began
    stack.feed(memoryview(b"w" + turned(b"high" + turned(b"hello"))))
    assert stack.ready
    assert stack.take() == b"low" + turned(b"high")
    assert all_of(stack) == b"hello"


@settings(deadline=None)
@given(pieces, st.binary(max_size=100))
def test_a_layer_that_is_chosen_late_is_the_same(pieces: list[int], data: bytes) -> None:
    chosen: list[Toll] = []

    def choose() -> Toll:
        chosen.append(Toll(b"late", dials=False))
        return chosen[-1]

    late = Late(choose)
    assert not late.ready
    assert all_of(late) == late.take() == b""
    late.end()
    late.feed(memoryview(b"nobody is there yet"))
    near = stacked(True, [3, 4])
    near.top._word = b"late"  # type: ignore[attr-defined]
    far = Stack(Toll(b"abc", dials=False), late)
    wire = Wire(near, far, pieces)
    near.begin()
    far.begin()
    assert chosen == []
    wire.carry()
    (only,) = chosen
    assert innermost(far) is only
    near.write(data)
    wire.carry()
    assert all_of(far) == data
    far.end()
    assert only.ended


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


@settings(deadline=None)
@given(st.binary(max_size=300), pieces)
@example(b"", [])
@example(b"cgr", [1, 1, 1])
@example(b"cgrd", [3, 1])
@example(b"cgrd!", [1, 1, 1, 1])
def test_a_listener_sniffs_the_same_in_any_pieces(data: bytes, sizes: list[int]) -> None:
    asked: list[bytes] = []

    def choose(first: bytes) -> Layer:
        asked.append(first)
        return Bare()

    sniffing = Sniffing(choose)
    sniffing.begin()
    assert innermost(sniffing) is None
    found = b""
    for part in split(data, sizes):
        sniffing.feed(memoryview(part))
        found += all_of(sniffing, 5)
    if len(data) < FIRST_BYTES:
        assert (asked, found, sniffing.ready) == ([], b"", False)
        assert sniffing.take() == b""
        sniffing.end()
    else:
        assert asked == [data[:FIRST_BYTES]]
        assert found == data
        assert sniffing.ready
        sniffing.write(b"back")
        assert sniffing.take() == b"back"


def test_who_speaks_nothing_we_know_is_refused_in_any_pieces() -> None:
    def choose(first: bytes) -> Layer:
        raise TurnedAway("no")

    for sizes in ([], [1, 1, 1], [2]):
        sniffing = Sniffing(choose)
        *before, last = split(b"nope", sizes)
        for part in before:
            sniffing.feed(memoryview(part))
        with pytest.raises(TurnedAway):
            sniffing.feed(memoryview(last))
        assert innermost(sniffing) is None, "nobody can tell what it speaks"


def test_bytes_pass_as_they_are_where_nothing_is_in_between() -> None:
    bare = Bare()
    bare.begin()
    assert bare.ready
    assert bare.empty
    bare.feed(memoryview(b"there"))
    assert not bare.empty
    assert all_of(bare, 2) == b"there"
    assert bare.empty
    bare.write(b"back")
    bare.end()
    assert bare.take() == b"back"
    assert innermost(bare) is bare
    assert innermost(None) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=60), st.integers(0, 200_000), st.integers(0, 200_000))
def test_tls_in_a_websocket_is_the_same_in_any_pieces(
    pieces: list[int], there: int, back: int
) -> None:
    answering = websocket.Answering()
    near = Stack(websocket.Dialling("ws://host:1/crowdgrad"), tls.dialler(PIN))
    far = Sniffing(lambda first: Stack(answering, Late(lambda: tls.listener(KEY))))
    wire = Wire(near, far, pieces)
    near.begin()
    far.begin()
    wire.carry()
    assert near.ready
    assert far.ready
    near.write(bytes(range(256)) * (there // 256))
    far.write(bytes(range(255, -1, -1)) * (back // 256))
    wire.carry()
    assert all_of(far) == bytes(range(256)) * (there // 256)
    assert all_of(near, 1000) == bytes(range(255, -1, -1)) * (back // 256)
    found = innermost(far)
    assert isinstance(found, tls.Tls)
    near.end()
    wire.carry()
    all_of(far)
    assert found.closed
    assert answering.closed
