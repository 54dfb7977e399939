"""What names stand for, of strangers' names: few are looked up at a time, and nobody waits for one.

The system's own lookup cannot be broken off, and whoever owns a name can make it last. So each has
a thread that ends with the process, and while too many are still at it no other begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

MOST = 16

Lookup = Callable[[str], tuple[str, ...]]


def _look_up(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(where[0]) for *_, where in found))


class Names:
    def __init__(self, lookup: Lookup = _look_up, *, most: int = MOST) -> None:
        self._lookup = lookup
        self._most = most
        self._under_way = 0

    async def addresses(self, name: str) -> tuple[str, ...]:
        """None where nobody knows the name, and where too many are looked up already."""
        if self._under_way >= self._most:
            return ()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

        def done(found: tuple[str, ...]) -> None:
            self._under_way -= 1
            if not answer.done():
                answer.set_result(found)

        def look_up() -> None:
            found = self._lookup(name)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done, found)

        self._under_way += 1
        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        return await answer
