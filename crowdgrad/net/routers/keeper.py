"""A port in the router, kept open for as long as somebody needs it.

Routers forget: a mapping has a lifetime, a router that begins anew has none left, and a provider
may give another address overnight. So it is asked for again at half its lifetime and every few
minutes at least, and whoever cares is told what has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import FOR_EVER
from crowdgrad.net.routers.opening import LIFETIME_S, Mapping, close_quietly, open_port

LOOK_S = 300.0
"""The longest we go without asking: how long a router that began anew may leave us unreachable."""
LEAST_S = 1.0
GIVEN_UP = 3
"""After so many attempts in vain the port counts as lost: a router may be slow to begin anew."""
FAREWELL_S = 3.0
"""How long giving the port back may keep us from leaving."""


def next_look_s(lifetime_s: int, failures: int = 0, *, look_s: float = LOOK_S) -> float:
    """How long to wait until the router is asked again; sooner after it has failed to answer."""
    half = look_s if lifetime_s == FOR_EVER else lifetime_s / 2
    wait = min(half, look_s)
    if failures:
        wait = min(wait, 2.0 ** min(failures + 2, 16))
    return max(LEAST_S, wait)


class PortKeeper:
    """`async with PortKeeper(8701, changed=…) as keeper:` the port is open meanwhile.

    Entering raises RouterError where the router opens none. `changed` is called, in the event loop,
    with the mapping when its address or port outside is another, with None when it is lost, and
    with a new one when the router opens one again.
    """

    def __init__(
        self,
        port: int,
        *,
        changed: Callable[[Mapping | None], None] = lambda mapping: None,
        lifetime_s: int = LIFETIME_S,
        gateway: str | None = None,
        look_s: float = LOOK_S,
        opening: Callable[[], Awaitable[Mapping]] | None = None,
        farewell_s: float = FAREWELL_S,
    ) -> None:
        """`opening`: how to open it, for tests."""
        self.mapping: Mapping | None = None
        """None: the router has closed it, and is asked again."""
        self._open = opening or (lambda: open_port(port, lifetime_s=lifetime_s, gateway=gateway))
        self._changed = changed
        self._look_s = look_s
        self._farewell_s = farewell_s
        self._now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PortKeeper:
        self.mapping = await self._open()
        self._task = asyncio.create_task(self._keep(), name="port keeper")
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if self.mapping is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(close_quietly(self.mapping), self._farewell_s)
        if not self._task.cancelled():
            self._task.result()

    def look_now(self) -> None:
        """Something has changed, or we slept: ask the router now."""
        self._now.set()

    async def _keep(self) -> None:
        failures = 0
        while True:
            lifetime_s = self.mapping.lifetime_s if self.mapping else FOR_EVER
            wait_s = next_look_s(lifetime_s, failures, look_s=self._look_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), wait_s)
            self._now.clear()
            failures = 0 if await self._look() else failures + 1
            if failures == GIVEN_UP and self.mapping is not None:
                self.mapping = None
                self._changed(None)

    async def _look(self) -> bool:
        """Whether the port is open now: the old one still, or one asked for in any way there is."""
        try:
            if self.mapping is not None and await self._renewed(self.mapping):
                return True
            mapping = await self._open()
        except RouterError:
            return False
        before, self.mapping = self.mapping, mapping
        if before is None or before.outside != mapping.outside:
            self._changed(mapping)
        return True

    async def _renewed(self, mapping: Mapping) -> bool:
        try:
            if await mapping.renew():
                self._changed(mapping)
        except RouterError:
            return False
        return True
