"""Mean and deviation of a field, gathered part by part: Chan, Golub, LeVeque 1979."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
import numpy as np

from crowdgrad.data.preparing.columns import Array
from crowdgrad.data.preparing.fitting import FieldPlan
from crowdgrad.domain.data import Moment

DIGITS = 9
"""Significant ones that are kept: more than float32 has, and fewer than depend on the order in
which numbers were added up, which is that of the parts."""
SAME = 1e-7
"""A deviation so small beside the mean is what rounding left of numbers that are all the same."""
BLOCK_ITEMS = 1 << 17


class Moments(msgspec.Struct):
    count: int = 0
    """Numbers at each place."""
    means: list[float] = []
    squares: list[float] = []
    """Sums of squared differences from the mean."""


@np.errstate(over="ignore", invalid="ignore")  # what has no deviation is refused with its field
def moments(values: Array, field: FieldPlan) -> Moments:
    """Of some records; for each place of the first dimension, or for all of them together."""
    if not field.normal or not len(values):
        return Moments()
    places = values.shape[1] if field.normal == "each" else 1
    flat = values.reshape(len(values), places, -1)
    rows = max(1, BLOCK_ITEMS // (places * flat.shape[2]))  # no float64 copy of all of it
    return joined(_of(flat[at : at + rows]) for at in range(0, len(flat), rows))


def _of(values: Array) -> Moments:
    block = values.astype(np.float64)
    count = block.shape[0] * block.shape[2]
    means = np.einsum("ijk->j", block) / count
    block -= means[None, :, None]
    return Moments(count, means.tolist(), np.einsum("ijk,ijk->j", block, block).tolist())


@np.errstate(over="ignore", invalid="ignore")
def joined(parts: Iterable[Moments]) -> Moments:
    """All together, in the order of the parts."""
    whole = Moments()
    for part in parts:
        if not part.count:
            continue
        if not whole.count:
            whole = part
            continue
        count = whole.count + part.count
        apart = np.subtract(part.means, whole.means)
        means = np.array(whole.means) + apart * part.count / count
        squares = np.add(whole.squares, part.squares)
        squares += np.square(apart) * whole.count * part.count / count
        whole = Moments(count, means.tolist(), squares.tolist())
    return whole


def mean_and_std(whole: Moments, field: FieldPlan) -> tuple[Moment, Moment] | tuple[None, None]:
    """As a field carries them. What never changes, and onehot places, stay as they are."""
    if not whole.count:
        return None, None
    means, stds = [], []
    for mean, square in zip(whole.means, whole.squares, strict=True):
        std = float(np.sqrt(square / whole.count))
        means.append(_rounded(mean, max(abs(mean), std / 10)))
        same = std <= SAME * abs(mean)
        stds.append(1.0 if same else _rounded(std, max(std, abs(mean) / 100)) or 1.0)
    at = 0
    for source in field.sources if field.make == "stack" else ():
        width = len(source.names) if source.onehot else 1
        if source.onehot:
            means[at : at + width], stds[at : at + width] = [0.0] * width, [1.0] * width
        at += width
    if field.normal == "whole":
        return means[0], stds[0]
    return tuple(means), tuple(stds)


def _rounded(number: float, size: float) -> float:
    """To so many digits of a number of this size: a mean of almost zero has no digits to keep."""
    if not size or not np.isfinite(size):
        return number
    return round(number, DIGITS - 1 - math.floor(math.log10(size))) + 0.0
