"""Memory for large vectors: given back to the system when nobody uses it, or used again."""

from __future__ import annotations

import mmap
import sys

import numpy as np

from crowdgrad.numerics.vectors import Vector

INLINE_BYTES = 1 << 20
"""What is smaller is worked on without a thread, and left to the ordinary allocator."""


def room(size: int) -> memoryview:
    """So many bytes of memory; large ones go back to the system at once when nobody uses them.

    An allocator would keep them for later, and with a handful of vectors that is a lot.
    """
    if size <= INLINE_BYTES:
        return memoryview(bytearray(size))
    if sys.platform == "win32":
        return memoryview(mmap.mmap(-1, size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def blank(words: int) -> Vector:
    """A vector of so many numbers, whichever."""
    if 4 * words <= INLINE_BYTES:
        return np.empty(words, np.float32)
    return np.frombuffer(room(4 * words), np.float32)


def copy_of(vector: Vector) -> Vector:
    fresh = blank(len(vector))
    np.copyto(fresh, vector)
    return fresh


class BufferPool:
    """Reused buffers for payloads that arrive, all of one size."""

    def __init__(self, size: int, *, spare: int = 8) -> None:
        self._size = size
        self._spare: list[memoryview] = []
        self._max_spare = spare
        self.taken = 0
        """Buffers that somebody uses."""

    @property
    def spare(self) -> int:
        return len(self._spare)

    def take(self) -> memoryview:
        self.taken += 1
        return self._spare.pop() if self._spare else room(self._size)

    def forget(self, count: int) -> None:
        """So many will not come back."""
        self.taken -= count

    def give(self, buffer: memoryview) -> None:
        self.taken -= 1
        if len(self._spare) < self._max_spare and len(buffer) == self._size:
            self._spare.append(buffer)

    def trim(self, most: int) -> None:
        """Keep at most so many that nobody uses."""
        del self._spare[max(0, most) :]
