"""Memory for large vectors: given back to the system when nobody uses it, or used again."""

from __future__ import annotations

import contextlib
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
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # a page fault every 2 MB instead of every 4 kB
        with contextlib.suppress(OSError):  # not every kernel has them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


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
    """Reused buffers for what arrives and what goes out: large ones are dear to make.

    A fresh one costs a page fault for every 4 kB, which is more than a vector's arithmetic. So an
    update that was applied leaves its buffer to the next one that arrives, or to the parameters.
    """

    def __init__(self, size: int, *, keep: int = 8) -> None:
        """`size`: of the largest. `keep`: so many are kept, those in use included."""
        self._size = size
        self._spare: list[memoryview] = []
        self.keep = keep
        self.taken = 0
        """Buffers that somebody uses."""

    @property
    def spare(self) -> int:
        return len(self._spare)

    def take(self, size: int) -> memoryview:
        """So many bytes, at most those of the largest."""
        self.taken += 1
        whole = self._spare.pop() if self._spare else room(self._size)
        return whole if size == len(whole) else whole[:size]

    def forget(self, count: int) -> None:
        """So many will not come back."""
        self.taken = max(0, self.taken - count)

    def give(self, buffer: memoryview) -> None:
        """It is not used any more, nor any part of it."""
        self.taken = max(0, self.taken - 1)
        whole = buffer if len(buffer) == self._size else memoryview(buffer.obj)
        if self.taken + len(self._spare) < self.keep and len(whole) == self._size:
            self._spare.append(whole)
