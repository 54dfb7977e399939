"""Ways to somebody are read as they are written, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.routes import MAX_ROUTE, Route, Whereabouts, at, route_of

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{2,5})?", fullmatch=True)
SIXES = st.ip_addresses(v=6).map(str)
PORTS = st.integers(1, 65535)


@given(NAMES | SIXES | st.ip_addresses(v=4).map(str), PORTS, st.sampled_from(["direct", "relay"]))
def test_an_address_comes_back_as_it_was(host: str, port: int, kind: str) -> None:
    route = Route(kind=kind, host=host, port=port)  # type: ignore[arg-type]
    assert route_of(str(route)) == route


@given(NAMES, st.none() | PORTS, st.sampled_from(["ws", "wss"]))
def test_a_websocket_names_host_and_port(name: str, port: int | None, scheme: str) -> None:
    url = f"{scheme}://{name}{f':{port}' if port else ''}/r"
    route = route_of(f"relay:{url}")
    assert (route.kind, route.host, route.url) == ("relay", name, url)
    assert route.port == (port or {"ws": 80, "wss": 443}[scheme])
    assert str(route) == f"relay:{url}"


@given(st.text(max_size=40))
def test_whatever_is_read_can_be_written_and_read_again(text: str) -> None:
    try:
        route = route_of(text)
    except ValueError:
        return
    assert route_of(str(route)) == route


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "h", "h:0", "h:65536", "h:x", "::1:5", "[h]:1", "http://h/", "wss://u@h/",
        "ws://h:99999/", "relay:", "relay:relay:h:1", "h:1\n", "h :1", "ä:1",
        "x" * MAX_ROUTE + ":1",
    ],
)  # fmt: skip
def test_what_is_no_way_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        route_of(text)


def test_whereabouts_are_shown_by_their_best_way() -> None:
    assert str(at("::1", 5)) == "[::1]:5"
    assert at("h", 1, "ab" * 8).key == "ab" * 8
    with pytest.raises(ValueError, match="without a way"):
        Whereabouts(routes=())
