"""What a person may name: an address, a code, an id or a link, and nothing that is none of them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.routes import Route, route_of
from crowdgrad.errors import TargetError
from crowdgrad.volunteer.target import Target, read
from tests.net.test_links import ALTERATIONS, LINKS, altered, names_a_key

PIN = "0123456789abcdef" * 2
RELAY = route_of("relay:relay.example.org:8702")


def at(host: str, port: int) -> tuple[Route, ...]:
    return (Route(host=host, port=port),)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (None, Target()),
        ("192.0.2.7:8701", Target(routes=at("192.0.2.7", 8701))),
        ("[::1]:8701", Target(routes=at("::1", 8701))),
        ("my.host:1", Target(routes=at("my.host", 1))),
        (f"my.host:1#{PIN[:16]}", Target(routes=at("my.host", 1), key=PIN[:16])),
        (f"[2001:db8::7]:8701#{PIN.upper()}", Target(routes=at("2001:db8::7", 8701), key=PIN)),
        (f"relay:relay.example.org:8702#{PIN}", Target(routes=(RELAY,), key=PIN)),
        (f"relay:wss://relay.example.org/r#{PIN}",
         Target(routes=(route_of("relay:wss://relay.example.org/r"),), key=PIN)),
        ("k7q2 mpx4-9rtm", Target(local_code="K7Q2-MPX4-9RTM")),
        (f"crowdgrad://192.0.2.7:8701/#{PIN}", Target(routes=at("192.0.2.7", 8701), key=PIN)),
        (f"crowdgrad:///?also=relay:relay.example.org:8702&also=192.0.2.7:1&job=digits-1#{PIN}",
         Target(routes=(RELAY, *at("192.0.2.7", 1)), key=PIN, job="digits-1")),
        (f"https://match.example.org/j/K7Q-2MP#{PIN}",
         Target(job="K7Q-2MP", matchmaker="https://match.example.org", key=PIN)),
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
            "https://example.org/crowd/j/K7Q-2MP?from=mail",
            Target(job="K7Q-2MP", matchmaker="https://example.org/crowd"),
        ),
    ],
)  # fmt: skip
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
        "https://match.example.org/j/K7Q-2MP#top",
        "::1:8701",
        "host:1#",
        "host:1#abc",
        f"host:1#{PIN[:15]}",
        f"host:1#{PIN * 3}",
        f"host:1#{PIN}g",
        "relay:relay.example.org:8702",
        "relay:wss://relay.example.org/r",
        "K7Q2-MPX4-9RTA",
        "K7Q2-MPX4-9RT",
        "<>",
        "\u200b",
    ],
)
def test_what_is_none_of_them_is_refused_with_advice(text: str) -> None:
    with pytest.raises(TargetError) as refused:
        read(text)
    assert refused.value.advice
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        f"crowdgrad://192.0.2.7:8701/#{PIN}",
        f"https://match.example.org/j/K7Q-2MP#{PIN}",
        "192.0.2.7:8701",
        f"192.0.2.7:8701#{PIN}",
        "K7Q2-MPX4-9RTM",
        "K7Q-2MP",
    ],
)
@pytest.mark.parametrize(
    "around", [" {}\n", "<{}>", "({}).", "“{}”,", "'{}'", "{}!", "\ufeff{}\u200b", " <{}> ."]
)
def test_what_is_pasted_with_it_does_not_matter(text: str, around: str) -> None:
    assert read(around.format(text)) == read(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("K7Q2-MPX4-9RTA", "cannot be right: a letter is wrong, or two have changed places"),
        ("K7Q2-MPX4-9RT", "cannot be right: it has 11 letters"),
        ("relay:relay.example.org:8702", "does not say whom to call"),
        (f"host:1#{PIN[:15]}", "a pin after # that is not 16 to 64"),
        ("::1:8701", "is not an address.*IPv6 in brackets"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(TargetError, match=reason):
        read(text)


@given(st.one_of(LINKS, st.just(f"https://match.example.org/j/K7Q-2MP#{PIN}")), ALTERATIONS)
def test_an_altered_link_is_not_taken_for_something_without_a_key(
    link: str, alteration: tuple[str, int, str]
) -> None:
    with contextlib.suppress(TargetError):
        assert names_a_key(read(altered(link, *alteration)).key)
