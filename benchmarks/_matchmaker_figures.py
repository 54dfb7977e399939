"""What a load's attempts to join come to: quantiles, seconds, and when a surge was over.

Nothing here reads a clock: times are seconds since the phase began.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from _matchmaker_socket import Answer

WELCOMED = "welcomed"
REFUSED = "refused politely"
BUSY = (429, 503)
WINDOW_S = 5
LEAST_LIMIT_S = 0.1
"""Below this nobody would call a join slow, whatever it was before."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One knock at the door."""

    at_s: float
    took_s: float
    """From dialling to the answer, whichever it was."""
    outcome: str
    """WELCOMED, REFUSED, or in plain words what went wrong."""
    again: bool = False
    """Somebody who had been refused before."""

    @property
    def impolite(self) -> bool:
        return self.outcome not in (WELCOMED, REFUSED)


@dataclass(frozen=True, slots=True)
class Second:
    """What happened to those who knocked in one second."""

    offered: int
    again: int
    """… of those for the second time or more."""
    admitted: int
    refused: int
    impolite: int
    p99_s: float | None
    """Of those let in; None where nobody was."""


def outcome_of(answer: Answer | None) -> str:
    """What somebody was told who was not let in as far as a WebSocket."""
    if answer is None:
        return "hung up"
    if answer.status not in BUSY:
        return f"HTTP {answer.status}"
    if answer.retry_after_s is None:
        return f"HTTP {answer.status} without Retry-After"
    return REFUSED


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that so many are at or below; NaN of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def waits(attempts: Sequence[Attempt]) -> list[float]:
    """How long those waited who were let in."""
    return [attempt.took_s for attempt in attempts if attempt.outcome == WELCOMED]


def impoliteness(attempts: Sequence[Attempt]) -> dict[str, int]:
    return dict(Counter(attempt.outcome for attempt in attempts if attempt.impolite))


def by_second(attempts: Sequence[Attempt], length_s: int) -> list[Second]:
    bins: list[list[Attempt]] = [[] for _ in range(length_s)]
    for attempt in attempts:
        if 0 <= attempt.at_s < length_s:
            bins[int(attempt.at_s)].append(attempt)
    return [
        Second(
            offered=len(found),
            again=sum(attempt.again for attempt in found),
            admitted=sum(attempt.outcome == WELCOMED for attempt in found),
            refused=sum(attempt.outcome == REFUSED for attempt in found),
            impolite=sum(attempt.impolite for attempt in found),
            p99_s=quantile(waits(found), 0.99) if waits(found) else None,
        )
        for found in bins
    ]


def recovery_s(
    attempts: Sequence[Attempt], *, before_s: float, over_at_s: int, end_s: int
) -> float | None:
    """How long after a surge joins are as they were, and stay so; None: not before the end.

    As they were: of every WINDOW_S seconds from then on, nobody is refused and 99 of 100 joins take
    at most twice what they took `before_s`, or LEAST_LIMIT_S. `over_at_s`: when the surge was over.
    """
    limit_s = max(2 * quantile(waits([a for a in attempts if a.at_s < before_s]), 0.99),
                  LEAST_LIMIT_S)  # fmt: skip
    recovered: float | None = None
    for start in range(end_s - WINDOW_S, over_at_s - 1, -1):
        found = [a for a in attempts if start <= a.at_s < start + WINDOW_S]
        refused = any(a.outcome != WELCOMED for a in found)
        if refused or not quantile(waits(found), 0.99) <= limit_s:
            break
        recovered = float(start - over_at_s)
    return recovered
