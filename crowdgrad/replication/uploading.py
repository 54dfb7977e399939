"""Sends chunks, as many at once as the link takes (`planner/replication/uploads.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from crowdgrad.planner.replication.uploads import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One chunk on its way to somebody."""

    bytes: int
    send: Callable[[], Awaitable[bool]]
    """Whether it was sent; does not raise for a receiver that has gone."""


class Uploading:
    def __init__(
        self, choose: Callable[[float], Upload | None], clock: Callable[[], float]
    ) -> None:
        """`choose`: the next one, at that time; it is on its way from then on."""
        self._choose = choose
        self._clock = clock
        self._lanes = Lanes()
        self._more = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()
        self.look_again_s = 1.0
        """How long at most until it is asked again what to send: some answers come with time."""

    def wake(self) -> None:
        """There may be something to send."""
        self._more.set()

    async def run(self) -> None:
        try:
            while True:
                self._more.clear()
                late = self._begin_some()
                now = self._clock()
                pause_s = self.look_again_s if late is None else min(late - now, self.look_again_s)
                try:
                    async with asyncio.timeout(max(0.001, pause_s)):
                        await self._more.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)

    def _begin_some(self) -> float | None:
        """When to look again, where one that is under way may turn out to be slow."""
        while True:
            now = self._clock()
            may, late = self._lanes.another(now)
            upload = self._choose(now) if may else None
            if upload is None:
                return late
            task = asyncio.create_task(self._send(upload, self._lanes.begin(now, upload.bytes)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, upload: Upload, number: int) -> None:
        sent = False
        try:
            sent = await upload.send()
        finally:
            self._lanes.end(self._clock(), number, sent=sent)
            self._more.set()
