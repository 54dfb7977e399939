"""One question to a router by UDP, said again until there is an answer.

The socket is connected: the kernel gives us nothing that does not come from the router's address
and port, and tells us when nobody listens there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from crowdgrad.errors import RouterError

T = TypeVar("T")
Waits = tuple[float, ...]
WAITS_S: Waits = (0.25, 0.5, 1.0)
"""How long to wait for an answer each time we have asked. A router is a millisecond away."""


async def ask(
    where: tuple[str, int], request: bytes, read: Callable[[bytes], T | None], *, waits_s: Waits
) -> T:
    """What `read` makes of an answer: None for a datagram that is none, an error for a refusal.

    Raises RouterError.
    """
    loop = asyncio.get_running_loop()
    asking: _Asking[T] = _Asking(read, loop.create_future())
    try:
        transport, _ = await loop.create_datagram_endpoint(lambda: asking, remote_addr=where)
    except OSError as error:
        raise RouterError(f"it cannot be reached: {error.strerror or error}") from None
    try:
        for wait_s in waits_s:
            transport.sendto(request)
            await asyncio.wait({asking.answer}, timeout=wait_s)
            if asking.answer.done():
                return asking.answer.result()
        raise RouterError("it does not answer")
    finally:
        transport.close()
        if not asking.answer.cancel() and not asking.answer.cancelled():
            asking.answer.exception()  # we were called off with a refusal in hand: it was seen


class _Asking(asyncio.DatagramProtocol, Generic[T]):
    def __init__(self, read: Callable[[bytes], T | None], answer: asyncio.Future[T]) -> None:
        self._read = read
        self.answer = answer

    def datagram_received(self, data: bytes, addr: object) -> None:
        if self.answer.done():
            return
        try:
            found = self._read(data)
        except RouterError as error:
            self.answer.set_exception(error)
        else:
            if found is not None:
                self.answer.set_result(found)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            why = "nobody listens there" if isinstance(exc, ConnectionRefusedError) else str(exc)
            self.answer.set_exception(RouterError(why))
