"""Flat float32 vectors, worked through in blocks that stay in the cache between passes."""

from __future__ import annotations

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

    A sum is finite only if its terms are, and costs a fraction of looking at each; only a sum that
    overflowed is looked at more closely.
    """
    with np.errstate(all="ignore"):
        for here in blocks(len(vector_D)):
            block = vector_D[here]
            if not np.isfinite(np.add.reduce(block)) and not np.isfinite(block).all():
                return False
    return True


def as_vector(buffer: memoryview | bytearray | bytes) -> Vector:
    """The float32 vector whose bytes these are, without a copy."""
    return np.frombuffer(buffer, dtype="<f4")


def as_bytes(vector_D: Vector) -> memoryview:
    """The vector's bytes, without a copy."""
    return vector_D.view(np.uint8).data  # not `cast`, which refuses an empty vector
