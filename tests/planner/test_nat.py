"""Three addresses say what stands between a machine and the internet."""

from __future__ import annotations

import ipaddress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.nat import PRIVATE, SHARED, Kind, judge

HOME, ROUTER, OTHER, CARRIER = "192.168.1.5", "203.0.113.7", "198.51.100.9", "100.72.3.4"


@pytest.mark.parametrize(
    ("local", "external", "observed", "kind", "words"),
    [
        (ROUTER, "", ROUTER, "open", "on the internet itself"),
        (ROUTER, "", "", "open", "on the internet itself"),
        ("2001:db8::7", "", "2001:db8::7", "open", "on the internet itself"),
        (HOME, ROUTER, ROUTER, "mapped", f"opens ports at {ROUTER}"),
        (HOME, ROUTER, "", "mapped", f"opens ports at {ROUTER}"),
        (HOME, ROUTER, HOME, "mapped", f"opens ports at {ROUTER}"),  # the watcher is at home, too
        (HOME, ROUTER, "2001:db8::7", "mapped", f"opens ports at {ROUTER}"),
        (HOME, ROUTER, f"::ffff:{ROUTER}", "mapped", f"opens ports at {ROUTER}"),
        (HOME, "10.0.0.2", OTHER, "double", "behind another"),
        (HOME, "192.168.178.20", "", "double", "behind another"),
        (HOME, ROUTER, OTHER, "double", f"others see {OTHER}"),
        (HOME, CARRIER, OTHER, "carrier", "shares one address among customers"),
        (CARRIER, "", OTHER, "carrier", "shares one address among customers"),
        (CARRIER, "", "", "carrier", "shares one address among customers"),
        (HOME, "", OTHER, "closed", f"the router at {OTHER} opens no port"),
        (HOME, "0.0.0.0", OTHER, "closed", "not connected itself"),
        (HOME, "nonsense", "", "closed", "not connected itself"),
        (ROUTER, "", OTHER, "closed", "something stands between"),
        ("2001:db8::7", "", OTHER, "unknown", "only looked at"),
        (HOME, "", "", "unknown", "nobody outside has looked"),
        (HOME, "", HOME, "unknown", "nobody outside has looked"),
        ("", "", "", "unknown", "nobody outside has looked"),
        ("127.0.0.1", "", "127.0.0.1", "unknown", "nobody outside has looked"),
    ],
)
def test_what_it_makes_of_them(
    local: str, external: str, observed: str, kind: Kind, words: str
) -> None:
    found, why = judge(local, external, observed)
    assert found == kind
    assert words in why


def within(*networks: str) -> st.SearchStrategy[str]:
    return st.one_of(*(st.ip_addresses(network=network).map(str) for network in networks))


SHARED_ONES = within(str(SHARED))
PRIVATE_ONES = within("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
PUBLIC_ONES = within("5.0.0.0/8", "93.0.0.0/8", "203.0.113.0/24")
ANYTHING = st.one_of(st.text(), st.ip_addresses().map(str), SHARED_ONES, PRIVATE_ONES, PUBLIC_ONES)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_whatever_they_say_there_is_one_answer_with_a_reason(a: str, b: str, c: str) -> None:
    kind, why = judge(a, b, c)
    assert kind in get_args(Kind)
    assert why.isprintable()
    assert why


@given(PRIVATE_ONES, SHARED_ONES, ANYTHING)
def test_a_provider_that_shares_is_found_whoever_looks(home: str, shared: str, seen: str) -> None:
    assert judge(home, shared, seen)[0] == "carrier"
    assert judge(shared, "", seen)[0] == "carrier"


@given(PRIVATE_ONES, PRIVATE_ONES, ANYTHING)
def test_a_router_with_a_homes_address_is_behind_another(home: str, out: str, seen: str) -> None:
    assert judge(home, out, seen)[0] == "double"


@given(PRIVATE_ONES, PUBLIC_ONES, PUBLIC_ONES)
def test_only_what_others_see_is_an_open_port(home: str, out: str, seen: str) -> None:
    assert judge(home, out, seen)[0] == ("mapped" if out == seen else "double")
    assert judge(home, out)[0] == "mapped"
    assert judge(home, "", seen)[0] == "closed"


@given(ANYTHING, ANYTHING, ANYTHING)
def test_nobody_is_called_reachable_at_an_address_of_a_home(a: str, b: str, c: str) -> None:
    kind, _ = judge(a, b, c)
    told = {"open": a, "mapped": b}.get(kind)
    if told is not None:
        address = ipaddress.ip_address(told)
        address = getattr(address, "ipv4_mapped", None) or address
        assert not any(address in network for network in (*PRIVATE, SHARED))
        assert not address.is_loopback
        assert not address.is_multicast
