"""What a codec is: the parameters' numbers as they travel, of a fixed size each.

    coded = encode(vector),   vector ≈ decode(coded)

Encoding rounds to the nearest number the code has, ties to even, and never makes an infinity of a
finite number: what is too large becomes the largest there is. NaN and infinities stay what they
are, so that whoever checks for them still finds them. Decoding is exact, so coding again what was
decoded changes nothing.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.work import CodecName
from crowdgrad.numerics.vectors import Vector


class Codec(Protocol):
    @property
    def name(self) -> CodecName: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """How coded numbers lie in memory."""

    def encode(self, vector_D: Vector, out_D: NDArray[Any]) -> None:
        """Put the numbers, coded, into `out_D`, an array of `dtype`."""

    def decode(self, coded_D: NDArray[Any], out_D: Vector) -> None:
        """Put what the coded numbers stand for into `out_D`."""
