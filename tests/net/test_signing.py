"""Signed requests: the right one is believed, one that differs in anything is not."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import TurnedAway
from crowdgrad.net import signing
from crowdgrad.net.identity import guest

ME = guest("somebody")
RIGHT: dict[str, Any] = {
    "method": "DELETE", "authority": "example.org:8700", "path": "/v1/me?x=1", "body": b'{"a":1}',
}  # fmt: skip
TIMES = st.integers(0, 10**16 - 1)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
lines = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)
requests = st.fixed_dictionaries(
    {"method": lines, "authority": lines, "path": texts, "body": st.binary(max_size=40)}
)


def random_bytes(size: int) -> bytes:
    return hashlib.sha256(b"chance").digest()[:size]


def signed(request: dict[str, Any], time_ms: int = 1_700_000_000_000) -> signing.Proof:
    return signing.sign(ME, **request, time_ms=time_ms, random_bytes=random_bytes)


def meant(request: dict[str, Any]) -> tuple[object, ...]:
    """Case does not matter in a method or the name of a machine."""
    return (
        request["method"].upper(), request["authority"].lower(), request["path"], request["body"],
    )  # fmt: skip


@settings(deadline=None)
@given(requests, TIMES)
def test_the_right_request_is_believed(request: dict[str, Any], time_ms: int) -> None:
    proof = signed(request, time_ms)
    assert proof.key == ME.public.hex()
    assert signing.verify(proof, **request)
    again = signing.from_header(signing.to_header(proof))
    assert again == proof
    assert signing.verify(again, **request)


@settings(deadline=None)
@given(requests, st.sampled_from(sorted(RIGHT)))
@example(RIGHT | {"authority": "example.org"}, "authority")
@example(RIGHT | {"authority": "example.org:8701"}, "authority")
@example(RIGHT | {"method": "GET"}, "method")
@example(RIGHT | {"path": "/v1/me"}, "path")
@example(RIGHT | {"body": b""}, "body")
def test_another_request_is_not(other: dict[str, Any], part: str) -> None:
    changed = RIGHT | {part: other[part]}
    assert signing.verify(signed(RIGHT), **changed) == (meant(changed) == meant(RIGHT))


@settings(deadline=None)
@given(requests, requests, TIMES, TIMES, st.binary(min_size=16, max_size=16))
def test_no_two_requests_have_the_same_text(
    one: dict[str, Any], other: dict[str, Any], at: int, later: int, nonce: bytes
) -> None:
    texts = [
        signing.request_text(**request, time_ms=time_ms, nonce=nonce.hex())
        for request, time_ms in ((one, at), (other, later))
    ]
    assert (texts[0] == texts[1]) == ((meant(one), at) == (meant(other), later))


@settings(deadline=None)
@given(st.text(alphabet="ab\n", max_size=6), st.text(alphabet="ab\n", max_size=6))
def test_a_path_cannot_pass_for_something_else(one: str, other: str) -> None:
    texts = {signing.request_text("GET", "x", path, b"", 1, "0" * 32) for path in (one, other)}
    assert len(texts) == len({one, other})


@settings(deadline=None)
@given(st.sampled_from(["signature", "key", "nonce"]), st.data())
def test_any_bit_that_is_changed_makes_it_worthless(field: str, data: st.DataObject) -> None:
    proof = signed(RIGHT)
    raw = bytearray.fromhex(getattr(proof, field))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    assert not signing.verify(msgspec.structs.replace(proof, **{field: raw.hex()}), **RIGHT)


@settings(deadline=None)
@given(TIMES)
def test_another_time_makes_it_worthless(time_ms: int) -> None:
    proof = signed(RIGHT)
    moved = msgspec.structs.replace(proof, time_ms=time_ms)
    assert signing.verify(moved, **RIGHT) == (time_ms == proof.time_ms)


def test_somebody_elses_signature_is_not_ours() -> None:
    theirs = signing.sign(guest("else"), **RIGHT, time_ms=1, random_bytes=random_bytes)
    assert not signing.verify(msgspec.structs.replace(theirs, key=ME.public.hex()), **RIGHT)


def test_a_signature_for_a_request_serves_for_nothing_else() -> None:
    gift = Gift(units=1, samples=2, flop=3.0)
    credit = signing.credit_text(JobId("mnist-1"), "ab", VolunteerId("cd"), gift)
    request = signing.request_text("GET", "x", "/", b"", 1, "0" * 32)
    contexts = {credit.partition(b"\0")[0], request.partition(b"\0")[0]}
    assert contexts == {b"crowdgrad credit 1", b"crowdgrad request 1"}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.floats(0, 1e29)),
             min_size=2, max_size=2)
)  # fmt: skip
def test_what_is_countersigned_says_how_much(numbers: list[tuple[int, int, float]]) -> None:
    texts, said = set(), set()
    for units, samples, flop in numbers:
        gift = Gift(units=units, samples=samples, flop=flop)
        texts.add(signing.credit_text(JobId("mnist-1"), "ab", VolunteerId("cd"), gift))
        said.add((units, samples, int(flop)))
    assert len(texts) == len(said)


GOOD = signing.to_header(signed(RIGHT))


@settings(deadline=None)
@given(st.text(max_size=400))
@example("")
@example(GOOD + "\n")
@example(" " + GOOD)
@example(GOOD.replace("Crowdgrad", "Bearer"))
@example(GOOD.replace("time=1", "time=٣"))
@example(GOOD.replace("time=1", "time=-1"))
@example(GOOD.upper())
def test_any_other_header_is_turned_away(text: str) -> None:
    with pytest.raises(TurnedAway, match="not signed"):
        signing.from_header(text)


@settings(deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.characters())
def test_a_header_with_one_letter_changed_is_turned_away_or_worthless(at: int, c: str) -> None:
    text = GOOD[:at] + c + GOOD[at + 1 :]
    try:
        proof = signing.from_header(text)
    except TurnedAway:
        return
    assert signing.verify(proof, **RIGHT) == (text == GOOD)
