"""How many labels of the training records look wrong: those whose loss *stays* high.

A model learns what records have in common long before it learns single ones by heart (Arpit and
others 2017). A record whose label contradicts the rest is then predicted as the rest is, and its
loss stays high while that of the others falls. So the same records are looked at several times, and
a record counts where its loss is high in every one of the last looks.

High is, for a classification, more than guessing costs: ln C, or −ln of 1 in C. For any other loss
it is beyond the usual by six times the usual deviation, both as medians, which a few wrong records
cannot move: median + 6 · median |loss − median|.

What it cannot tell apart: a wrong label, and a right one that the model cannot learn. And what was
learned by heart in the end, right or wrong, is not found any more. It is a share to look into, with
the records to begin with, not a verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

LAST = 3
"""Looks in which a loss must have been high."""
DEVIATIONS = 6.0
SUSPECTS = 20
"""Records that are named."""
BARS = 12
BARS_BELOW = 4
"""Of the histogram, those below the threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A record whose loss stayed high."""

    shard: int
    row: int
    """In its shard, as it lies."""
    loss: float
    """The least of the last looks."""
    label: str = ""
    """Its target, where that is one number, with the name of its class where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBucket:
    """How many of the last look's losses were from `least` to below `most`; None: and more."""

    least: float
    most: float | None
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNoise:
    """What looking has found so far."""

    share: float | None = None
    """Of the training records, whose loss stayed high; None: it is not known."""
    error: float | None = None
    """The share's standard error: only some of the records were looked at."""
    threshold: float | None = None
    """Above it, a loss is high; that of the last look."""
    samples: int = 0
    """Records that were looked at."""
    looks: int = 0
    """So many of the last looks are in it."""
    reason: str = "nobody has looked at single records yet"
    histogram: tuple[LossBucket, ...] = ()
    """Of the last look's losses."""
    suspects: tuple[Suspect, ...] = ()
    """The records whose loss stayed highest."""


UNKNOWN = LabelNoise()


def noise_in_words(noise: LabelNoise) -> str:
    """The finding in a sentence, for people."""
    if noise.share is None or noise.error is None:
        return f"Noise in labels: not known; {noise.reason}."
    return (
        f"Noise in labels: the loss of {100 * noise.share:.1f} % (± {100 * noise.error:.1f} %) "
        f"stays high; {noise.reason}."
    )


def judge(
    looks: Sequence[Mapping[int, float]], classes: int | None
) -> tuple[LabelNoise, list[int]]:
    """What the losses of the same records in several looks say, the last look at the end.

    Also the records whose loss stayed high, the highest first. Records whose loss was not a finite
    number do not count. `classes`: how many a classification has.
    """
    last = looks[-LAST:]
    common = set.intersection(*map(set, last)) if last else set()
    records = [n for n in sorted(common) if all(math.isfinite(look[n]) for look in last)]
    if not records:
        if not last:
            return UNKNOWN, []
        return LabelNoise(reason="no loss of a single record was a finite number"), []
    columns = [[look[n] for n in records] for look in last]
    thresholds = [_threshold(losses, classes) for losses in columns]
    seen = LabelNoise(samples=len(records), looks=len(last))
    if any(threshold is None for threshold in thresholds):
        reason = "most records have the very same loss, so none of them stands out"
        return replace(seen, reason=reason), []
    bounds = [threshold for threshold in thresholds if threshold is not None]
    least = {n: min(losses) for n, *losses in zip(records, *columns, strict=True)}
    high = [
        n
        for n, *losses in zip(records, *columns, strict=True)
        if all(loss > bound for loss, bound in zip(losses, bounds, strict=True))
    ]
    high.sort(key=lambda n: (-least[n], n))
    share = len(high) / len(records)
    # As if one more of each kind had been seen: none found among a thousand is no proof of none.
    near = (len(high) + 1) / (len(records) + 2)
    return replace(
        seen,
        share=share,
        error=math.sqrt(near * (1 - near) / len(records)),
        threshold=bounds[-1],
        reason=_reason(seen, len(high), bounds[-1], statistics.median(columns[-1]), classes),
        histogram=_histogram(columns[-1], bounds[-1]),
    ), high


def _threshold(losses: Sequence[float], classes: int | None) -> float | None:
    if classes is not None:
        return math.log(classes)
    usual = statistics.median(losses)
    deviation = statistics.median([abs(loss - usual) for loss in losses])
    return usual + DEVIATIONS * deviation if deviation > 0 else None


def _reason(
    seen: LabelNoise, high: int, threshold: float, median: float, classes: int | None
) -> str:
    meaning = (
        f"what guessing among {classes} classes costs"
        if classes is not None
        else "far beyond the usual"
    )
    when = "in the only look" if seen.looks == 1 else f"in each of the last {seen.looks} looks"
    told = (
        f"{high:,} of {seen.samples:,} training records had a loss above {threshold:.3g}, "
        f"{meaning}, {when}"
    )
    if classes is not None and median > threshold / 2:
        told += "; the model has hardly learned, so this says more of it than of the labels"
    return told


def _histogram(losses: Sequence[float], threshold: float) -> tuple[LossBucket, ...]:
    """Bars of one width, of which some end where losses become high; the last has no end."""
    start = min(0.0, *losses)
    width = (threshold - start) / BARS_BELOW
    counts = [0] * BARS
    for loss in losses:
        counts[min(BARS - 1, int((loss - start) / width))] += 1
    last = BARS - 1
    return tuple(
        LossBucket(
            least=start + place * width,
            most=start + (place + 1) * width if place < last else None,
            records=count,
        )
        for place, count in enumerate(counts)
    )
