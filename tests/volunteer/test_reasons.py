"""Why this job: as its owner said, as the matchmaker says, or as far as is known."""

from __future__ import annotations

import pytest

from crowdgrad.volunteer import reasons, target


@pytest.mark.parametrize(
    ("reason", "cause", "said"),
    [
        ("job “Bees” has room (2 of 9); you like nature", "nature", "The matchmaker found it for "
         "you: job “Bees” has room (2 of 9); you like nature."),
        ("", "Nature", "You like to help Nature."),
        ("", "war", "The matchmaker found it for you."),
        ("", "", "The matchmaker found it for you."),
        ("\x1b[2Jit is\nclose.", "", "The matchmaker found it for you: [2Jit is close."),
    ],
)  # fmt: skip
def test_a_match_has_the_matchmakers_reason_or_ours(reason: str, cause: str, said: str) -> None:
    assert reasons.matched(reason, cause, ("nature", "")) == said


def test_a_matchmakers_words_are_bounded() -> None:
    assert len(reasons.matched("x" * 1000, "", ())) < reasons.MAX_SAID + 50


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("K7Q-2MP", "code"),
        (" k7q2mp.", "code"),
        ("192.0.2.7:8701", "address"),
        ("relay:relay.example.org:8702#" + "ab" * 8, "address"),
        ("https://match.example.org/j/K7Q-2MP#" + "ab" * 16, "link"),
        ("20260101-120000-abcd", "id"),
    ],
)
def test_what_was_named_is_known_by_how(text: str, how: str) -> None:
    assert target.how(text) == how
