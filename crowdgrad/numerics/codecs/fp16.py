"""IEEE half precision: 11 significant bits, from 6·10⁻⁸ to 65504.

The error is at most 2⁻¹¹ of the number, or 2⁻²⁵ where it is below 2⁻¹⁴; what is beyond 65504
becomes 65504. numpy converts number by number, the small ones very slowly; here a whole block goes
through vector instructions.

    encode: with 2ᴱ ≤ |x| < 2ᴱ⁺¹ (E ≥ −14) the code's step at x is 2ᴱ⁻¹⁰, which is also a float32's
            from 2ᴱ⁺¹³ on. So the sum |x| + 2ᴱ⁺¹³ is rounded as the code wants it, and its last
            bits are round(|x| / 2ᴱ⁻¹⁰). The code is that plus (E + 14)·2¹⁰, and the sign.
    decode: the bits moved into a float32's place are F, which is right from 2⁻¹⁴ on; below, where
            the code has no leading one, 2F − 2⁻¹⁴ is. It is always the smaller of the two.

Only what lies beyond 65504, or is not finite, needs a second look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.work import CodecName
from crowdgrad.numerics.vectors import BLOCK, Vector

LARGEST: Final = 65504.0
_INFINITE: Final = 0x7C00
_LEAST: Final = np.float32(2.0**-14)
"""The smallest number with all its bits."""
_PART: Final = BLOCK // 2
"""Numbers worked on at once: a block is room for two of each."""
_LEASTS: Final = np.full(_PART, _LEAST)
"""numpy compares two vectors three times as fast as a vector and a number."""


class FP16:
    name: CodecName = "fp16"
    dtype: np.dtype[Any] = np.dtype("<f2")

    def encode(self, vector_D: Vector, out_D: NDArray[Any]) -> None:
        scratch = np.empty((2, _PART), np.uint32)
        coded_D = out_D.view(np.uint16)
        for here in _parts(len(vector_D)):
            vector, coded = vector_D[here], coded_D[here]
            with np.errstate(all="ignore"):
                _encode(vector.view(np.uint32), coded, scratch[:, : len(vector)])
            if not (vector.min() >= -LARGEST and vector.max() <= LARGEST):  # or one is NaN
                _look_again(vector, out_D[here])

    def decode(self, coded_D: NDArray[Any], out_D: Vector) -> None:
        scratch, more = np.empty((2, _PART), np.uint32)
        bits_D = coded_D.view(np.uint16)
        for here in _parts(len(out_D)):
            coded, out = bits_D[here], out_D[here]
            sizes = np.bitwise_and(coded, 0x7FFF, out=more.view(np.uint16)[: len(coded)])
            odd = np.flatnonzero(sizes >= _INFINITE) if sizes.max() >= _INFINITE else ()
            _decode(coded, sizes, out, scratch[: len(coded)])
            if len(odd):
                out[odd] = coded_D[here][odd]


def _parts(length: int) -> Iterator[slice]:
    return (slice(start, start + _PART) for start in range(0, length, _PART))


def _encode(bits: NDArray[np.uint32], out: NDArray[np.uint16], scratch: NDArray[np.uint32]) -> None:
    """What is added up has more bits than the code: those above its 16 are lost in `copyto`."""
    sums, powers = scratch
    rounded, power = sums.view(np.float32), powers.view(np.float32)
    np.bitwise_and(bits, 0x7FFFFFFF, out=sums)
    np.bitwise_and(bits, 0x7F800000, out=powers)
    np.maximum(power, _LEASTS[: len(power)], out=power)
    np.add(powers, 13 << 23, out=powers)
    np.add(rounded, power, out=rounded)
    np.right_shift(powers, 13, out=powers)  # (E + 13 + 127)·2¹⁰
    np.add(sums, powers, out=sums)
    signs = np.right_shift(bits, 16, out=powers)
    np.bitwise_and(signs, 0x8000, out=signs)
    np.add(sums, signs, out=sums)
    np.copyto(out, sums, casting="unsafe")
    np.add(out, 2 << 10, out=out)  # − 126·2¹⁰, in 16 bits


def _decode(
    coded: NDArray[np.uint16],
    sizes: NDArray[np.uint16],
    out: Vector,
    scratch: NDArray[np.uint32],
) -> None:
    bits, below = out.view(np.uint32), scratch.view(np.float32)
    np.copyto(bits, sizes)
    np.left_shift(bits, 13, out=bits)
    np.add(bits, (127 - 15) << 23, out=bits)
    np.add(out, out, out=below)
    np.subtract(below, _LEAST, out=below)
    np.minimum(out, below, out=out)
    signs = np.bitwise_and(coded, 0x8000, out=sizes)
    np.copyto(scratch, signs)
    np.left_shift(scratch, 16, out=scratch)
    np.bitwise_or(bits, scratch, out=bits)


def _look_again(vector: Vector, out: NDArray[Any]) -> None:
    """Put right what is beyond the largest, infinite or not a number."""
    odd = np.flatnonzero(~(np.abs(vector) <= LARGEST))
    those = vector[odd]
    out[odd] = np.where(np.isinf(those), those, np.clip(those, -LARGEST, LARGEST))
