"""A state or an update as bytes: coded parameters, then the words of its buffers as they are.

Word i of the parameters begins at byte (coded bytes)·i, so any part of the parameters is a part of
the bytes, and all sizes follow from the program's spec and the codec's name
(`domain.work.wire_place`). Buffers are few and must be exact: counters, and variances that
a small error makes negative.

S: the words of a state or an update; its first D are the parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.work import CodecName, wire_place
from crowdgrad.numerics.codecs import CODECS
from crowdgrad.numerics.vectors import Vector, as_vector


class Packing:
    def __init__(self, codec: CodecName, size: int) -> None:
        """`size`: how many numbers the parameters are."""
        self._codec = CODECS[codec]
        self._size = size
        self._coded_bytes = wire_place(codec, size, size)
        self.plain = codec == "fp32"
        """Whether the bytes are those of the vector itself."""

    def bytes(self, words: int) -> int:
        """Of so many words, counted from the first parameter."""
        return wire_place(self._codec.name, self._size, words)

    def encode(self, vector_S: Vector, into: memoryview) -> None:
        if self.plain:
            np.copyto(as_vector(into), vector_S)
            return
        coded_D, rest = self._parts(into)
        self._codec.encode(vector_S[: self._size], coded_D)
        np.copyto(rest, vector_S[self._size :].view(np.uint8))

    def decode(self, payload: memoryview, out_S: Vector) -> None:
        coded_D, rest = self._parts(payload)
        self._codec.decode(coded_D, out_S[: self._size])
        np.copyto(out_S[self._size :].view(np.uint8), rest)

    def decoded(self, payload: memoryview) -> Vector:
        """What the bytes stand for; without a copy where they are the vector's own."""
        if self.plain:
            return as_vector(payload)
        words = self._size + (len(payload) - self._coded_bytes) // 4
        vector_S = np.empty(words, np.float32)
        self.decode(payload, vector_S)
        return vector_S

    def coded(self, payload: memoryview) -> NDArray[Any]:
        """The parameters as they lie in the bytes."""
        return self._parts(payload)[0]

    def weights(self, coded_D: NDArray[Any], out_D: Vector) -> None:
        """What the parameters in the bytes stand for."""
        self._codec.decode(coded_D, out_D)

    def _parts(self, payload: memoryview) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        end = self._coded_bytes  # need not be a multiple of four: the rest is moved as bytes
        coded_D = np.frombuffer(payload[:end], self._codec.dtype)
        return coded_D, np.frombuffer(payload[end:], np.uint8)
