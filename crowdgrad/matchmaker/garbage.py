"""Garbage, looked for often and little at a time.

Python looks for objects that only refer to each other once so many are new. Everything stops while
it looks, and ten thousand people who wait renew a few objects with every heartbeat: looks that came
by number took up to half a second. Here they come by the clock and see what the last tenth of a
second brought. Our sockets leave nothing of the kind behind; should something ever do, all is
looked at once an hour, which takes a second or two with that many people.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator

EVERY_S = 0.1
EVERYTHING_EVERY_S = 3600.0


@contextlib.contextmanager
def in_small_looks(
    every_s: float = EVERY_S, everything_every_s: float = EVERYTHING_EVERY_S
) -> Iterator[None]:
    """While it lasts. What is there by now is never looked at."""
    gc.collect()
    gc.freeze()
    gc.disable()
    looking = asyncio.create_task(_look(every_s, everything_every_s))
    try:
        yield
    finally:
        looking.cancel()
        gc.enable()


async def _look(every_s: float, everything_every_s: float) -> None:
    loop = asyncio.get_running_loop()
    seen_all_at = loop.time()
    while True:
        await asyncio.sleep(every_s)
        if loop.time() - seen_all_at >= everything_every_s:
            gc.collect()
            seen_all_at = loop.time()
        else:
            gc.collect(1)
