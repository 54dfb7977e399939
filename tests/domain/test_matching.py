"""What the matchmaker's types refuse, whose hours it is, and how a code is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.job import MAX_TITLE, Volunteer
from crowdgrad.domain.matching import (
    CODE_ALPHABET,
    MAX_AVOIDED,
    MAX_CAUSES,
    MAX_DESCRIPTION,
    MAX_HOSTS,
    MAX_INVITED,
    MAX_VOLUNTEERS,
    Credit,
    Gift,
    Hours,
    JobListing,
    Machine,
    Offer,
    Requirements,
    VolunteerRecord,
    Wants,
    as_code,
    check_job_id,
    is_code,
)
from crowdgrad.domain.routes import MAX_ROUTES

DAY_S = 86400.0


def at(hour: float, day: int = 20_000) -> float:
    return day * DAY_S + hour * 3600


@pytest.mark.parametrize(
    ("start", "end", "inside", "outside"),
    [
        (9, 17, [9, 12, 16.99], [0, 8.99, 17, 23.99]),
        (22, 6, [22, 23.99, 0, 5.99], [6, 12, 21.99]),
        (0, 1, [0, 0.99], [1, 12, 23.99]),
        (23, 0, [23, 23.99], [0, 0.01, 22.99]),
    ],
)
def test_hours_may_span_midnight(
    start: int, end: int, inside: list[float], outside: list[float]
) -> None:
    hours = Hours(start=start * 60, end=end * 60)
    for day in (0, 20_000):
        assert all(hours.include(at(hour, day)) for hour in inside)
        assert not any(hours.include(at(hour, day)) for hour in outside)


minutes = st.integers(0, 1439)


@given(minutes, minutes, st.floats(-1e11, 1e11))
def test_hours_and_their_complement_are_the_whole_day(start: int, end: int, now: float) -> None:
    """At any time, even one before 1970, that a clock may show."""
    if start != end:
        one, other = Hours(start=start, end=end), Hours(start=end, end=start)
        assert one.include(now) != other.include(now)


@given(minutes, minutes)
def test_hours_last_as_long_as_they_say(start: int, end: int) -> None:
    if start != end:
        hours = Hours(start=start, end=end)
        lasting = sum(hours.include(at(0) + 60.0 * minute + 30) for minute in range(1440))
        assert lasting == (end - start) % 1440


@pytest.mark.parametrize(("start", "end"), [(0, 1440), (1440, 0), (-1, 5), (5, -1), (7, 7)])
def test_hours_are_minutes_of_one_day(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="hours"):
        Hours(start=start, end=end)


def offer(**changes: Any) -> Offer:
    values: dict[str, Any] = {
        "id": "digits-1", "title": "t", "cause": "", "address": "h:1", "key": "", "minimum": 0,
        "maximum": 1, "hyperparameters": {},
    }  # fmt: skip
    return Offer(**values | changes)


def listing(**changes: Any) -> JobListing:
    values = {"offer": offer(), "state": "waiting", "published_at": 0.0, "code": "K7Q-2MP"}
    return JobListing(**values | changes)


def record(**changes: Any) -> VolunteerRecord:
    somebody = Volunteer(id="a1", name="Ada", cores=1, memory_mb=0, engine="", software="")
    return VolunteerRecord(**{"volunteer": somebody, "owner": "", "since": 0.0} | changes)


def credit(**changes: Any) -> Credit:
    values = {
        "job": "j", "title": "t", "host": "h", "volunteer": "a1", "reported_at": 0.0,
        "reported": Gift(units=1, samples=2, flop=3.0),
    }  # fmt: skip
    return Credit(**values | changes)


def gift(**changes: Any) -> Gift:
    return Gift(**{"units": 0, "samples": 0, "flop": 0.0} | changes)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (Machine, {"gpu": "g" * 64, "gflops": 9e11, "most_download_mb": 10**12 - 1}),
        (Requirements, {"engines": frozenset("abcdefgh"), "kinds": frozenset({"browser"})}),
        (Wants, {"job": "j" * 64, "causes": ("c" * MAX_TITLE,) * MAX_CAUSES}),
        (Wants, {"hosts": frozenset(f"{n:0128}" for n in range(MAX_HOSTS))}),
        (Wants, {"hosts": frozenset()}),
        (offer, {"title": "t" * MAX_TITLE, "description": "a\n" * (MAX_DESCRIPTION // 2)}),
        (offer, {"minimum": MAX_VOLUNTEERS, "maximum": MAX_VOLUNTEERS, "address": "[::1]:65535"}),
        (offer, {"public": "0123456789abcdef" * 4, "routes": ("192.0.2.7:1",) * MAX_ROUTES}),
        (offer, {"routes": ("relay:[::1]:65535", "relay:wss://match.example.org/r")}),
        (
            offer,
            {
                "visibility": "group",
                "invited": frozenset(f"{n:064}" for n in range(MAX_INVITED)),
            },
        ),
        (record, {"avoid": frozenset(f"{n}" for n in range(MAX_AVOIDED))}),
        (listing, {"published_at": 1e12}),
        (gift, {"flop": 9e29}),
    ],
)
def test_what_is_within_bounds_is_accepted(make: Any, values: dict[str, Any]) -> None:
    made = make(**values)
    assert all(getattr(made, name) == value for name, value in values.items())


NUMBERS = (-1, 10**12, float("nan"), float("inf"))


@pytest.mark.parametrize(
    ("make", "field", "values"),
    [
        (Machine, "gpu", ["g" * 65, "a\nb"]),
        (Machine, "gpu_memory_mb", NUMBERS),
        (Machine, "gflops", NUMBERS),
        (Machine, "download_mbps", NUMBERS),
        (Machine, "upload_mbps", NUMBERS),
        (Machine, "most_download_mb", NUMBERS),
        (Requirements, "cores", NUMBERS),
        (Requirements, "memory_mb", NUMBERS),
        (Requirements, "gpu_memory_mb", NUMBERS),
        (Requirements, "gflops", NUMBERS),
        (Requirements, "download_mbps", NUMBERS),
        (Requirements, "data_mb", NUMBERS),
        (
            Requirements,
            "engines",
            [frozenset("abcdefghi"), frozenset({"e" * 65}), frozenset({"a\n"})],
        ),
        (Requirements, "kinds", [frozenset({"toaster"})]),
        (Wants, "job", ["", "j" * 65]),
        (Wants, "hosts", [frozenset(map(str, range(MAX_HOSTS + 1))), frozenset({"h" * 129})]),
        (Wants, "causes", [("c",) * (MAX_CAUSES + 1), ("",), ("c" * (MAX_TITLE + 1),), ("\n",)]),
        (offer, "id", ["", "a b", "-a", "a" * 65, "K7Q-2MP", "k7q-2mp"]),
        (offer, "title", ["", "t" * (MAX_TITLE + 1), "a\nb"]),
        (offer, "cause", ["c" * (MAX_TITLE + 1), "\x1b[31m"]),
        (offer, "contact", ["c" * (MAX_TITLE + 1), "a\nb"]),
        (offer, "description", ["d" * (MAX_DESCRIPTION + 1), "a\tb", "a\x00"]),
        (
            offer,
            "address",
            [
                "",
                "h",
                ":1",
                "h:",
                "h:0",
                "h:65536",
                "h:٣",
                "a b:1",
                f"{'h' * 256}:1",
                "h\n:1",
                "a/b:80",
                "2001:db8::1:80",
                "relay:h:1",
                "ws://h:1/",
            ],
        ),
        (offer, "key", ["k" * 129, "a\nb"]),
        (offer, "public", ["0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n"]),
        (
            offer,
            "routes",
            [("h:1",) * (MAX_ROUTES + 1), ("",), ("h",), ("relay:",), ("h:1\n",), ("h:0",)],
        ),
        (offer, "minimum", [-1, 2]),
        (offer, "maximum", [0, MAX_VOLUNTEERS + 1]),
        (offer, "invited", [frozenset({"a1"})]),
        (listing, "code", ["", "K7Q2MP", "k7q-2mp", "K7Q-2MO", "K7Q-2MPX"]),
        (listing, "published_at", [-1.0, float("nan"), float("inf")]),
        (record, "since", [-1.0, float("nan"), float("inf")]),
        (
            record,
            "avoid",
            [frozenset(map(str, range(MAX_AVOIDED + 1))), frozenset({"j" * 65})],
        ),
        (gift, "units", [-1, 1 << 63]),
        (gift, "samples", [-1, 1 << 63]),
        (gift, "flop", [-1.0, 1e30, float("nan")]),
        (credit, "signature", ["ab"]),
        (credit, "signed", [Gift(units=1, samples=2, flop=3.0)]),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, field: str, values: list[Any]) -> None:
    make()
    for value in values:
        with pytest.raises(ValueError, match=r"."):
            make(**{field: value})


@pytest.mark.parametrize(
    "invited", [frozenset(map(str, range(MAX_INVITED + 1))), frozenset({""}), frozenset({"i" * 65})]
)
def test_a_group_has_bounds(invited: frozenset[str]) -> None:
    with pytest.raises(ValueError, match="invited"):
        offer(visibility="group", invited=invited)


def test_both_sides_agree_only_when_they_say_the_same() -> None:
    given_, less = Gift(units=1, samples=2, flop=3.0), Gift(units=1, samples=1, flop=3.0)
    assert not credit().agreed
    assert credit(signed=given_, signature="ab").agreed
    assert not credit(signed=less, signature="ab").agreed


@given(st.text(CODE_ALPHABET, min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_a_code_is_read_however_it_is_typed(letters: str, dice: Any) -> None:
    typed = "".join(dice.choice([c, c.lower()]) + dice.choice(["", "", " ", "-"]) for c in letters)
    code = as_code(typed)
    assert code == f"{letters[:3]}-{letters[3:]}"
    assert is_code(code)


@given(st.text(max_size=12))
def test_whatever_is_typed_is_a_code_or_none(typed: str) -> None:
    code = as_code(typed)
    assert code is None or is_code(code)


def test_a_job_id_is_never_taken_for_a_code() -> None:
    check_job_id("digits-7f3a")
    with pytest.raises(ValueError, match="looks like a join code"):
        check_job_id("k7q-2mp")
