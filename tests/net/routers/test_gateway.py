"""The way out, as the kernel tells it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.gateway import default_gateway, first_of, way_out

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
LAN = "eth0\t004DA8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
WIRE = "eth0\t00000000\t014DA8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
RADIO = "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
DOWN = "eth1\t00000000\t0101000A\t0002\t0\t0\t0\t00000000\t0\t0\t0\n"
TUNNEL = "tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([LAN, WIRE], "192.168.77.1"),
        ([RADIO, WIRE, LAN], "192.168.77.1"),
        ([RADIO], "192.168.1.1"),
        ([DOWN, RADIO], "192.168.1.1"),
        ([TUNNEL, LAN], None),
        ([LAN], None),
        ([], None),
        (["", "rubbish\n", "eth0 0 zz 3 0 0 0 0\n", "eth0 0 1FFFFFFFF 3 0 0 0 0\n"], None),
    ],
)
def test_it_is_the_gateway_of_the_best_default_route(
    lines: list[str], expected: str | None
) -> None:
    assert default_gateway(HEAD + "".join(lines)) == expected


def test_numbers_are_as_the_machine_has_them() -> None:
    big = WIRE.replace("014DA8C0", "C0A84D01")
    assert default_gateway(HEAD + big, little_endian=False) == "192.168.77.1"


@given(st.text(max_size=500))
def test_any_table_is_read(text: str) -> None:
    default_gateway(HEAD + text)


def test_our_own_address_is_the_one_towards_it(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(HEAD + "lo\t00000000\t0100007F\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    found = way_out(routes=table)
    assert (found.gateway, found.local, found.guessed) == ("127.0.0.1", "127.0.0.1", False)
    assert way_out("127.0.0.1").local == "127.0.0.1"


@pytest.mark.parametrize("text", [HEAD, "\xff\xfe"])
def test_without_a_way_out_there_is_nobody_to_ask(tmp_path: Path, text: str) -> None:
    table = tmp_path / "route"
    table.write_text(text)
    with pytest.raises(RouterError, match="no router to ask") as caught:
        way_out(routes=table)
    assert "Without a router" in caught.value.advice


def test_a_gateway_that_is_none_is_said_to_be_none() -> None:
    with pytest.raises(RouterError, match="no router to ask"):
        way_out("not an address of anything")


def test_routers_are_the_first_of_their_network() -> None:
    assert first_of("192.168.178.34") == "192.168.178.1"
