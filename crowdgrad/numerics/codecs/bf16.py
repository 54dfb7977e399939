"""bfloat16: the first half of a float32, so its whole range with 8 significant bits.

    coded = (bits + 0x7fff + (bits ≫ 16 & 1)) ≫ 16

Whole-number arithmetic on the bits rounds to the nearest, ties to even: a carry out of the
significand is the next power of two. The error is at most 2⁻⁸ of the number. Only what lies beyond
the largest bfloat16, or is not finite, needs a second look.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.work import CodecName
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks

LARGEST: Final = 0x7F7F
"""The bits of the largest one, about 3.39·10³⁸."""
_ENDS: Final = np.array([LARGEST << 16], np.uint32).view(np.float32)[0]
_INFINITE: Final = 0x7F80
_QUIET: Final = 0x40
"""A NaN whose first bits are zero would be an infinity without it."""


class BF16:
    name: CodecName = "bf16"
    dtype: np.dtype[Any] = np.dtype("<u2")

    def encode(self, vector_D: Vector, out_D: NDArray[Any]) -> None:
        bits_D = vector_D.view(np.uint32)
        scratch = np.empty(min(BLOCK, len(vector_D)), np.uint32)
        for here in blocks(len(vector_D)):
            bits, out = bits_D[here], out_D[here]
            rounded = scratch[: len(bits)]
            np.right_shift(bits, 16, out=rounded)
            np.bitwise_and(rounded, 1, out=rounded)
            np.add(rounded, 0x7FFF, out=rounded)
            np.add(rounded, bits, out=rounded)
            np.right_shift(rounded, 16, out=rounded)
            np.copyto(out, rounded, casting="unsafe")
            vector = vector_D[here]
            if not (vector.min() >= -_ENDS and vector.max() <= _ENDS):  # or one of them is NaN
                _look_again(bits, out)

    def decode(self, coded_D: NDArray[Any], out_D: Vector) -> None:
        bits_D = out_D.view(np.uint32)
        for here in blocks(len(out_D)):
            bits = bits_D[here]
            np.copyto(bits, coded_D[here])
            np.left_shift(bits, 16, out=bits)


def _look_again(bits: NDArray[np.uint32], out: NDArray[Any]) -> None:
    """Put right what is beyond the largest, infinite or not a number."""
    first = (bits >> 16).astype(np.uint16)
    sign, size = first & 0x8000, bits & 0x7FFFFFFF
    np.copyto(out, sign | LARGEST, where=size > LARGEST << 16)
    np.copyto(out, sign | _INFINITE, where=size == _INFINITE << 16)
    np.copyto(out, first | _QUIET, where=size > _INFINITE << 16)
