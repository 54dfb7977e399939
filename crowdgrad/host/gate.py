"""Who may have a large payload under way: a bounded number at once, the rest wait with a reason.

An update that arrives and parameters that go out each take about one copy of the parameters, so the
number of places bounds the host's memory. Small vectors never come here (`LARGE_BYTES`).

First come, first served, but slow links must not hold up the others: slow ones may not have the
last three places, and those of whom nobody knows yet not the last one. Both ways count on their
own, since most links are quick one way and slow the other. A transfer that merely trickles is ended
as soon as others wait for its place.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from crowdgrad.domain.work import VolunteerId

Kind = Literal["quick", "unknown", "slow"]
"""Slow: its last transfer, there or back, took too long; quick: neither did."""

LARGE_BYTES = 512 << 10
"""Payloads up to this size fit in what every connected volunteer may take."""
SLOW_S = 2.0
"""Whose transfer takes longer is slow."""
KEPT = {"quick": 0, "unknown": 1, "slow": 3}
"""How many places are not for these; one always is."""
FLOOR_BYTES_PER_S = 16 << 10
"""Who is slower than this while others wait must go."""
MAX_REMEMBERED = 4096
"""Volunteers whose last transfer is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Somebody who waits for a place."""

    since: float
    kind: Kind


def choose(wishes: Sequence[Wish], held: Mapping[Kind, int], limit: int) -> tuple[int | None, str]:
    """Which of those who wait gets a place now, if any, and why.

    The longest waiting first. Who may not have a place that is kept for others keeps its turn: it
    gets the first of those that are not.
    """
    if sum(held.values()) >= limit:
        return None, f"{_exchanges(limit)} under way"
    for number in sorted(range(len(wishes)), key=lambda n: wishes[n].since):
        if admits(wishes[number].kind, held, limit):
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


def trickles(*, moved_bytes: int, in_s: float, patience_s: float, others_wait: bool) -> bool:
    """Whether a transfer has become so slow that it must go."""
    return others_wait and in_s >= patience_s and moved_bytes < FLOOR_BYTES_PER_S * in_s


@dataclass(slots=True, eq=False)
class Place:
    """Leave to have one large payload under way."""

    who: VolunteerId
    since: float
    """When it was given, or the transfer under way began."""
    kind: Kind
    comes: bool = True
    """Whether the bytes of the transfer come or go."""
    moving: bool = False
    """Whether bytes are to move now; not while an update that has arrived is applied."""
    _mark: tuple[float, int] = (0.0, 0)

    def begin(self, now: float, moved: int, *, comes: bool) -> None:
        """A transfer begins, when so many bytes had moved that way on its connection."""
        self.since, self.moving, self.comes, self._mark = now, True, comes, (now, moved)

    def kind_at(self, now: float) -> Kind:
        """Whoever takes too long is slow, whatever it was before."""
        return self.kind if now - self.since <= SLOW_S else "slow"

    def begin_again(self, now: float, moved: int) -> None:
        """We slept: what did not move meanwhile is our own doing."""
        self._mark = (now, moved)

    def slower(self, now: float, moved: int, patience_s: float, *, others_wait: bool) -> str:
        """Why this transfer must go; empty if it may go on."""
        at, before = self._mark
        if not self.moving or now - at < patience_s:
            return ""
        if trickles(
            moved_bytes=moved - before,
            in_s=now - at,
            patience_s=patience_s,
            others_wait=others_wait,
        ):
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
    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._held: set[Place] = set()
        self._asking: dict[int, Asking] = {}
        self._numbers = itertools.count()
        self._speeds = _Speeds()

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
        asking.given = given
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

    def leave(self, place: Place) -> None:
        """Once more does no harm."""
        if place not in self._held:
            return
        if place.moving and self._clock() - place.since > SLOW_S:  # it was broken off
            self._speeds.note(place.who, place.comes, self._clock() - place.since)
        self._held.discard(place)
        self._serve()

    def reason(self, since: float) -> str:
        """Why somebody who asked then has no place yet, for people."""
        before = sum(asking.since < since for asking in self._asking.values())
        held = len(self._held)
        rank = "yours is next" if not before else f"{before} come before yours"
        return f"{_exchanges(held)} under way; {rank}"

    def _drop(self, asking: Asking) -> None:
        self._asking = {n: other for n, other in self._asking.items() if other is not asking}

    def _serve(self) -> None:
        while self._asking and self.free > 0:
            now = self._clock()
            held = Counter(place.kind_at(now) for place in self._held)
            numbers = list(self._asking)
            wishes = [
                Wish(since=asking.since, kind=self._speeds.kind(asking.who))
                for asking in self._asking.values()
            ]
            chosen, _ = choose(wishes, held, self.limit)
            if chosen is None:
                return
            asking = self._asking.pop(numbers[chosen])
            asking.place = Place(asking.who, now, wishes[chosen].kind)
            self._held.add(asking.place)
            asking.given()


def _exchanges(number: int) -> str:
    return "1 exchange is" if number == 1 else f"{number} exchanges are"
