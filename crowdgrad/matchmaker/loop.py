"""The matchmaker's pulse: a pass whenever something changed, and letters once they last."""

from __future__ import annotations

import asyncio
import contextlib

from crowdgrad.errors import CannotWrite
from crowdgrad.matchmaker.doorkeeper import Admission
from crowdgrad.matchmaker.room import Room

TRY_AGAIN_S = 0.5
"""How soon letters are tried again that could not be kept."""


async def keep(room: Room, *, tick_s: float = 1.0, pause_s: float = 0.01) -> None:
    """Run a pass whenever something changed, and now and then for the clock's sake."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tick_s):
                await room.changed.wait()
        room.changed.clear()
        room.step()
        await _deliver(room)
        # What arrives in this pause is handled together: a thousand joins take a few passes.
        await asyncio.sleep(pause_s)


async def _deliver(room: Room) -> None:
    """A disk that does not write holds everything up: nobody is promised what would not last."""
    while True:
        try:
            await room.deliver()
            return
        except CannotWrite:
            await asyncio.sleep(TRY_AGAIN_S)


async def feel_the_load(admission: Admission, *, every_s: float = 0.05) -> None:
    """Notice how late everything is done by how late we are woken ourselves."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + every_s
        await asyncio.sleep(every_s)
        admission.felt(loop.time() - due)
