"""Hosts on the local network: found by what they announce there, without any server.

A host that is near needs no matchmaker and no relay, so it is helped first. What it announces is a
stranger's word; whoever answers there has to prove the key that was announced, and the owner is
asked as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from crowdgrad.domain.codes import LocalCode, code_fits
from crowdgrad.domain.matching import Wants
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.net.identity import PIN_DIGITS
from crowdgrad.net.nearby import Nearby

LOOK_S = 2.0
"""How long the local network is listened to before a matchmaker is asked."""


class Watching(Protocol):
    """As `lan.Watcher`."""

    changed: asyncio.Event

    @property
    def nearby(self) -> tuple[Nearby, ...]: ...


def suits(wants: Wants) -> Callable[[Nearby], bool]:
    """Whether one of them is what we would work for, as far as it says."""

    def wanted(found: Nearby) -> bool:
        if wants.hosts is not None and found.key[:PIN_DIGITS] not in wants.hosts:
            return False
        if wants.only_causes and found.cause not in wants.causes:
            return False
        return wants.job in (None, found.job)

    return wanted


def has_code(code: LocalCode) -> Callable[[Nearby], bool]:
    return lambda found: code_fits(code, found.key)


def not_here(code: LocalCode, nearby: Collection[Nearby]) -> str:
    """Why we wait, for whoever typed the code: perhaps it is another's."""
    others = "one other host is" if len(nearby) == 1 else f"{len(nearby)} other hosts are"
    return (
        f"No host on this network has the code {code} so far"
        + (f"; {others} here" if nearby else "")
        + ". Compare it with what the host shows, and see that both are on one network. Waiting."
    )


def where(found: Nearby) -> Whereabouts:
    return Whereabouts(routes=found.routes, key=found.key)


async def one(
    watching: Watching, wanted: Callable[[Nearby], bool], within_s: float | None = None
) -> Nearby | None:
    """The first that is wanted; None: there was none within so many seconds."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                watching.changed.clear()
                found = next((near for near in watching.nearby if wanted(near)), None)
                if found is not None:
                    return found
                await watching.changed.wait()
    except TimeoutError:
        return None


class Round:
    """From one wanted neighbour to the next, each once."""

    def __init__(
        self,
        watching: Watching,
        wanted: Callable[[Nearby], bool],
        visit: Callable[[Nearby], Awaitable[bool]],
    ) -> None:
        """`visit`: work there; whether to go on to another."""
        self._watching = watching
        self._wanted = wanted
        self._visit = visit
        self._visited: set[tuple[str, str]] = set()

    async def go(self, patience_s: float | None) -> bool:
        """Until nobody new has come for so long; None: for ever. False: that was the last one."""
        while (found := await one(self._watching, self._is_new, patience_s)) is not None:
            self._visited.add((found.key, found.job))
            if not await self._visit(found):
                return False
        return True

    def _is_new(self, found: Nearby) -> bool:
        return self._wanted(found) and (found.key, found.job) not in self._visited
