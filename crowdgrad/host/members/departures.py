"""Who came and went, and why: the last of them by name, all of them by the kind of reason."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.work import VolunteerId

MAX_KEPT = 200
"""Departures remembered by name; of the others only the kind of reason."""
MAX_REASON = 200
Kind = Literal[
    "left", "came_back", "silent", "lost", "slow", "turned_away", "stayed", "host", "other"
]
WORDS: Mapping[str, str] = {
    "left": "said goodbye",
    "came_back": "came back another way",
    "silent": "fell silent",
    "lost": "lost their connection",
    "slow": "were too slow",
    "turned_away": "were turned away",
    "stayed": "stayed to the end",
    "host": "went with the host",
    "other": "went otherwise",
}
STAYED = "stayed to the end"
HOST_STOPPED = "was here when the host stopped"
_KINDS: tuple[
    tuple[Kind, str], ...
] = (  # the first that fits; its own words come last in "left: …"
    ("left", r"left: "),
    ("came_back", r"came back on another connection"),
    ("stayed", STAYED),
    ("host", f"{HOST_STOPPED}|an error on the host|something went wrong here"),
    ("turned_away", r"turned away"),
    ("slow", r"too slow"),
    ("silent", r".*(fell silent|said nothing for|nothing heard for)"),
    ("lost", r".*(connection|reset|broken pipe|closed|timed out|unreachable)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    at_s: float
    """Seconds of training when it went."""
    who: VolunteerId
    name: str
    reason: str
    """In plain words; those of somebody who said goodbye are its own."""
    stayed_s: float
    samples: int
    """Accepted from it until then, in all its visits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeparturesState:
    """What a checkpoint keeps."""

    arrivals: int = 0
    kinds: tuple[tuple[str, int], ...] = ()
    last: tuple[Departure, ...] = ()


class Departures:
    def __init__(self) -> None:
        self.arrivals = 0
        self.kinds: Counter[str] = Counter()
        self._last: deque[Departure] = deque(maxlen=MAX_KEPT)

    @property
    def total(self) -> int:
        return self.kinds.total()

    def add(self, departure: Departure) -> None:
        self.kinds[kind_of(departure.reason)] += 1
        self._last.append(departure)

    def last(self, count: int) -> list[Departure]:
        """The latest, oldest first."""
        return list(self._last)[-count:]

    def snapshot(self) -> DeparturesState:
        return DeparturesState(
            arrivals=self.arrivals,
            kinds=tuple(sorted(self.kinds.items())),
            last=tuple(self._last),
        )

    def restore(self, state: DeparturesState, *, here: int) -> None:
        """`here`: how many the host that stopped left behind; they are gone without a word."""
        self.arrivals = state.arrivals
        self.kinds = Counter(dict(state.kinds))
        self.kinds[kind_of(HOST_STOPPED)] += here
        self._last = deque(state.last, maxlen=MAX_KEPT)


def kind_of(reason: str) -> Kind:
    """A short name for a reason, so that they can be counted."""
    for kind, pattern in _KINDS:
        if re.match(pattern, reason, re.IGNORECASE | re.DOTALL):
            return kind
    return "other"


def in_words(kinds: Mapping[str, int]) -> str:
    """How many went for which reason, in one line."""
    return ", ".join(f"{count:,} {WORDS.get(kind, kind)}" for kind, count in kinds.items())
