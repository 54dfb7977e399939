"""Introductions: only the matchmaker's own, for this job, host and volunteer, and for a while."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId
from crowdgrad.errors import TurnedAway
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.introduction import (
    MAX_CHARACTERS,
    SKEW_S,
    VALID_S,
    Introduction,
    check,
    write,
)

MATCHMAKER, ME = guest("the matchmaker"), guest("somebody")
AT = 1.7e9
SAID = Introduction(
    job="mnist-1", host="ab" * 8, volunteer=ME.id, position=3, written_at=AT
)  # fmt: skip
TEXT = write(MATCHMAKER, SAID)
HERE: dict[str, Any] = {
    "public": MATCHMAKER.public, "job": JobId("mnist-1"), "host": "ab" * 8, "volunteer": ME.id,
    "now": AT + 1,
}  # fmt: skip


def test_the_matchmakers_own_is_believed() -> None:
    assert check(TEXT, **HERE) == SAID
    assert len(TEXT) < MAX_CHARACTERS


def test_the_longest_fits_into_its_message() -> None:
    longest = Introduction(
        job="x" * 64, host="y" * 128, volunteer="z" * 64, position=1 << 31, written_at=AT + 0.123456
    )
    assert len(write(MATCHMAKER, longest)) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"job": JobId("mnist-2")}, "another job"),
        ({"host": "cd" * 8}, "somebody else"),
        ({"volunteer": guest("else").id}, "somebody else"),
        ({"public": ME.public}, "not signed by our matchmaker"),
        ({"public": b""}, "not signed by our matchmaker"),
        ({"now": AT - SKEW_S - 1}, "out of date"),
        ({"now": AT + VALID_S + SKEW_S + 1}, "out of date"),
    ],
)
def test_for_others_or_at_another_time_it_is_worth_nothing(
    change: dict[str, Any], why: str
) -> None:
    with pytest.raises(TurnedAway, match=why) as refused:
        check(TEXT, **{**HERE, **change})
    assert "crowdgrad work CODE" in refused.value.advice


@pytest.mark.parametrize("now", [AT - SKEW_S, AT, AT + VALID_S, AT + VALID_S + SKEW_S])
def test_clocks_may_differ_a_little(now: float) -> None:
    assert check(TEXT, **{**HERE, "now": now}) == SAID


@settings(deadline=None)
@given(st.floats(allow_nan=False), st.floats(0, 1e18))
def test_at_any_time_it_holds_or_is_out_of_date(now: float, written_at: float) -> None:
    text = write(
        MATCHMAKER,
        Introduction(job="j", host="h", volunteer="v", position=1, written_at=written_at),
    )
    here = {"public": MATCHMAKER.public, "job": "j", "host": "h", "volunteer": "v", "now": now}
    if -SKEW_S <= now - written_at <= VALID_S + SKEW_S:
        assert check(text, **here).written_at == written_at  # type: ignore[arg-type]
    else:
        with pytest.raises(TurnedAway, match="out of date"):
            check(text, **here)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9_\-]{0,200}\.[A-Za-z0-9_\-]{0,120}"))
@example("")
@example(".")
@example("..")
@example(TEXT + ".")
@example(TEXT * 1000)
def test_any_other_text_is_turned_away(text: str) -> None:
    with pytest.raises(TurnedAway):
        check(text, **HERE)


@settings(deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_one_letter_changed_is_turned_away_or_says_the_same(at: int, c: str) -> None:
    try:
        assert check(TEXT[:at] + c + TEXT[at + 1 :], **HERE) == SAID
    except TurnedAway:
        assert c != TEXT[at]


def _signed(body: bytes, key: Identity = MATCHMAKER) -> str:
    """As `write` does it, of anything."""
    parts = (body, key.sign_text(b"crowdgrad introduction 1\0" + body))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@settings(deadline=None)
@given(st.binary(max_size=200))
@example(b"{}")
@example(b"[]")
@example(b"null")
@example(b'{"job":1,"host":"","volunteer":"","position":0,"written_at":0}')
@example(b'{"job":"j","host":"h","volunteer":"v","position":1e99,"written_at":0}')
@example(b"[" * 200)
@example(b"""{"x":""" + b"[" * 600)
def test_nonsense_is_turned_away_though_it_is_signed(body: bytes) -> None:
    with pytest.raises(TurnedAway, match="cannot be read"):
        check(_signed(body), **HERE)


def test_a_signature_for_something_else_is_none() -> None:
    body = TEXT.partition(".")[0]
    raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    bare = base64.urlsafe_b64encode(MATCHMAKER.sign_text(raw)).rstrip(b"=").decode()
    with pytest.raises(TurnedAway, match="not signed by our matchmaker"):
        check(f"{body}.{bare}", **HERE)
