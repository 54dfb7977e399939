"""Frames survive any cutting; anything else is refused before memory is spent on it."""

from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import Member, Roster
from crowdgrad.errors import FrameError, MessageError, PeerError, VersionMismatch
from crowdgrad.net.framing import (
    HEADER_BYTES,
    MAGIC,
    MAX_FIRST_BODY_BYTES,
    NOWHERE,
    SLACK_BYTES,
    FrameReader,
    pack,
    refuse_payload,
    unpack,
)
from crowdgrad.net.messages import (
    MAX_BODY_BYTES,
    PROTOCOL,
    Exchange,
    Heartbeat,
    Leave,
    Message,
    RosterChanged,
)
from tests.net.message_examples import messages

Frame = tuple[Message, bytes]
MOST = 200_000

frames = st.lists(
    st.tuples(messages, st.one_of(st.just(b""), st.binary(max_size=2000))), max_size=8
)


class CountingSink:
    """Gives memory up to a bound, as every sink of ours does, and counts what it gave."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, message: Message, length: int) -> memoryview:
        if length > MOST:
            raise FrameError(f"{length} bytes are too many.")
        self.given += length
        return memoryview(bytearray(length))


def stream_of(sent: list[Frame]) -> bytes:
    return b"".join(pack(message, len(payload)) + payload for message, payload in sent)


def feed(reader: FrameReader, data: bytes, pieces: list[int] | None = None) -> list[Frame]:
    """Give the reader the bytes as a carrier would, at most so many at a time."""
    heard: list[Frame] = []
    at, turn = 0, 0
    while at < len(data):
        room = reader.buffer()
        assert len(room) > 0
        limit = pieces[turn % len(pieces)] if pieces else len(room)
        part = data[at : at + min(limit, len(room))]
        room[: len(part)] = part
        heard += [(message, bytes(payload)) for message, payload in reader.filled(len(part))]
        at, turn = at + len(part), turn + 1
    return heard


def header(
    *,
    magic: bytes = MAGIC,
    major: int = PROTOCOL[0],
    kind: int = 13,
    body: int = 1,
    payload: int = 0,
) -> bytes:
    fields = struct.pack("<4sBBHIQ", magic, major, PROTOCOL[1], kind, body, payload)
    return fields + struct.pack("<I", zlib.crc32(fields))


@given(frames, st.lists(st.integers(1, 3000), min_size=1, max_size=10))
def test_frames_survive_any_cutting(sent: list[Frame], pieces: list[int]) -> None:
    assert feed(FrameReader(CountingSink()), stream_of(sent), pieces) == sent


@given(frames, st.lists(st.integers(1, 9000), min_size=1, max_size=10), st.data())
def test_frames_survive_any_waiting_for_room(
    sent: list[Frame], pieces: list[int], data: st.DataObject
) -> None:
    """Whenever the sink has no room yet, nothing is read until there is, and nothing is lost."""
    owed: list[int] = []

    def sink(message: Message, length: int) -> memoryview | None:
        if data.draw(st.booleans()):
            return memoryview(bytearray(length))
        owed.append(length)
        return None

    reader, heard = FrameReader(sink), []
    stream, at, turn = stream_of(sent), 0, 0
    while at < len(stream) or reader.stuck:
        if reader.stuck:
            got = reader.make_room(memoryview(bytearray(owed.pop())))
        else:
            room = reader.buffer()
            part = stream[at : at + min(pieces[turn % len(pieces)], len(room))]
            room[: len(part)] = part
            got = reader.filled(len(part))
            at, turn = at + len(part), turn + 1
        heard += [(message, bytes(payload)) for message, payload in got]
    assert heard == sent
    assert not owed


@given(frames, st.lists(st.integers(1, 9000), min_size=1, max_size=10), st.data())
def test_what_nobody_wants_is_passed_over(
    sent: list[Frame], pieces: list[int], data: st.DataObject
) -> None:
    """Its message comes all the same, without it; whatever follows is heard as ever."""

    def sink(message: Message, length: int) -> memoryview:
        return NOWHERE if data.draw(st.booleans()) else memoryview(bytearray(length))

    heard = feed(FrameReader(sink), stream_of(sent), pieces)
    assert [message for message, _ in heard] == [message for message, _ in sent]
    assert all(got in (b"", payload) for (_, got), (_, payload) in zip(heard, sent, strict=True))


@given(frames, st.lists(st.integers(1, 9000), min_size=1, max_size=10), st.data())
def test_a_buffer_may_be_longer_than_its_payload(
    sent: list[Frame], pieces: list[int], data: st.DataObject
) -> None:
    """What lands behind a payload is the next frame's, and nothing is lost of it."""

    def sink(message: Message, length: int) -> memoryview:
        return memoryview(bytearray(length + data.draw(st.sampled_from((0, 1, SLACK_BYTES, 500)))))

    assert feed(FrameReader(sink), stream_of(sent), pieces) == sent


def test_what_nobody_wants_takes_no_memory() -> None:
    reader, length = FrameReader(lambda message, length: NOWHERE), 50 << 20
    assert feed(reader, pack(Exchange(), length)) == []
    for _ in range(length // FrameReader.UNWANTED_BYTES):
        assert len(reader.buffer()) <= FrameReader.UNWANTED_BYTES
        feed(reader, bytes(FrameReader.UNWANTED_BYTES - 1))
    assert feed(reader, bytes(length // FrameReader.UNWANTED_BYTES)) == [(Exchange(), b"")]


def test_somebody_who_only_beats_takes_next_to_nothing() -> None:
    reader = FrameReader(refuse_payload)
    beat = pack(Heartbeat())
    for _ in range(10 * FrameReader.STAGING_BYTES // len(beat)):
        feed(reader, beat)
    assert len(reader.buffer()) == FrameReader.STAGING_BYTES


@given(st.binary(max_size=400))
@example(b"")
@example(b"cgrd" + b"\0" * 60)
def test_any_bytes_are_refused_as_a_peers_fault_or_waited_on(data: bytes) -> None:
    sink = CountingSink()
    with contextlib.suppress(FrameError, VersionMismatch, MessageError):
        feed(FrameReader(sink), data)
    assert sink.given == 0


@given(
    st.integers(0, 70_000),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 64) - 1),
    st.binary(max_size=200),
    st.sampled_from([MAX_FIRST_BODY_BYTES, MAX_BODY_BYTES]),
)
def test_a_sound_header_over_any_bytes_never_costs_more_than_the_sink_allows(
    kind: int, body: int, payload: int, rest: bytes, most_body: int
) -> None:
    sink = CountingSink()
    reader = FrameReader(sink)
    reader.max_body_bytes = most_body
    with contextlib.suppress(PeerError):
        feed(reader, header(kind=kind % (1 << 16), body=body, payload=payload) + rest)
    assert sink.given <= MOST
    grown = most_body + HEADER_BYTES if most_body > FrameReader.STAGING_BYTES else 0
    assert len(reader.buffer()) <= max(MOST, grown + FrameReader.STAGING_BYTES)


@given(frames.filter(bool), st.data())
def test_flipped_bits_and_truncations_raise_nothing_but_peer_errors(
    sent: list[Frame], data: st.DataObject
) -> None:
    stream = bytearray(stream_of(sent))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= 1 << data.draw(st.integers(0, 7))
    del stream[data.draw(st.integers(at, len(stream))) :]
    sink = CountingSink()
    with contextlib.suppress(PeerError):
        feed(FrameReader(sink), bytes(stream))
    assert sink.given <= sum(len(payload) for _, payload in sent)


@given(frames, st.integers(0, 30))
def test_a_cut_stream_yields_the_frames_that_are_whole(sent: list[Frame], lost: int) -> None:
    stream = stream_of(sent)
    heard = feed(FrameReader(CountingSink()), stream[: max(0, len(stream) - lost)])
    assert heard == sent[: len(heard)]
    assert len(heard) == len(sent) or lost > 0


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    sound = pack(Leave(reason="x"), 100)[:HEADER_BYTES]
    for bit in range(8 * HEADER_BYTES):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PeerError):
            unpack(damaged)
    assert unpack(sound).payload_bytes == 100


def test_bytes_of_another_protocol_are_shown() -> None:
    with pytest.raises(FrameError, match=r"b'GET '") as refused:
        unpack(b"GET / HTTP/1.1\r\nHost: example")
    assert refused.value.advice


def test_another_major_version_is_named_with_ours_and_what_to_update() -> None:
    with pytest.raises(VersionMismatch) as refused:
        unpack(header(major=PROTOCOL[0] + 7))
    message = refused.value.message
    assert f"{PROTOCOL[0] + 7}.{PROTOCOL[1]}" in message
    assert f"{PROTOCOL[0]}.{PROTOCOL[1]}" in message.split("we speak")[1]
    assert "Update crowdgrad on the older side" in refused.value.advice


def test_another_major_version_is_recognised_whatever_its_headers_look_like() -> None:
    with pytest.raises(VersionMismatch):
        unpack(MAGIC + bytes([PROTOCOL[0] + 1]) + bytes(19))


def test_a_damaged_header_is_said_to_be_damaged() -> None:
    damaged = bytearray(header())
    damaged[9] ^= 4
    with pytest.raises(FrameError, match="damaged"):
        unpack(damaged)


@pytest.mark.parametrize("most", [MAX_FIRST_BODY_BYTES, MAX_BODY_BYTES])
def test_an_oversized_body_is_refused_from_its_header_alone(most: int) -> None:
    reader = FrameReader(refuse_payload)
    reader.max_body_bytes = most
    with pytest.raises(FrameError, match=f"a body of {most + 1} bytes"):
        feed(reader, header(body=most + 1))
    reader = FrameReader(refuse_payload)
    reader.max_body_bytes = most
    assert feed(reader, header(body=most)) == []


def test_strangers_may_not_say_much_until_we_know_them() -> None:
    assert FrameReader(refuse_payload).max_body_bytes == MAX_FIRST_BODY_BYTES
    with pytest.raises(FrameError, match=f"a body of {MAX_FIRST_BODY_BYTES + 1} bytes"):
        feed(FrameReader(refuse_payload), header(body=MAX_FIRST_BODY_BYTES + 1))
    with pytest.raises(FrameError, match=f"a body of {MAX_BODY_BYTES + 1} bytes"):
        unpack(header(body=MAX_BODY_BYTES + 1))


def test_a_payload_nobody_asked_for_is_refused_from_its_header_alone() -> None:
    frame = pack(Heartbeat(), 1 << 62)
    with pytest.raises(FrameError, match=f"Heartbeat came with {1 << 62} bytes"):
        feed(FrameReader(refuse_payload), frame)


def test_a_message_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(MessageError):
        feed(FrameReader(refuse_payload), header(body=3) + b"abc")


@settings(max_examples=10)
@given(st.integers(1, 200_000))
def test_a_body_larger_than_the_staging_buffer_arrives(piece: int) -> None:
    members = tuple(Member(position=n, id="0123456789abcdef", name=f"nr {n}") for n in range(8000))
    large = RosterChanged(roster=Roster(job="j", members=members))
    sent: list[Frame] = [(Heartbeat(), b""), (large, b"abc"), (Heartbeat(), b""), (large, b"")]
    stream = stream_of(sent)
    assert len(pack(large)) > 3 * FrameReader.STAGING_BYTES
    reader = FrameReader(CountingSink())
    reader.max_body_bytes = MAX_BODY_BYTES
    assert feed(reader, stream, [max(piece, 500)]) == sent


def test_a_payload_goes_straight_to_where_the_sink_says() -> None:
    room = bytearray(100_000)
    reader = FrameReader(lambda message, length: memoryview(room)[:length])
    start = pack(Heartbeat(), len(room)) + b"a" * 10
    assert feed(reader, start) == []
    assert reader.buffer().obj is room
    assert len(reader.buffer()) == len(room) - 10
    reader.buffer()[:] = b"b" * (len(room) - 10)
    [(_, payload)] = reader.filled(len(room) - 10)
    assert payload.obj is room
    assert bytes(payload) == b"a" * 10 + b"b" * (len(room) - 10)
    assert reader.buffer().obj is not room
