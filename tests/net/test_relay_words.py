"""Words at a relay: read as they were written, signed for one purpose, bounded whatever comes."""

from __future__ import annotations

import contextlib
import inspect
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import (
    FrameError,
    MessageError,
    NotPutThrough,
    PeerError,
    Replaced,
    TurnedAway,
    VersionMismatch,
)
from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import guest
from crowdgrad.net.relay_words import MAGIC, MAX_WORD_BYTES, Reader, pack
from tests.net.relay_examples import EXAMPLES, from_diallers

KEY, OTHER = guest("one"), guest("another")
NONCE, AT = b"n" * 32, "relay.example.org:8702"


def all_words(stream: bytes, cuts: list[int], *, magic: bool) -> tuple[list[bytes], bytes]:
    """Every body in a stream that arrives in pieces, and what is left of it."""
    reader, found = Reader(magic=magic), []
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, stop in itertools.pairwise(bounds):
        rest = reader.put(stream[start:stop])
        while (body := reader.body()) is not None:
            found.append(body)
            rest = reader.put(rest)
        assert not rest, "a whole word fits"
    return found, reader.rest()


def test_there_is_an_example_of_every_word() -> None:
    assert {type(word) for word in EXAMPLES} == set(words.WORDS)


@pytest.mark.parametrize("word", words.WORDS, ids=lambda word: word.__name__)
def test_every_word_is_one_sentence_one_side_says(word: type[words.Word]) -> None:
    sentence = inspect.getdoc(word) or ""
    assert sentence.startswith(("Dialler: ", "Relay: ", "Host: ", "Volunteer: ", "Anyone: "))
    assert "\n" not in sentence


@pytest.mark.parametrize("word", EXAMPLES, ids=lambda word: type(word).__name__)
def test_what_is_packed_is_read(word: words.Word) -> None:
    (body,), rest = all_words(pack(word), [], magic=False)
    read = words.of_relay if isinstance(word, words.FROM_RELAY) else words.of_dialler
    assert read(body) == word
    assert rest == b""


@given(st.lists(from_diallers, max_size=5), st.lists(st.integers(0, 1 << 20), max_size=8))
def test_words_are_the_same_however_they_are_cut(said: list[words.Word], cuts: list[int]) -> None:
    found, rest = all_words(MAGIC + b"".join(map(pack, said)) + b"\xff", cuts, magic=True)
    assert [words.of_dialler(body) for body in found] == said
    assert rest == b"\xff"


@given(st.binary(max_size=8192), st.booleans())
def test_whatever_comes_is_refused_or_read_and_never_more_than_a_word_is_kept(
    stream: bytes, magic: bool
) -> None:
    reader = Reader(magic=magic)
    with contextlib.suppress(FrameError):
        rest = reader.put(stream)
        while (body := reader.body()) is not None:
            assert len(body) <= MAX_WORD_BYTES
            for read in (words.of_dialler, words.of_relay):
                with contextlib.suppress(MessageError):
                    read(body)
            rest = reader.put(rest)
    assert len(reader.rest()) <= len(MAGIC) + 2 + MAX_WORD_BYTES


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=20), lambda inner:
       st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
       max_leaves=10))  # fmt: skip
def test_json_that_is_no_word_is_refused(value: object) -> None:
    body = msgspec.json.encode(value)
    for read in (words.of_dialler, words.of_relay):
        with pytest.raises(MessageError):
            read(body)


def test_deep_json_is_refused() -> None:
    with pytest.raises(MessageError):
        words.of_dialler(b'{"say":"Hi","x":' + b"[" * 1000 + b"]" * 1000 + b',"version":1}')


@pytest.mark.parametrize("body", [
    b'{"say":"Hi"}', b'{"say":"Hi","version":-1}', b'{"say":"Hi","version":1.5}', b"[]", b"", b"{",
    b'{"say":"Answer","ticket":"AAAA"}', b'{"say":"Spliced"}', b'{"say":"Nothing"}',
    b'{"say":"Measure","bytes":0,"key":"","signature":""}',
], ids=repr)  # fmt: skip
def test_words_out_of_bounds_are_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        words.of_dialler(body)


@pytest.mark.parametrize("field", [
    {"host": "a1"}, {"host": "A1" * 8}, {"host": "a1" * 8 + "\n"}, {"host": "a1" * 33},
    {"at": "a b"}, {"at": "a\nb"}, {"at": "x" * 263}, {"job": "a\n"}, {"job": "a b"},
    {"job": "x" * 65}, {"key": "AAAA"}, {"signature": "AAAA"},
], ids=repr)  # fmt: skip
def test_a_call_is_as_it_must_be(field: dict[str, str]) -> None:
    sound = msgspec.to_builtins(words.call(KEY, NONCE, at=AT, host="a1" * 8))
    assert words.of_dialler(msgspec.json.encode(sound))
    with pytest.raises(MessageError):
        words.of_dialler(msgspec.json.encode({**sound, **field}))


def test_newer_diallers_may_say_more() -> None:
    assert words.of_dialler(b'{"say":"Hi","version":1,"more":[1]}') == words.Hi(version=1)


def test_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(VersionMismatch, match="Update crowdgrad"):
        words.check_version(words.Hi(version=2))


@pytest.mark.parametrize("first", [b"HTTP", b"cgrd", b"\x16\x03", b"c\0"], ids=repr)
def test_who_speaks_something_else_is_noticed_at_once(first: bytes) -> None:
    reader = Reader(magic=True)
    reader.put(first)
    with pytest.raises(FrameError):
        reader.body()


def test_a_length_beyond_the_bound_is_refused_before_anything_is_kept() -> None:
    reader = Reader(magic=True)
    reader.put(MAGIC + (MAX_WORD_BYTES + 1).to_bytes(2, "little"))
    with pytest.raises(FrameError, match="2049"):
        reader.body()


# -- signatures -------------------------------------------------------------------------------


def test_what_is_signed_is_for_one_challenge_one_relay_and_one_purpose() -> None:
    call = words.call(KEY, NONCE, at=AT, host=OTHER.id, job="digits-1")
    assert words.is_signed(call, NONCE)
    assert not words.is_signed(call, b"m" * 32)
    for change in (
        {"at": "other.example.org:8702"},
        {"host": KEY.id},
        {"job": "digits-2"},
        {"key": OTHER.public},
        {"signature": b"s" * 64},
    ):
        assert not words.is_signed(msgspec.structs.replace(call, **change), NONCE), change
    serve = words.serve(KEY, NONCE, at=AT, job="digits-1")
    assert words.is_signed(serve, NONCE)
    stolen = msgspec.structs.replace(serve, signature=call.signature)
    assert not words.is_signed(stolen, NONCE)
    measure = words.measure(KEY, NONCE, at=AT, count=10)
    assert words.is_signed(measure, NONCE)
    assert not words.is_signed(msgspec.structs.replace(measure, bytes=11), NONCE)


def test_a_key_that_is_none_has_signed_nothing() -> None:
    call = words.call(KEY, NONCE, at=AT, host=OTHER.id)
    assert not words.is_signed(msgspec.structs.replace(call, key=b"\xff" * 32), NONCE)


@pytest.mark.parametrize(("route", "at"), [
    ("relay:Relay.Example.org:8702", "relay.example.org:8702"),
    ("relay:[2001:DB8::1]:8702", "[2001:db8::1]:8702"),
    ("relay:wss://match.example.org/r", "match.example.org:443"),
])  # fmt: skip
def test_a_relay_is_known_by_what_was_dialled(route: str, at: str) -> None:
    assert words.at_of(route_of(route)) == at


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["No.", "x" * 500, "\N{SNOWMAN}" * 500, '"\\' * 250])
def test_every_refusal_fits_and_says_who_it_is_from(message: str) -> None:
    said = words.refusal(NotPutThrough(message, advice=message), "host-full")
    (body,), _ = all_words(pack(said), [], magic=False)
    error = words.told(words.of_relay(body))  # type: ignore[arg-type]
    assert isinstance(error, NotPutThrough)
    assert error.message.startswith("The relay says: ")


@pytest.mark.parametrize(("code", "kind"), [
    ("CG507", Replaced), ("CG506", TurnedAway), ("CG510", NotPutThrough),
    ("CG104", NotPutThrough), ("", NotPutThrough),
])  # fmt: skip
def test_a_refusal_is_of_the_kind_its_code_names(code: str, kind: type[PeerError]) -> None:
    said = words.Refused(code=code, reason="x", message="a\x1b[2Jb", advice="c\nd")
    error = words.told(said)
    assert type(error) is kind
    assert str(error).isprintable()


def test_a_ticket_is_not_shown() -> None:
    assert "t" * 16 not in repr(words.Answer(ticket=b"t" * 16))
