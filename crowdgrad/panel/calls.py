"""How the panel asks its children: over HTTP, on this machine, one request and one answer."""

from __future__ import annotations

import asyncio
import http.client
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from crowdgrad.errors import Unreachable
from crowdgrad.host.remote.control_file import Entrance

PATIENCE_S = 10.0
MAX_ANSWER = 64 << 20
"""Bytes. A longer one is not told at all."""
AT_ONCE = 32
EACH = 4
"""Questions to one child at once; the next wait for their turn."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    code: int
    kind: str
    """Its content type."""
    body: bytes

    def told(self, kind: type[T]) -> T:
        """What it says. Raises ValueError where that makes no sense."""
        return decoded(self.body, kind)


def decoded(body: bytes, kind: type[T] | Any = Any) -> T:
    """JSON as browsers read it: numbers are finite, and it is no deeper than they can bear. Who
    listens where a host did may be another, and a folder may come from elsewhere. Raises
    ValueError."""
    try:
        found: T = msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ValueError("too deep") from None
    return found


class Caller:
    """Asks in threads of its own, few for each child: one that hangs keeps nobody else waiting."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="calls")
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def ask(
        self,
        entrance: Entrance,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        owner: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> Reply:
        """`owner`: with the token, which proves who asks. Raises Unreachable."""
        headers = {"Authorization": f"Bearer {entrance.token}"} if owner else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        turn = await self._turn(entrance, patience_s)
        asked = asyncio.get_running_loop().run_in_executor(
            self._threads, _call, entrance, method, path, headers, body, patience_s
        )
        # The thread is busy for as long as it takes, also where whoever asked has gone.
        asked.add_done_callback(lambda done: turn.release())
        return await asyncio.shield(asked)

    async def _turn(self, entrance: Entrance, patience_s: float) -> asyncio.Semaphore:
        """Ours to give back. Raises Unreachable where it does not come."""
        turn = self._turns.setdefault(entrance.address, asyncio.Semaphore(EACH))
        try:
            async with asyncio.timeout(patience_s):
                await turn.acquire()
        except TimeoutError:
            raise Unreachable(
                f"{entrance.url} has not answered what it was asked before.",
                advice="Try again in a moment; if that does not help, stop it and start it again.",
            ) from None
        return turn

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _call(
    entrance: Entrance,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes | None,
    patience_s: float,
) -> Reply:
    connection = http.client.HTTPConnection(*entrance.address, timeout=patience_s)
    try:
        connection.request(method, path, body=body, headers=headers)
        reply = connection.getresponse()
        kind = reply.headers.get("Content-Type", "application/octet-stream")
        told = reply.read(MAX_ANSWER + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(
            f"Nobody answers at {entrance.url}: {error}.",
            advice="Try again in a moment; if that does not help, stop it and start it again.",
        ) from error
    finally:
        connection.close()
    if len(told) > MAX_ANSWER:  # half an answer is none
        raise Unreachable(
            f"What is told at {entrance.url} is longer than {MAX_ANSWER:,} bytes.",
            advice="Ask for less of it.",
        )
    return Reply(code=reply.status, kind=kind, body=told)
