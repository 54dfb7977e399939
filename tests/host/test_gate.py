"""Large payloads pass a gate: never too many at once, everyone in turn, the quick not held up."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import VolunteerId
from crowdgrad.host.gate import (
    FLOOR_BYTES_PER_S,
    SLOW_S,
    Asking,
    Gate,
    Kind,
    Place,
    Wish,
    admits,
    choose,
    kept,
    trickles,
)
from tests.virtual_time import run_virtual

kinds: st.SearchStrategy[Kind] = st.sampled_from(["quick", "unknown", "slow"])
wishes = st.lists(st.builds(Wish, since=st.floats(0, 100), kind=kinds), min_size=1, max_size=20)
limits = st.integers(1, 12)


@given(wishes, st.dictionaries(kinds, st.integers(0, 6)), limits)
def test_a_place_is_given_only_where_one_is_free(
    waiting: list[Wish], held: dict[Kind, int], limit: int
) -> None:
    chosen, why = choose(waiting, held, limit)
    assert why
    may = [wish for wish in waiting if admits(wish.kind, held, limit)]
    assert (chosen is None) == (not may)
    if chosen is not None:
        assert sum(held.values()) < limit
        assert waiting[chosen].since == min(wish.since for wish in may), "the longest waiting first"


@given(wishes, limits)
def test_whoever_waits_is_served_when_all_places_are_free(waiting: list[Wish], limit: int) -> None:
    """So nobody starves: whatever is held is left some day, and the longest waiting goes first."""
    chosen, _ = choose(waiting, {}, limit)
    assert chosen is not None
    assert waiting[chosen].since == min(wish.since for wish in waiting)


@given(st.lists(kinds, max_size=40), limits)
def test_the_last_places_are_for_the_quick(coming: list[Kind], limit: int) -> None:
    held: Counter[Kind] = Counter()
    for kind in coming:
        held[kind] += admits(kind, held, limit)
    assert held.total() <= limit
    assert held["slow"] <= limit - kept("slow", limit)
    assert held["slow"] + held["unknown"] <= limit - kept("unknown", limit)
    assert admits("quick", held, limit) == (held.total() < limit)


@given(wishes, limits)
def test_nobody_gets_more_than_one_may_have(waiting: list[Wish], limit: int) -> None:
    full = [replace(wish, full=True) for wish in waiting]
    assert choose(full, {}, limit)[0] is None
    assert choose([*full, Wish(since=200.0, kind="quick")], {}, limit)[0] == len(full)


@pytest.mark.parametrize(
    ("moved", "others_waited", "ended"),
    [(0, True, True), (0, False, False),
     (10 * FLOOR_BYTES_PER_S, True, False), (10 * FLOOR_BYTES_PER_S - 1, True, True)],
)  # fmt: skip
def test_only_a_trickle_that_others_waited_for_is_ended(
    moved: int, others_waited: bool, ended: bool
) -> None:
    assert trickles(moved_bytes=moved, place_s=10.0, others_waited=others_waited) == ended


def always(since: float) -> bool:
    return True


def test_a_transfer_is_measured_from_its_last_good_stretch_on() -> None:
    place = Place(VolunteerId("a"), 0.0)
    assert place.slower(100.0, 0, 10.0, waited=always) == "", "nothing is to move yet"
    place.begin(100.0, 5, comes=True)
    assert place.slower(109.0, 5, 10.0, waited=always) == ""
    assert place.slower(110.0, 1 << 20, 10.0, waited=always) == ""
    assert place.slower(119.0, 1 << 20, 10.0, waited=always) == ""
    assert place.slower(121.0, (1 << 20) + 7, 10.0, waited=always) == (
        "only 7 bytes in 11 s while others waited"
    )
    place.begin_again(121.0, (1 << 20) + 7)  # we slept
    assert place.slower(130.0, (1 << 20) + 7, 10.0, waited=always) == ""


def test_others_need_only_have_waited_once_since_the_last_good_stretch() -> None:
    place = Place(VolunteerId("a"), 0.0)
    place.begin(100.0, 0, comes=True)
    assert place.slower(110.0, 7, 10.0, waited=lambda since: since <= 99.0) == ""
    assert place.slower(120.0, 7, 10.0, waited=lambda since: since <= 113.0)


def test_places_that_share_a_link_must_bring_more() -> None:
    me = VolunteerId("a")
    first, second, other_way = Place(me, 0.0), Place(me, 0.0), Place(me, 0.0)
    for place, begun, comes in ((first, 0.0, False), (second, 4.0, False), (other_way, 0.0, True)):
        place.begin(begun, 0, comes=comes)
    enough = 16 * FLOOR_BYTES_PER_S  # ten seconds of one, six of the other
    beside = (second, other_way)
    assert first.slower(10.0, enough - 1, 10.0, waited=always, beside=beside)
    assert first.slower(10.0, enough, 10.0, waited=always, beside=beside) == ""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(0, 1 << 30), limits, st.integers(1, 4))
def test_any_coming_and_going_keeps_the_bounds_and_leaves_nobody_behind(
    seed: int, limit: int, each: int
) -> None:
    dice, clock = random.Random(seed), Clock()
    gate = Gate(limit, clock, each=each)
    people = [VolunteerId(str(number)) for number in range(6)]
    asked: list[Asking] = []
    held: list[Place] = []
    for _ in range(60):
        clock.now += dice.choice([0.0, 0.1, 3.0])
        deed = dice.random()
        if deed < 0.5:
            asked.append(gate.ask(dice.choice(people), lambda: None))
        elif deed < 0.6 and asked:
            gate.give_up(asked.pop(dice.randrange(len(asked))))
        elif held:
            place = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.7:
                place.comes = dice.random() < 0.5
                gate.moved(place)
            gate.leave(place)
            gate.leave(place)  # once more does no harm
        held += [asking.place for asking in asked if asking.place is not None]
        asked = [asking for asking in asked if asking.place is None]
        for place in held:
            place.moving = True
        assert len(held) == limit - gate.free <= limit
        assert gate.waiting == len(asked)
        assert all(count <= each for count in Counter(place.who for place in held).values())
    while asked or held:  # whatever is held is left: everybody gets its turn
        assert held, "somebody waits and nobody holds a place"
        gate.leave(held.pop())
        held += [asking.place for asking in asked if asking.place is not None]
        asked = [asking for asking in asked if asking.place is None]
    assert gate.free == limit


def ask(gate: Gate, who: str) -> Asking:
    return gate.ask(VolunteerId(who), lambda: None)


def transfer(gate: Gate, clock: Clock, who: str, *, come_s: float, go_s: float) -> None:
    place = ask(gate, who).place
    assert place is not None
    for comes, seconds in ((True, come_s), (False, go_s)):
        place.begin(clock.now, 0, comes=comes)
        clock.now += seconds
        gate.moved(place)
    gate.leave(place)


def test_slow_ones_leave_places_for_the_quick() -> None:
    clock = Clock()
    gate = Gate(5, clock)
    transfer(gate, clock, "quick", come_s=SLOW_S / 2, go_s=0.1)
    transfer(gate, clock, "slow", come_s=SLOW_S * 2, go_s=0.1)
    slow = [ask(gate, "slow") for _ in range(4)]
    assert [asking.place is not None for asking in slow] == [True, True, False, False]
    new = [ask(gate, f"new {number}") for number in range(3)]
    assert [asking.place is not None for asking in new] == [True, True, False]
    quick = [ask(gate, "quick") for _ in range(2)]
    assert [asking.place is not None for asking in quick] == [True, False]
    assert gate.reason(slow[2].since) == "5 exchanges are under way; yours is next"
    assert slow[0].place is not None
    gate.leave(slow[0].place)  # the slow have waited longer
    assert slow[2].place is not None
    assert (new[2].place, quick[1].place) == (None, None)
    assert quick[0].place is not None
    gate.leave(quick[0].place)  # but this one is not for them
    assert (slow[3].place, new[2].place) == (None, None)
    assert quick[1].place is not None


def test_a_link_that_is_slow_one_way_is_slow() -> None:
    for come_s, go_s in ((SLOW_S * 2, 0.1), (0.1, SLOW_S * 2)):
        clock = Clock()
        gate = Gate(3, clock)
        transfer(gate, clock, "home", come_s=come_s, go_s=go_s)
        assert ask(gate, "home").place is not None
        assert ask(gate, "home").place is None


def test_who_breaks_off_after_a_long_time_is_slow_and_a_short_wait_says_nothing() -> None:
    clock = Clock()
    gate = Gate(3, clock)
    for who, moving, seconds in (("a", True, 9.0), ("b", False, 0.1)):
        place = ask(gate, who).place
        assert place is not None
        if moving:
            place.begin(clock.now, 0, comes=True)
        clock.now += seconds
        gate.leave(place)
    assert ask(gate, "a").place is not None
    assert ask(gate, "a").place is None
    assert ask(gate, "b").place is not None
    assert ask(gate, "b").place is None, "nobody knows how quick it is"


def test_whoever_takes_too_long_counts_as_slow_at_once() -> None:
    clock = Clock()
    gate = Gate(4, clock)
    transfer(gate, clock, "slow", come_s=SLOW_S * 2, go_s=0.1)
    new = [ask(gate, f"new {number}").place for number in range(2)]
    for place in new:
        assert place is not None
        place.begin(clock.now, 0, comes=True)
    clock.now += SLOW_S * 2
    assert ask(gate, "slow").place is None
    assert new[0] is not None
    gate.leave(new[0])
    assert ask(gate, "slow").place is None, "who was slow just now is slow"


def test_whoever_is_slow_right_now_gets_no_place_as_one_that_was_quick() -> None:
    clock = Clock()
    gate = Gate(4, clock)
    transfer(gate, clock, "a", come_s=0.1, go_s=0.1)
    place = ask(gate, "a").place
    assert place is not None
    place.begin(clock.now, 0, comes=False)
    clock.now += SLOW_S * 2
    second = ask(gate, "a")
    assert second.place is None
    gate.moved(place)
    assert second.place is None, "it was slow"
    place.begin(clock.now, 0, comes=False)
    gate.moved(place)
    assert second.place is not None, "it is quick again"


def test_nobody_has_more_places_than_lanes_and_it_keeps_its_turn() -> None:
    clock = Clock()
    gate = Gate(8, clock, each=2)
    mine = [ask(gate, "a") for _ in range(3)]
    assert [asking.place is not None for asking in mine] == [True, True, False]
    assert gate.reason(clock.now, VolunteerId("a")) == (
        "what you asked for before is still under way"
    )
    assert ask(gate, "b").place is not None
    assert not gate.others_waited(VolunteerId("b"), 0.0), "it waits for itself alone"
    assert mine[0].place is not None
    gate.leave(mine[0].place)
    assert mine[2].place is not None


def test_others_have_waited_also_where_nobody_does_at_this_moment() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        gate, me = Gate(1, loop.time), VolunteerId("a")
        assert await gate.enter(me) is not None
        assert await gate.enter(me, patience_s=1.0) is None
        assert not gate.others_waited(me, 0.0), "only one of its own has"
        began = loop.time()
        waiting = asyncio.create_task(gate.enter(VolunteerId("b"), patience_s=1.0))
        await asyncio.sleep(0.5)
        assert gate.others_waited(me, loop.time())
        assert await waiting is None
        assert await gate.enter(me, patience_s=1.0) is None
        assert gate.waiting == 0
        assert gate.others_waited(me, began)
        assert gate.others_waited(me, began + 1.0)
        assert not gate.others_waited(me, began + 1.1)

    run_virtual(main())


def test_whoever_is_sent_away_keeps_its_turn() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        gate = Gate(1, loop.time)
        first = await gate.enter(VolunteerId("a"))
        assert first is not None
        began = loop.time()
        assert await gate.enter(VolunteerId("b"), patience_s=1.0, since=began) is None
        assert loop.time() == began + 1.0
        assert gate.waiting == 0
        later = asyncio.create_task(gate.enter(VolunteerId("c")))
        await asyncio.sleep(0.5)
        again = asyncio.create_task(gate.enter(VolunteerId("b"), since=began))
        await asyncio.sleep(0.5)
        assert gate.reason(loop.time()) == "1 exchange is under way; 2 come before yours"
        gate.leave(first)
        place = await again
        assert place is not None
        assert not later.done()
        gate.leave(place)
        assert await later is not None

    run_virtual(main())


def test_a_wait_that_is_cancelled_gives_back_what_it_may_have_got() -> None:
    async def main() -> None:
        gate = Gate(1, asyncio.get_running_loop().time)
        first = await gate.enter(VolunteerId("a"))
        assert first is not None
        waiting = asyncio.create_task(gate.enter(VolunteerId("b")))
        await asyncio.sleep(0)
        gate.leave(first)  # it is given, but not awake yet
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert gate.free == 1

    run_virtual(main())
