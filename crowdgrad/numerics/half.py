"""Differences from a reference in half precision: half the memory for what is nearly the same.

    halves = fp16((vector − reference)·2ᵏ),   vector ≈ reference + halves·2⁻ᵏ          k: per block

fp16 has 11 significant bits, but none below 6·10⁻⁸, where differences of a step or two often are.
So each block has its own power of two, which takes its largest difference to just below 2¹⁵ (fp16
ends at 65504) and itself costs no precision: the error is at most 2⁻¹¹ of the difference, unless
that is below 2⁻²⁹ of the block's largest.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crowdgrad.numerics.vectors import BLOCK, Vector, blocks

_TOP: Final = 15
_LARGEST_K: Final = 126  # so that 2ᵏ and 2⁻ᵏ are ordinary float32


class HalfDifference:
    """What turns a reference back into the vector. Keeps neither of them."""

    __slots__ = ("_exponents", "_halves_D")

    def __init__(self, halves_D: NDArray[np.float16], exponents: tuple[int, ...]) -> None:
        self._halves_D = halves_D
        self._exponents = exponents

    @classmethod
    def of(cls, vector_D: Vector, reference_D: Vector) -> HalfDifference:
        """NaN stays NaN; a difference that float32 cannot hold becomes infinite."""
        halves_D = np.empty(len(vector_D), np.float16)
        scratch = np.empty(min(BLOCK, len(vector_D)), np.float32)
        exponents = []
        with np.errstate(all="ignore"):
            for here in blocks(len(vector_D)):
                halves = halves_D[here]
                difference = scratch[: len(halves)]
                np.subtract(vector_D[here], reference_D[here], out=difference)
                k = _exponent(difference)
                np.multiply(difference, np.float32(2.0**k), out=difference)
                halves[:] = difference
                exponents.append(k)
        return cls(halves_D, tuple(exponents))

    def restore(self, reference_D: Vector, out_D: Vector) -> None:
        """Put the vector into `out_D`, which may be the reference itself."""
        scratch = np.empty(min(BLOCK, len(out_D)), np.float32)
        with np.errstate(all="ignore"):
            places = blocks(len(self._halves_D))
            for here, k in zip(places, self._exponents, strict=True):
                halves = self._halves_D[here]
                difference = scratch[: len(halves)]
                np.multiply(halves, np.float32(2.0**-k), out=difference)
                np.add(reference_D[here], difference, out=out_D[here])

    @property
    def bytes(self) -> int:
        return int(self._halves_D.nbytes) + 8 * len(self._exponents)


def _exponent(block: Vector) -> int:
    """k, so that the largest finite magnitude times 2ᵏ is from 2¹⁴ to below 2¹⁵."""
    largest = max(float(block.max()), -float(block.min()))
    if not math.isfinite(largest):
        largest = float(np.abs(block[np.isfinite(block)]).max(initial=0.0))
    return min(_TOP - math.frexp(largest)[1], _LARGEST_K)
