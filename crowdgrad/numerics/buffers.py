"""How buffers are merged: means and variances by convex averaging, counters by adding.

    b ← (1 − c)·b + c·received          floating; c = 1 where nothing came between, else ½
    n ← n + (n_received − n_base)       whole numbers; the increment is what travels

Adding *differences* of floating buffers would be unstable: with momentum 0.1 the recursion grows
from staleness 16 on. A convex average never leaves the range of what was received; here it does not
even by rounding. At staleness s and momentum m the mean follows in about (s + 1)/m updates for any
c well above 1/s, and half as fast for c = 1/(1 + s): hence ½, which still halves what one odd batch
can do. In a round c is the part of the samples so far, which makes it their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.numerics.layout import StateLayout, is_floating
from crowdgrad.numerics.vectors import Vector

MAX_INCREMENT = 1 << 24
"""More than any unit counts; a stranger may send anything."""


def share(staleness: int) -> float:
    """How much a received buffer weighs: everything where nothing happened in between."""
    return 1.0 if staleness == 0 else 0.5


def finite(layout: StateLayout, vector: Vector) -> bool:
    """Whether the floating buffers of a state or update are."""
    return all(np.isfinite(v).all() for tensor, v in layout.buffers(vector) if is_floating(tensor))


def credible(layout: StateLayout, update: Vector) -> bool:
    """Whether the counters of an update may be what a unit counted."""
    grown = (v for tensor, v in layout.buffers(update) if not is_floating(tensor) and v.size)
    return all(-MAX_INCREMENT <= v.min() <= v.max() <= MAX_INCREMENT for v in grown)


def mix(layout: StateLayout, state: Vector, update: Vector, part: float) -> None:
    """Merge an update's buffers into the state, floating ones with weight `part`."""
    for (tensor, ours), (_, received) in zip(
        layout.buffers(state), layout.buffers(update), strict=True
    ):
        if not is_floating(tensor):
            ours += received
        else:
            _average(ours, received, part)


def shift(layout: StateLayout, state: Vector, by: Vector) -> None:
    """Add differences to the floating buffers of a state."""
    for (tensor, ours), (_, more) in zip(layout.buffers(state), layout.buffers(by), strict=True):
        if is_floating(tensor):
            ours += more


def _average(ours: NDArray[Any], received: NDArray[Any], part: float) -> None:
    """(1 − part)·ours + part·received, in place: finite wherever both are, however large."""
    if part >= 1:
        ours[...] = received
        return
    least, most = np.minimum(ours, received), np.maximum(ours, received)
    with np.errstate(all="ignore"):  # two shares of the largest number may round to more than it
        mixed = np.multiply(ours, 1 - part, dtype=np.float64)
        mixed = mixed + np.multiply(received, part, dtype=np.float64)
    ours[...] = np.clip(mixed, least, most)


def carry(layout: StateLayout, source: Vector, target: Vector) -> None:
    """Copy the buffers of a state or update into another."""
    if layout.update_words > layout.size:
        target[layout.size : layout.update_words] = source[layout.size : layout.update_words]


def return_buffers(
    layout: StateLayout,
    last: Vector,
    counted: Sequence[NDArray[Any]],
    update: Vector,
    *,
    add: bool,
) -> None:
    """What a unit returns of its buffers: the last values, and how much counters grew.

    `counted`: the counters when the unit, or this stretch of it, began. `add`: the stretches before
    have left their increments in `update`.
    """
    counters = iter(counted)
    for (tensor, value), (_, returned) in zip(
        layout.buffers(last), layout.buffers(update), strict=True
    ):
        if is_floating(tensor):
            returned[...] = value
            continue
        grown = value - next(counters)
        returned[...] = returned + grown if add else grown
