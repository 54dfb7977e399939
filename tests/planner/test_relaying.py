"""What a relay lets happen: each limit refuses what is one too many, with its reason."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.planner.relaying import (
    FINE,
    RELAYS_A_HOST,
    Book,
    Limits,
    Reason,
    Tally,
    Tickets,
    Verdict,
    ranked,
)

HOST, CALLER, ADDRESS = "a" * 16, "b" * 16, "192.0.2.1"
DIGEST = "a" * 64


def book(**limits: float) -> Book:
    return Book(Limits(**limits))  # type: ignore[arg-type]


def reason(verdict: Verdict) -> Reason:
    assert bool(verdict) == (verdict.reason == "fine")
    assert bool(verdict) != bool(verdict.words), "whoever is refused is told why"
    return verdict.reason


@pytest.mark.parametrize("limits", [
    {"hosts": 0}, {"pairs": -1}, {"idle_s": 0.0}, {"bytes_per_s": -1.0},
    {"preamble_s": float("nan")}, {"heartbeat_s": 10.0, "silence_s": 15.0},
], ids=repr)  # fmt: skip
def test_limits_that_make_no_sense_cannot_be_made(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"\d|nan"):
        Limits(**limits)  # type: ignore[arg-type]


def test_a_limit_on_bytes_may_be_none() -> None:
    assert Limits(bytes_per_s=0, key_bytes_per_s=0, key_bytes_per_day=0, measure_bytes=0)


def test_strangers_are_bounded_by_address_and_in_all() -> None:
    those = book(strangers=3, strangers_per_address=2)
    assert [reason(those.arrive("a", 0.0)) for _ in range(3)] == [
        "fine", "fine", "too-many-from-address",
    ]  # fmt: skip
    assert those.arrive("b", 0.0)
    assert reason(those.arrive("c", 0.0)) == "busy"
    assert those.strangers.all == 3, "who is refused is not counted"
    those.strangers.add("a", -1)
    assert those.arrive("c", 0.0)


def test_who_comes_too_often_is_not_heard_for_a_while() -> None:
    those = book(arrivals_per_s=1.0, strangers_per_address=1000)
    came = [bool(those.arrive("a", 0.0)) for _ in range(7)]
    assert came == [True] * 5 + [False] * 2
    assert reason(those.arrive("a", 0.5)) == "too-often"
    assert those.arrive("b", 0.5)
    assert those.arrive("a", 1.5)


def test_a_proxy_may_come_as_often_as_it_likes() -> None:
    those = book(arrivals_per_s=1.0, strangers_per_address=1, strangers=50)
    assert all(those.arrive("", 0.0) for _ in range(50))
    assert reason(those.arrive("", 0.0)) == "busy"


def test_only_those_named_may_serve_where_any_are_named() -> None:
    those = Book(Limits(), ["a" * 16])
    assert those.may_serve(DIGEST, ADDRESS, again=False)
    assert reason(those.may_serve("c" * 64, ADDRESS, again=False)) == "not-allowed"
    assert reason(those.may_serve("c" * 64, ADDRESS, again=True)) == "not-allowed"


def test_hosts_are_bounded_but_whoever_is_here_may_come_again() -> None:
    those = book(hosts=3, hosts_per_address=2)
    for address in ("x", "x"):
        assert those.may_serve(DIGEST, address, again=False)
        those.hosts.add(address)
    assert reason(those.may_serve(DIGEST, "x", again=False)) == "too-many-hosts"
    assert those.may_serve(DIGEST, "x", again=True)
    those.hosts.add("y")
    assert reason(those.may_serve(DIGEST, "z", again=False)) == "too-many-hosts"
    assert those.may_serve(DIGEST, "z", again=True)


def test_nobody_can_call_who_is_not_here() -> None:
    assert reason(book().may_call(HOST, CALLER, ADDRESS, here=False)) == "unknown-host"


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("pairs", "too-many-pairs"),
        ("pairs_per_host", "host-full"),
        ("pairs_per_caller", "too-many-calls"),
        ("pairs_per_address", "too-many-calls"),
        ("knocks_per_host", "not-answering"),
    ],
)
def test_each_limit_on_calls_refuses_one_too_many(limit: str, why: Reason) -> None:
    those = book(**{limit: 2})
    for _ in range(2):
        assert those.may_call(HOST, CALLER, ADDRESS, here=True)
        those.call(HOST, CALLER, ADDRESS)
        if limit != "knocks_per_host":
            those.answered(HOST)
    assert reason(those.may_call(HOST, CALLER, ADDRESS, here=True)) == why
    if limit == "knocks_per_host":
        those.answered(HOST)
    else:
        those.part(HOST, CALLER, ADDRESS)
    assert those.may_call(HOST, CALLER, ADDRESS, here=True)


def test_one_hosts_crowd_is_not_anothers() -> None:
    those = book(pairs_per_host=1, pairs_per_caller=1, pairs_per_address=1, knocks_per_host=1)
    those.call(HOST, CALLER, ADDRESS)
    assert those.may_call("c" * 16, "d" * 16, "198.51.100.1", here=True)


def test_who_has_had_its_bytes_is_told_so() -> None:
    those = book(key_bytes_per_day=2_000_000_000)
    assert those.may_pass(CALLER, 1) is FINE
    refused = those.may_pass(CALLER, 0)
    assert reason(refused) == "allowance"
    assert "2 GB" in refused.words


def test_one_of_an_address_measures_at_a_time_and_nobody_where_that_is_not_wanted() -> None:
    those = book(measures=2)
    for address in "ab":
        assert those.may_measure(address)
        those.measures.add(address)
    assert reason(those.may_measure("c")) == "busy"
    those.measures.add("a", -1)
    assert reason(those.may_measure("b")) == "busy"
    assert reason(book(measure_bytes=0).may_measure("a")) == "not-allowed"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=50))
def test_a_tally_counts_and_forgets_who_is_not_there(steps: list[tuple[str, bool]]) -> None:
    tally, counts = Tally(), Counter[str]()
    for name, comes in steps:
        if comes or counts[name]:
            counts[name] += 1 if comes else -1
            tally.add(name, 1 if comes else -1)
        assert tally.all == counts.total()
        assert all(tally[name] == counts[name] for name in "abc")
        assert len(tally) == sum(count > 0 for count in counts.values())


# -- tickets ----------------------------------------------------------------------------------


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets[str](8.0)
    tickets.issue(b"1", "call", 0.0)
    assert tickets.redeem(b"1", 1.0) == ("call", FINE)
    found, verdict = tickets.redeem(b"1", 1.0)
    assert found is None
    assert reason(verdict) == "unknown-ticket"


def test_a_ticket_is_good_for_a_while() -> None:
    tickets = Tickets[str](8.0)
    tickets.issue(b"1", "call", 0.0)
    tickets.issue(b"2", "other", 5.0)
    assert tickets.redeem(b"1", 8.1)[0] is None
    assert tickets.expired(8.1) == ["call"]
    assert tickets.expired(8.1) == []
    assert tickets.redeem(b"2", 13.0)[0] == "other"


def test_the_ticket_of_a_caller_that_has_gone_is_good_for_nothing() -> None:
    tickets = Tickets[str](8.0)
    tickets.issue(b"1", "call", 0.0)
    assert tickets.withdraw(b"1")
    assert not tickets.withdraw(b"1")
    assert tickets.redeem(b"1", 0.0)[0] is None
    assert len(tickets) == 0


# -- which relay ------------------------------------------------------------------------------

names = st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=8)


@given(st.text(max_size=64), names, st.randoms(use_true_random=False))
def test_everybody_finds_the_same_order_of_relays(host, relays, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(relays)
    random.shuffle(shuffled)
    assert ranked(host, relays) == ranked(host, [*shuffled, *shuffled])
    assert set(ranked(host, relays)) == set(relays)


@given(st.text(max_size=64), names.filter(bool))
def test_when_a_relay_goes_the_others_stay_in_order(host: str, relays: list[str]) -> None:
    order = ranked(host, relays)
    for gone in relays:
        left = [name for name in relays if name != gone]
        assert ranked(host, left) == tuple(name for name in order if name != gone)


def test_hosts_spread_over_relays() -> None:
    relays = [f"relay{number}.example.org:8702" for number in range(4)]
    first = Counter(ranked(f"{number:064x}", relays)[0] for number in range(4000))
    assert set(first) == set(relays)
    assert all(800 < count < 1200 for count in first.values()), first
    assert RELAYS_A_HOST == 2
