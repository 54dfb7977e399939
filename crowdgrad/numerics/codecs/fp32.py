"""Numbers as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.work import CodecName
from crowdgrad.numerics.vectors import Vector


class FP32:
    name: CodecName = "fp32"
    dtype: np.dtype[Any] = np.dtype("<f4")

    def encode(self, vector_D: Vector, out_D: NDArray[Any]) -> None:
        np.copyto(out_D, vector_D)

    def decode(self, coded_D: NDArray[Any], out_D: Vector) -> None:
        np.copyto(out_D, coded_D)
