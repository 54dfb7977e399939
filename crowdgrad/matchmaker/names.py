"""What names stand for, of strangers' names: few are looked up at a time, and nobody waits for one.

Whoever owns a name can make its lookup last, so while too many are still at it no other begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crowdgrad.net.resolve import in_own_thread, look_up

MOST = 16

Lookup = Callable[[str], tuple[str, ...]]


class Names:
    def __init__(self, lookup: Lookup = look_up, *, most: int = MOST) -> None:
        self._lookup = lookup
        self._most = most
        self._under_way = 0

    async def addresses(self, name: str) -> tuple[str, ...]:
        """None where nobody knows the name, and where too many are looked up already."""
        if self._under_way >= self._most:
            return ()
        looking = in_own_thread(lambda: self._lookup(name), "lookup")
        self._under_way += 1
        looking.add_done_callback(self._done)
        return await asyncio.shield(looking)  # who no longer waits does not end it

    def _done(self, looking: asyncio.Future[tuple[str, ...]]) -> None:
        self._under_way -= 1
