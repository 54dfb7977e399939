"""A WebSocket as a layer: a stream of bytes both ways, and strangers get nowhere with it."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import ConnectionLost, FrameError, PeerError, TurnedAway
from crowdgrad.net.transport import websocket
from crowdgrad.net.transport.layers import Layer
from crowdgrad.net.transport.websocket import (
    FRAMES_INSIDE,
    MAX_MESSAGE_BYTES,
    MESSAGE_BYTES,
    TLS_INSIDE,
    Answering,
    Dialling,
)

URL = "ws://host.example.org:8701/crowdgrad"
HEAD_BYTES = 1 << 20
"""What the library may hold of a head that does not end: 128 lines of 8 kB."""


def agreed(inside: str = TLS_INSIDE) -> tuple[Dialling, Answering]:
    near, far = Dialling(URL, inside), Answering()
    near.begin()
    far.begin()
    far.feed(memoryview(near.take()))
    near.feed(memoryview(far.take()))
    assert near.ready
    assert far.ready
    return near, far


def all_of(layer: Layer, piece: int = 1 << 16) -> bytes:
    room, found = memoryview(bytearray(piece)), b""
    while count := layer.read_into(room):
        found += room[:count]
    return found


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


def held(layer: Dialling | Answering) -> int:
    """How many bytes it keeps: of frames that are not whole, for above, and for below."""
    protocol = layer._protocol
    return len(protocol.reader.buffer) + len(layer._up) + sum(map(len, protocol.writes))


def fed(layer: Dialling | Answering, parts: Iterable[bytes]) -> PeerError | None:
    """What it says to that; meanwhile it never keeps more than a head, or what has come."""
    count = 0
    try:
        for part in parts:
            layer.feed(memoryview(part))
            count += len(part)
            assert held(layer) <= min(2 * count + 200, HEAD_BYTES)
            all_of(layer)
            layer.take()
    except PeerError as error:
        return error
    return None


def request(*lines: str) -> bytes:
    return "\r\n".join(("GET /crowdgrad HTTP/1.1", *lines, "", "")).encode()


UPGRADE = (
    "Host: host.example.org:8701",
    "Upgrade: websocket",
    "Connection: Upgrade",
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
    "Sec-WebSocket-Version: 13",
)


def from_browser(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    """A frame as a client makes it."""
    return Frame(opcode, data, fin).serialize(mask=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3 * MESSAGE_BYTES)), max_size=5),
    st.lists(st.integers(0, 2000), max_size=40),
    st.sampled_from([TLS_INSIDE, FRAMES_INSIDE]),
)
def test_what_is_written_arrives_in_any_pieces(
    writes: list[tuple[bool, int]], sizes: list[int], inside: str
) -> None:
    near, far = Dialling(URL, inside), Answering()
    near.begin()
    for part in split(near.take(), sizes):
        far.feed(memoryview(part))
    for part in split(far.take(), sizes):
        near.feed(memoryview(part))
    assert near.subprotocol == far.subprotocol == inside
    sent: dict[bool, bytes] = {True: b"", False: b""}
    got: dict[bool, bytes] = {True: b"", False: b""}
    for there, size in writes:
        one, other = (near, far) if there else (far, near)
        data = bytes(n % 251 for n in range(size % 997)) * (size // 997 + 1)
        one.write(memoryview(bytearray(data)))
        sent[there] += data
        for part in split(one.take(), sizes):
            other.feed(memoryview(part))
            got[there] += all_of(other, 1000)
    assert got == sent


def test_a_dialler_that_writes_at_once_loses_nothing() -> None:
    """What comes with the last piece of the handshake is not lost."""
    near, far = Dialling(URL), Answering()
    near.begin()
    far.feed(memoryview(near.take()))
    far.write(b"at once")
    near.feed(memoryview(far.take()))
    assert all_of(near) == b"at once"


def test_messages_are_bounded_both_ways() -> None:
    near, far = agreed()
    near.write(bytes(3 * MESSAGE_BYTES + 1))
    frames = near.take()
    assert len(frames) > 3 * MESSAGE_BYTES
    far.feed(memoryview(frames))
    assert len(all_of(far)) == 3 * MESSAGE_BYTES + 1


def test_a_message_that_is_too_long_is_refused_before_it_has_come() -> None:
    _, far = agreed()
    head = from_browser(Opcode.BINARY, bytes(MAX_MESSAGE_BYTES + 1))[:14]
    with pytest.raises(FrameError, match="no WebSocket"):
        far.feed(memoryview(head))
    _, far = agreed()
    part = from_browser(Opcode.BINARY, bytes(MAX_MESSAGE_BYTES // 2), fin=False)
    more = from_browser(Opcode.CONT, bytes(MAX_MESSAGE_BYTES // 2), fin=False)
    far.feed(memoryview(part))
    far.feed(memoryview(more))
    with pytest.raises(FrameError, match="no WebSocket"):
        far.feed(memoryview(from_browser(Opcode.CONT, b"x")))


@pytest.mark.parametrize("fin", [True, False])
def test_text_is_refused(fin: bool) -> None:
    _, far = agreed()
    with pytest.raises(FrameError, match="bytes, not text"):
        far.feed(memoryview(from_browser(Opcode.TEXT, b"hello", fin=fin)))
    assert all_of(far) == b""


def test_frames_that_nobody_masked_are_refused() -> None:
    """A proxy that does not know WebSockets could be made to keep them."""
    _, far = agreed()
    with pytest.raises(FrameError):
        far.feed(memoryview(Frame(Opcode.BINARY, b"x").serialize(mask=False)))


def test_a_ping_is_answered_and_a_farewell_is_not() -> None:
    near, far = agreed()
    far.feed(memoryview(from_browser(Opcode.PING, b"there?")))
    near.feed(memoryview(far.take()))
    assert all_of(near) == all_of(far) == b""
    near.write(b"last")
    near.end()
    near.end()
    far.feed(memoryview(near.take()))
    assert far.closed
    assert all_of(far) == b"last"
    assert far.take() == b""
    for end in (near, far):
        with pytest.raises(ConnectionLost):
            end.write(b"more")
    far.end()
    far.feed(memoryview(b"whatever still comes"))
    assert all_of(far) == b""


# -- strangers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Host: x",), b"426 Upgrade Required"),
        (UPGRADE, b"400 Bad Request"),
        ((*UPGRADE, "Sec-WebSocket-Protocol: chat"), b"400 Bad Request"),
        (UPGRADE[:3], b"400 Bad Request"),
        ((*UPGRADE[:4], "Sec-WebSocket-Version: 7"), b"400 Bad Request"),
    ],
    ids=["a browser", "no subprotocol", "another subprotocol", "no key", "another version"],
)
def test_who_asks_for_something_else_is_answered_as_the_web_answers(
    lines: tuple[str, ...], status: bytes
) -> None:
    far = Answering()
    with pytest.raises(PeerError, match="none of ours") as refused:
        far.feed(memoryview(request(*lines)))
    assert "crowdgrad work" in refused.value.advice
    answer = far.take()
    assert answer.startswith(b"HTTP/1.1 " + status)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert body.strip().isascii()
    assert not far.ready


def test_what_may_not_be_inside_is_refused_with_the_reason() -> None:
    def allowed(inside: str) -> None:
        if inside != TLS_INSIDE:
            raise TurnedAway("Only encrypted.")

    far = Answering(allowed)
    line = f"Sec-WebSocket-Protocol: {FRAMES_INSIDE}"
    with pytest.raises(TurnedAway, match="Only encrypted"):
        far.feed(memoryview(request(*UPGRADE, line)))
    answer = far.take()
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"Only encrypted." in answer
    assert not far.ready
    far = Answering(allowed)
    far.feed(memoryview(request(*UPGRADE, f"{line}, {TLS_INSIDE}")))
    assert far.subprotocol == TLS_INSIDE


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"x" * 20_000,
        b"GET / HTTP/1.1\r\nHost: " + b"\xff" * 20_000,
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET \x00 HTTP/1.1\r\n: \r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
    ids=["old", "no colon", "many", "long", "endless", "other breaks", "null", "another version"],
)
def test_a_request_that_is_none_is_refused_at_once(data: bytes) -> None:
    """Not when its time is up: a stranger's socket would be kept for nothing."""
    far = Answering()
    with pytest.raises(PeerError) as refused:
        far.feed(memoryview(data))
    assert len(refused.value.message) < 400
    assert refused.value.message.isprintable()
    assert not far.ready


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "Upgrade|Connection"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH|HTTP"),
        (b"cgrd" + bytes(20) + b"\r\n", "HTTP"),
        (b"HTTP/1.1 407 " + b"\x1b[2J" * 100 + b"\r\n\r\n", "HTTP"),
    ],
    ids=["forbidden", "a page", "no upgrade", "ssh", "frames", "a proxy"],
)
def test_an_answer_that_is_none_is_refused(answer: bytes, why: str) -> None:
    near = Dialling(URL)
    near.begin()
    with pytest.raises(PeerError, match=why) as refused:
        near.feed(memoryview(answer))
    assert refused.value.message.isprintable()
    assert not near.ready


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["dialling", "answering"]),
    st.booleans(),
    st.binary(max_size=3000) | st.lists(st.binary(max_size=20)).map(b"\r\n".join),
    st.lists(st.integers(0, 300), max_size=20),
)
@example("answering", False, b"\r\n\r\n", [])
@example("dialling", False, b"HTTP/1.1 101\r\n\r\n", [])
@example("answering", True, from_browser(Opcode.CLOSE, b"\x03"), [])
@example("answering", True, from_browser(Opcode.CLOSE, b"\x00\x00"), [])
@example("answering", True, from_browser(Opcode.CLOSE, b"\x03\xe8\xff"), [])
@example("answering", True, from_browser(Opcode.CONT, b"x"), [])
@example("answering", True, b"\x82\xff" + b"\xff" * 8, [])
@example("answering", True, b"\xf2\x80", [])
@example("dialling", True, b"\x82\x7f" + b"\xff" * 8, [])
def test_any_bytes_are_refused_or_waited_for(
    which: str, open_: bool, data: bytes, sizes: list[int]
) -> None:
    """Nothing else is ever raised, and little is kept of them."""
    makers: dict[str, Callable[[], Dialling | Answering]] = {
        "dialling": lambda: agreed()[0] if open_ else Dialling(URL),
        "answering": lambda: agreed()[1] if open_ else Answering(),
    }
    layer = makers[which]()
    if not open_:
        layer.begin()
        layer.take()
    first = b"" if open_ or which == "dialling" else b"GET "
    error = fed(layer, split(first + data, sizes))
    assert error is None or error.message.isprintable()
    layer.take()
    layer.end()
    layer.take()


@pytest.mark.parametrize("which", ["dialling", "answering"])
def test_a_head_that_never_ends_is_not_kept_for_ever(which: str) -> None:
    layer = Dialling(URL) if which == "dialling" else Answering()
    layer.begin()
    first = b"HTTP/1.1 200 OK\r\n" if which == "dialling" else b"GET / HTTP/1.1\r\n"
    layer.feed(memoryview(first))
    lines = (b"X-%d: " % number + b"y" * 8000 + b"\r\n" for number in range(10_000))
    assert fed(layer, lines) is not None


def test_pings_do_not_pile_up_in_the_layer() -> None:
    """Each is answered when it comes; the carrier bounds what nobody reads."""
    _, far = agreed()
    ping = from_browser(Opcode.PING, os.urandom(125))
    for _ in range(100):
        far.feed(memoryview(ping * 10))
        assert len(far.take()) == 10 * 127
        assert held(far) == 0


@settings(deadline=None)
@given(
    st.from_regex(r"relay:wss?://[!-~]{1,60}", fullmatch=True)
    | st.tuples(st.sampled_from(["ws", "wss"]), st.text("abc.-_:[]@/?%0", max_size=20)).map(
        lambda parts: f"relay:{parts[0]}://{parts[1]}"
    )
)
@example("relay:wss://match.example.org/r?x=1")
@example("relay:wss://[::1]:1/")
@example("relay:wss://.example.org/")
def test_every_way_by_a_url_can_be_dialled(text: str) -> None:
    """Strangers tell us of ways: one that is none must be refused when it is read."""
    try:
        route = route_of(text)
    except ValueError:
        return
    layer = Dialling(route.url)
    layer.begin()
    first = layer.take()
    assert first.startswith(websocket.FIRST_BYTES)
    assert first.count(b"\r\n\r\n") == 1
    assert first.endswith(b"\r\n\r\n")
