"""What a person may name: an address, a code, an id or a link, and nothing that is none of them."""

from __future__ import annotations

import pytest

from crowdgrad.errors import TargetError
from crowdgrad.volunteer.target import Target, read


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (None, Target()),
        ("192.0.2.7:8701", Target(address=("192.0.2.7", 8701))),
        ("[::1]:8701", Target(address=("::1", 8701))),
        ("my.host:1", Target(address=("my.host", 1))),
        ("K7Q-2MP", Target(job="K7Q-2MP")),
        ("k7q 2mp", Target(job="k7q 2mp")),
        ("20260101-120000-digits-ab12", Target(job="20260101-120000-digits-ab12")),
        (
            "https://match.example.org/j/K7Q-2MP",
            Target(job="K7Q-2MP", matchmaker="https://match.example.org"),
        ),
        (
            "http://127.0.0.1:8700/j/k7q2mp/",
            Target(job="K7Q-2MP", matchmaker="http://127.0.0.1:8700"),
        ),
        (
            "https://example.org/crowd/j/K7Q-2MP?from=mail#top",
            Target(job="K7Q-2MP", matchmaker="https://example.org/crowd"),
        ),
    ],
)
def test_what_it_names(text: str | None, target: Target) -> None:
    assert read(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no such thing!",
        "host:0",
        "host:65536",
        "host:99999999999999999999",
        "host:port",
        ":8701",
        "https://match.example.org/",
        "https://match.example.org/j/",
        "https://match.example.org/j/nothing",
        "https://match.example.org/k/K7Q-2MP",
        "ftp://match.example.org/j/K7Q-2MP",
        "https:///j/K7Q-2MP",
        "https://[::1/j/K7Q-2MP",
        "https://\x1b[2J/j/no",
    ],
)
def test_what_is_none_of_them_is_refused_with_advice(text: str) -> None:
    with pytest.raises(TargetError) as refused:
        read(text)
    assert refused.value.advice
    assert str(refused.value).isprintable()
