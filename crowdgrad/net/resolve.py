"""Which addresses a name stands for: to be looked at before anybody dials one of them.

The system's own lookup blocks, cannot be broken off, and lasts as long as whoever owns the name
likes. So it has a thread of its own (`in_own_thread`, also for other calls of that kind): one that
nobody waits for any longer ends with the process and keeps nobody from leaving.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from crowdgrad.errors import Unreachable

T = TypeVar("T")


async def addresses(name: str) -> tuple[str, ...]:
    """All of them, in the order in which to try them; an address is itself. Raises Unreachable."""
    found = await in_own_thread(lambda: look_up(name), "lookup")
    if not found:
        raise Unreachable(f"Nobody knows where {name} is.", advice="Is the name right?")
    return found


def look_up(name: str) -> tuple[str, ...]:
    """Blocks. None where nobody knows the name."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(where[0]) for *_, where in found))


def in_own_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """What becomes of it; cancelling this leaves the thread to itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result: T | None = None
        trouble: BaseException | None = None
        try:
            result = function()
        except BaseException as error:
            trouble = error
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits
            loop.call_soon_threadsafe(settle, result, trouble)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
