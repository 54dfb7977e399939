"""Who may have a large payload under way: a bounded number at once, the rest wait with a reason.

An update that arrives and parameters that go out each take about one copy of the parameters, so the
number of places bounds the host's memory. Small vectors never come here (`LARGE_BYTES`).

First come, first served, but slow links must not hold up the others: slow ones may not have the
last three places, and those of whom nobody knows yet not the last one. Both ways count on their
own, since most links are quick one way and slow the other; a transfer under way counts as soon as
it takes too long. Nobody has more places than it has lanes. A transfer that merely trickles is
ended where others have waited meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from crowdgrad.domain.work import VolunteerId

Kind = Literal["quick", "unknown", "slow"]
"""Slow: its last transfer, there or back, took too long, or one does now; quick: neither did."""

LARGE_BYTES = 512 << 10
"""Payloads up to this size fit in what every connected volunteer may take."""
SLOW_S = 2.0
"""Whose transfer takes longer is slow."""
KEPT = {"quick": 0, "unknown": 1, "slow": 3}
"""How many places are not for these; one always is."""
FLOOR_BYTES_PER_S = 16 << 10
"""Who is slower than this, for each of its places, while others wait must go."""
MAX_REMEMBERED = 4096
"""Volunteers whose last transfers, and last wait, are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Somebody who waits for a place."""

    since: float
    kind: Kind
    full: bool = False
    """It has as many places as one may have."""


def choose(wishes: Sequence[Wish], held: Mapping[Kind, int], limit: int) -> tuple[int | None, str]:
    """Which of those who wait gets a place now, if any, and why.

    The longest waiting first. Who may not have a place that is kept for others keeps its turn: it
    gets the first of those that are not. So does who has as many as one may have.
    """
    if sum(held.values()) >= limit:
        return None, f"{_exchanges(limit)} under way"
    for number in sorted(range(len(wishes)), key=lambda n: wishes[n].since):
        if not wishes[number].full and admits(wishes[number].kind, held, limit):
            return number, "it is its turn"
    return None, "what is free is kept for others" if wishes else "nobody waits"


def admits(kind: Kind, held: Mapping[Kind, int], limit: int) -> bool:
    """Whether a free place may go to one of these."""
    slow = held.get("slow", 0)
    unsure = slow + held.get("unknown", 0)
    return (
        sum(held.values()) < limit
        and (kind == "quick" or unsure < limit - kept("unknown", limit))
        and (kind != "slow" or slow < limit - kept("slow", limit))
    )


def kept(kind: Kind, limit: int) -> int:
    """How many places are not for one of these."""
    return min(KEPT[kind], limit - 1)


def trickles(*, moved_bytes: int, place_s: float, others_waited: bool) -> bool:
    """Whether so little has moved that it must go. `place_s`: for how long, summed over places."""
    return others_waited and moved_bytes < FLOOR_BYTES_PER_S * place_s


@dataclass(slots=True, eq=False)
class Place:
    """Leave to have one large payload under way."""

    who: VolunteerId
    since: float
    """When it was given, or the transfer under way began."""
    comes: bool = True
    """Whether the bytes of the transfer come or go."""
    moving: bool = False
    """Whether bytes are to move now; not while an update that has arrived is applied."""
    _mark: tuple[float, int] = (0.0, 0)

    def begin(self, now: float, moved: int, *, comes: bool) -> None:
        """A transfer begins, when so many bytes had moved that way on its connection."""
        self.since, self.moving, self.comes, self._mark = now, True, comes, (now, moved)

    def slow_at(self, now: float) -> bool:
        return self.moving and now - self.since > SLOW_S

    def begin_again(self, now: float, moved: int) -> None:
        """We slept: what did not move meanwhile is our own doing."""
        self._mark = (now, moved)

    def slower(
        self,
        now: float,
        moved: int,
        patience_s: float,
        *,
        waited: Callable[[float], bool],
        beside: Collection[Place] = (),
    ) -> str:
        """Why this transfer must go; empty if it may go on.

        `waited(since)`: whether others have waited at any time since then. `beside`: the other
        places on the same connection, whose bytes are counted along with ours.
        """
        at, before = self._mark
        if not self.moving or now - at < patience_s:
            return ""
        place_s = now - at
        for other in beside:
            if other.moving and other.comes == self.comes:
                place_s += now - max(at, other.since)
        if trickles(moved_bytes=moved - before, place_s=place_s, others_waited=waited(at)):
            return f"only {moved - before} bytes in {now - at:.0f} s while others waited"
        self._mark = (now, moved)
        return ""


@dataclass(slots=True, eq=False)
class Asking:
    """A wish for a place, until it is fulfilled or given up."""

    who: VolunteerId
    since: float
    given: Callable[[], None]
    place: Place | None = None
    waited: bool = False
    """It was not given at once."""


@dataclass(slots=True)
class _Speeds:
    """How long the last transfers of each took, those that came and those that went."""

    took_s: dict[tuple[VolunteerId, bool], float] = field(default_factory=dict)

    def note(self, who: VolunteerId, comes: bool, seconds: float) -> None:
        self.took_s.pop((who, comes), None)
        self.took_s[who, comes] = seconds
        if len(self.took_s) > MAX_REMEMBERED:
            del self.took_s[next(iter(self.took_s))]

    def kind(self, who: VolunteerId) -> Kind:
        known = [self.took_s[who, way] for way in (True, False) if (who, way) in self.took_s]
        if known and max(known) > SLOW_S:
            return "slow"
        return "quick" if len(known) == 2 else "unknown"


class Gate:
    def __init__(self, limit: int, clock: Callable[[], float], *, each: int | None = None) -> None:
        """`each`: how many places one volunteer may have; None: all of them."""
        self.limit = limit
        self._each = limit if each is None else each
        self._clock = clock
        self._held: set[Place] = set()
        self._asking: dict[int, Asking] = {}
        self._numbers = itertools.count()
        self._speeds = _Speeds()
        self._waited: dict[VolunteerId, float] = {}
        """Until when each has waited, the last one last."""

    @property
    def free(self) -> int:
        return self.limit - len(self._held)

    @property
    def waiting(self) -> int:
        return len(self._asking)

    def ask(
        self, who: VolunteerId, given: Callable[[], None], *, since: float | None = None
    ) -> Asking:
        """Ask for a place; it may be given at once, otherwise `given` is called when it is.

        `since`: when it first asked, where it was sent away meanwhile: it keeps its turn.
        """
        asking = Asking(who, self._clock() if since is None else since, lambda: None)
        self._asking[next(self._numbers)] = asking
        self._serve()
        asking.given, asking.waited = given, asking.place is None
        return asking

    async def enter(
        self, who: VolunteerId, *, patience_s: float | None = None, since: float | None = None
    ) -> Place | None:
        """A place; None if there was none for so long."""
        came = asyncio.Event()
        asking = self.ask(who, came.set, since=since)
        try:
            if asking.place is None:
                async with asyncio.timeout(patience_s):
                    await came.wait()
        except TimeoutError:
            self._drop(asking)
        except BaseException:
            self.give_up(asking)
            raise
        return asking.place

    def give_up(self, asking: Asking) -> None:
        """It is not wanted any more; where the place was given already, it is free again."""
        self._drop(asking)
        if asking.place is not None:
            self.leave(asking.place)

    def moved(self, place: Place) -> None:
        """The transfer is over; the place is still held."""
        self._speeds.note(place.who, place.comes, self._clock() - place.since)
        place.moving = False
        self._serve()  # perhaps it is known to be quick now

    def leave(self, place: Place) -> None:
        """Once more does no harm."""
        if place not in self._held:
            return
        if place.moving and self._clock() - place.since > SLOW_S:  # it was broken off
            self._speeds.note(place.who, place.comes, self._clock() - place.since)
        self._held.discard(place)
        self._serve()

    def full(self, who: VolunteerId) -> bool:
        """Whether it has as many places as one may have: then it waits for itself alone."""
        return sum(place.who == who for place in self._held) >= self._each

    def others_waited(self, but: VolunteerId, since: float) -> bool:
        """Whether anybody else has waited for a place of others at any time since then.

        Not only now: who is told to ask again does not wait for a moment, and is still in need.
        """
        if any(other.who != but and not self.full(other.who) for other in self._asking.values()):
            return True
        ends = (at for who, at in reversed(self._waited.items()) if who != but)
        return next(ends, -math.inf) >= since

    def reason(self, since: float, who: VolunteerId | None = None) -> str:
        """Why somebody who asked then has no place yet, for people."""
        if who is not None and self.full(who):
            return "what you asked for before is still under way"
        before = sum(asking.since < since for asking in self._asking.values())
        held = len(self._held)
        rank = "yours is next" if not before else f"{before} come before yours"
        return f"{_exchanges(held)} under way; {rank}"

    def _drop(self, asking: Asking) -> None:
        left = {n: other for n, other in self._asking.items() if other is not asking}
        if len(left) < len(self._asking):
            self._asking = left
            self._note_wait(asking)

    def _note_wait(self, asking: Asking) -> None:
        if asking.waited and not self.full(asking.who):
            self._waited.pop(asking.who, None)
            self._waited[asking.who] = self._clock()
            if len(self._waited) > MAX_REMEMBERED:
                del self._waited[next(iter(self._waited))]

    def _serve(self) -> None:
        while self._asking and self.free > 0:
            now = self._clock()
            numbers = list(self._asking)
            chosen = self._choose(now)
            if chosen is None:
                return
            asking = self._asking.pop(numbers[chosen])
            self._note_wait(asking)
            asking.place = Place(asking.who, now)
            self._held.add(asking.place)
            asking.given()

    def _choose(self, now: float) -> int | None:
        """Which of those who ask gets a place."""
        slow = {place.who for place in self._held if place.slow_at(now)}
        has = Counter(place.who for place in self._held)

        def kind(who: VolunteerId) -> Kind:
            return "slow" if who in slow else self._speeds.kind(who)

        wishes = [
            Wish(since=asking.since, kind=kind(asking.who), full=has[asking.who] >= self._each)
            for asking in self._asking.values()
        ]
        return choose(wishes, Counter(kind(place.who) for place in self._held), self.limit)[0]


def _exchanges(number: int) -> str:
    return "1 exchange is" if number == 1 else f"{number} exchanges are"
