"""A random order of n things, place by place, without ever holding the whole order.

A Feistel network over just enough bits for n (Black and Rogaway, "Ciphers with arbitrary finite
domains", CT-RSA 2002) turns place i into another place below n; where it leads outside, it is gone
through again until it does not. So a billion records can be shuffled by many processes that know
nothing but the seed, each working out where its own records go. Its rounds mix with the finaliser
of SplitMix64 (Steele, Lea, Flood, 2014).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
ROUNDS: Final = 6
MAX_PLACES: Final = 1 << 62
_GAMMA: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_MIX: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS: Final = (30, 27, 31)


def permuted(places: Places, count: int, *seed: int) -> Places:
    """Where each of the places (0 ≤ place < count) goes: a permutation of all `count` of them."""
    if not 0 < count <= MAX_PLACES:
        raise ValueError(f"there is no order of {count} things")
    half = max(1, -(-(count - 1).bit_length() // 2))
    keys = [_mixed(_folded(seed) + round_ * _GAMMA) for round_ in range(1, ROUNDS + 1)]
    found = _feistel(places.astype(np.uint64), half, keys)
    outside = np.flatnonzero(found >= np.uint64(count))
    while len(outside):
        again = _feistel(found[outside], half, keys)
        found[outside] = again
        outside = outside[again >= np.uint64(count)]
    return found.view(np.int64)


def _feistel(places: NDArray[np.uint64], half: int, keys: list[int]) -> NDArray[np.uint64]:
    mask, bits = np.uint64((1 << half) - 1), np.uint64(half)
    left, right = places >> bits, places & mask
    for key in keys:
        left, right = right, left ^ (_scramble(right, key) & mask)
    return (left << bits) | right


def _scramble(values: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    mixed = values + np.uint64(key)
    for shift, factor in zip(_SHIFTS, _MIX, strict=False):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(_SHIFTS[2])
    return mixed


def _mixed(value: int) -> int:
    value &= _MASK
    for shift, factor in zip(_SHIFTS, _MIX, strict=False):
        value = ((value ^ value >> shift) * factor) & _MASK
    return value ^ value >> _SHIFTS[2]


def _folded(seed: tuple[int, ...]) -> int:
    folded = len(seed)
    for part in seed:
        folded = _mixed(folded * _GAMMA ^ part)
    return folded
