"""The layers of those who dial a relay, against a relay that is played by hand."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import MessageError, NotPutThrough, PeerError
from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import guest
from crowdgrad.net.relay_words import MAGIC, Reader, pack
from crowdgrad.net.relaying import Answering, Calling, Serving
from crowdgrad.net.transport.layers import Bare, Layer, Stack

KEY, HOST = guest("caller"), guest("host")
NONCE, AT = b"n" * 32, "relay.example.org:8702"
CHALLENGE = pack(words.Challenge(nonce=NONCE))
SPLICED = pack(words.Spliced())
REGISTERED = pack(words.Registered(heartbeat_s=5.0, silence_s=20.0))

LAYERS: dict[str, Callable[[], Layer]] = {
    "calling": lambda: Calling(HOST.id, KEY, at=AT),
    "answering": lambda: Answering(b"t" * 16),
    "serving": lambda: Serving(HOST, at=AT, job="digits-1"),
}
SAID = {
    "calling": CHALLENGE + SPLICED,
    "answering": CHALLENGE + SPLICED,
    "serving": CHALLENGE + REGISTERED,
}
any_layer = pytest.mark.parametrize("kind", LAYERS)


def spoken(data: bytes) -> list[words.FROM_DIALLER]:
    reader, found = Reader(magic=True), []
    assert reader.put(data) == b""
    while (body := reader.body()) is not None:
        found.append(words.of_dialler(body))
    assert reader.rest() == b""
    return found


def all_of(layer: Layer) -> bytes:
    room, found = memoryview(bytearray(7)), b""
    while count := layer.read_into(room):
        found += room[:count]
    return found


def begun(kind: str) -> Layer:
    layer = LAYERS[kind]()
    layer.begin()
    return layer


def test_a_caller_greets_signs_and_is_through() -> None:
    layer = begun("calling")
    first = layer.take()
    assert spoken(first) == [words.Hi(version=1)]
    layer.feed(memoryview(CHALLENGE))
    assert not layer.ready
    (call,) = spoken(MAGIC + layer.take())
    assert isinstance(call, words.Call)
    assert (call.host, call.key, call.at) == (HOST.id, KEY.public, AT)
    assert words.is_signed(call, NONCE)
    layer.feed(memoryview(SPLICED + b"hello"))
    assert layer.ready
    assert all_of(layer) == b"hello"
    layer.write(b"back")
    layer.end()
    assert layer.take() == b"back"


def test_a_host_answers_with_its_first_words() -> None:
    layer = begun("answering")
    assert spoken(layer.take()) == [words.Hi(version=1), words.Answer(ticket=b"t" * 16)]
    layer.feed(memoryview(CHALLENGE))
    assert (layer.ready, layer.take()) == (False, b"")
    layer.feed(memoryview(SPLICED))
    assert layer.ready


def test_a_host_is_registered_and_hears_what_it_may_have() -> None:
    layer = Serving(HOST, at=AT, job="digits-1")
    layer.begin()
    layer.take()
    layer.feed(memoryview(CHALLENGE))
    (serve,) = spoken(MAGIC + layer.take())
    assert isinstance(serve, words.Serve)
    assert serve.job == "digits-1"
    assert words.is_signed(serve, NONCE)
    layer.feed(memoryview(REGISTERED + b"frames"))
    assert layer.ready
    assert layer.registered == words.Registered(heartbeat_s=5.0, silence_s=20.0)
    assert all_of(layer) == b"frames"


@any_layer
@given(st.binary(max_size=6000), st.lists(st.integers(0, 1 << 14), max_size=6))
def test_bytes_pass_as_they_are_however_they_come(kind: str, data: bytes, cuts: list[int]) -> None:
    layer, stream, found = begun(kind), SAID[kind] + data, b""
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, stop in itertools.pairwise(bounds):
        layer.feed(memoryview(stream)[start:stop])
        found += all_of(layer)
    assert layer.ready
    assert found == data


@any_layer
@given(st.binary(max_size=6000))
def test_whatever_a_relay_says_is_understood_or_refused(kind: str, data: bytes) -> None:
    for start in (b"", CHALLENGE):
        layer = begun(kind)
        with contextlib.suppress(PeerError):
            layer.feed(memoryview(start + data))
        assert len(layer.take()) < 4096


@any_layer
def test_a_refusal_is_what_the_relay_says(kind: str) -> None:
    layer = begun(kind)
    said = words.Refused(code="CG510", reason="host-full", message="Full.", advice="Later.")
    with pytest.raises(NotPutThrough, match=r"The relay says: Full\. Later\."):
        layer.feed(memoryview(CHALLENGE + pack(said)))
    assert not layer.ready


@any_layer
@pytest.mark.parametrize("said", [
    pack(words.Measuring(bytes=1)), pack(words.Measured()),
], ids=["Measuring", "Measured"])  # fmt: skip
def test_words_out_of_place_are_refused(kind: str, said: bytes) -> None:
    with pytest.raises(MessageError, match="out of place"):
        begun(kind).feed(memoryview(CHALLENGE + said))


@pytest.mark.parametrize("kind", ["calling", "serving"])
def test_nobody_is_through_who_was_not_challenged_or_signs_twice(kind: str) -> None:
    with pytest.raises(MessageError, match="out of place"):
        begun(kind).feed(memoryview(SAID[kind].removeprefix(CHALLENGE)))
    with pytest.raises(MessageError, match="twice"):
        begun(kind).feed(memoryview(CHALLENGE + CHALLENGE))


@pytest.mark.parametrize(("kind", "said"), [
    ("calling", REGISTERED), ("answering", REGISTERED), ("serving", SPLICED),
])  # fmt: skip
def test_each_waits_for_its_own_answer(kind: str, said: bytes) -> None:
    with pytest.raises(MessageError, match="out of place"):
        begun(kind).feed(memoryview(CHALLENGE + said))


def test_a_relay_that_cannot_hear_us_in_time_is_refused() -> None:
    hasty = pack(words.Registered(heartbeat_s=5.0, silence_s=6.0))
    with pytest.raises(MessageError, match="takes us for gone"):
        begun("serving").feed(memoryview(CHALLENGE + hasty))


def test_in_a_stack_the_layer_above_begins_once_somebody_is_reached() -> None:
    above = Bare()
    stack = Stack(Calling(HOST.id, KEY, at=AT), above)
    stack.begin()
    stack.take()
    stack.feed(memoryview(CHALLENGE))
    assert not stack.ready
    stack.feed(memoryview(SPLICED + b"early"))
    assert stack.ready
    assert all_of(stack) == b"early"
