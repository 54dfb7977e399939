"""Flat float32 vectors, worked through in blocks that stay in the cache between passes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

BLOCK = 1 << 16
"""Numbers per block: 256 kB, which several passes share while it lies in the second-level cache."""


def blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, BLOCK):
        yield slice(start, start + BLOCK)


def all_finite(vector_D: Vector) -> bool:
    """Whether no number is NaN or infinite.

    A sum of squares is finite only if its terms are, and costs a fraction of looking at each; only
    where it has overflowed are they looked at.
    """
    with np.errstate(all="ignore"):
        squares = np.dot(vector_D, vector_D)
    if math.isfinite(squares):
        return True
    return all(np.isfinite(vector_D[here]).all() for here in blocks(len(vector_D)))


def as_vector(buffer: memoryview | bytearray | bytes) -> Vector:
    """The float32 vector whose bytes these are, without a copy."""
    return np.frombuffer(buffer, dtype="<f4")


def as_bytes(vector_D: Vector) -> memoryview:
    """The vector's bytes, without a copy."""
    return vector_D.view(np.uint8).data  # not `cast`, which refuses an empty vector
