"""Updates that travelled in half precision become float32 vectors: a few that are used again.

An update that has arrived has a place (`gate`) and takes half a vector; what it is decoded into is
needed only while it is checked and applied, which happens one after the other anyway. So two such
vectors serve everybody: one is applied while the next is decoded and checked. Who holds one waits
for nobody who waits for one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from crowdgrad.host.allocation import INLINE_BYTES, blank
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import Vector

AT_ONCE: Final = 2


class Unpacking:
    def __init__(self, packing: Packing, words: int) -> None:
        """`words`: of an update."""
        self._packing = packing
        self._words = words
        self._free = asyncio.Semaphore(AT_ONCE)
        self._spare: list[Vector] = []
        self._small: Vector | None = None

    def at_once(self, payload: memoryview) -> Vector:
        """A small update's numbers, until it is asked again: whoever asks does all with them before
        anybody else can."""
        if self._small is None:
            self._small = blank(self._words)
        self._packing.decode(payload, self._small)
        return self._small

    async def unpack(self, payload: memoryview) -> Vector:
        """The update's numbers, the caller's until it gives them back to `let_go`."""
        await self._free.acquire()
        vector = self._spare.pop() if self._spare else blank(self._words)
        try:
            if vector.nbytes <= INLINE_BYTES:
                self._packing.decode(payload, vector)
            else:
                await asyncio.to_thread(self._packing.decode, payload, vector)
        except BaseException:  # a thread may still write into it: nobody else gets that one
            self._free.release()
            raise
        return vector

    def let_go(self, vector: Vector) -> None:
        self._spare.append(vector)
        self._free.release()
