"""Notice that the other side has gone, also when the connection stays half-open.

Anything that arrives counts as a sign of life, a payload still on its way included. Where we
stopped reading, or slept, the silence is our own doing and is not held against anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from crowdgrad.errors import PeerError
from crowdgrad.net.messages import Heartbeat
from crowdgrad.net.transport.base import Connection, lost
from crowdgrad.planner.membership import judge, look_again_s, overslept_s

Action = Literal["rest", "beat", "give_up"]
LEAST_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to know about a connection when it is looked at."""

    now: float
    heard_at: float
    """Now, where we stopped reading ourselves."""
    asleep_s: float
    """How long we slept since then."""


def next_action(
    now: float,
    *,
    heard_at: float,
    sent_at: float,
    beat_s: float,
    silence_s: float,
    asleep_s: float = 0.0,
) -> tuple[Action, str]:
    """What to do about a connection, and why. `asleep_s`: how long we slept since we heard."""
    presence, why = judge(now, heard_at=heard_at, silence_s=silence_s, asleep_s=asleep_s)
    if presence == "gone":
        return "give_up", why
    if now - sent_at >= 0.9 * beat_s:
        return "beat", "we have been quiet"
    return "rest", "we spoke just now"


async def keep_alive(
    connection: Connection,
    *,
    beat_s: float,
    silence_s: float,
    looked: Callable[[Look], None] = lambda look: None,
) -> None:
    """Run beside a conversation; ends the connection when the other side falls silent.

    `looked` is called every time we have looked at it, at least once a beat.
    """
    loop = asyncio.get_running_loop()
    beating: asyncio.Task[None] | None = None
    heard_at, asleep_s, pause_s = connection.heard_at, 0.0, beat_s
    try:
        while True:
            before = loop.time()
            await asyncio.sleep(pause_s)
            now = loop.time()
            slept_s = overslept_s(pause_s, now - before)
            last = now if connection.paused else connection.heard_at
            if last > heard_at:  # perhaps before we slept
                heard_at, asleep_s = last, min(slept_s, now - last)
            else:
                asleep_s += slept_s
            action, reason = next_action(
                now,
                heard_at=heard_at,
                sent_at=connection.sent_at,
                beat_s=beat_s,
                silence_s=silence_s,
                asleep_s=asleep_s,
            )
            if action == "give_up":
                connection.close(lost(connection.peer, f"Fell silent: {reason}"))
                return
            looked(Look(now, heard_at, asleep_s))
            # A beat may have to wait behind a large payload; never queue a second one.
            if action == "beat" and (beating is None or beating.done()):
                beating = loop.create_task(_beat(connection))
            soon_s = look_again_s(now, heard_at=heard_at, silence_s=silence_s, asleep_s=asleep_s)
            pause_s = min(beat_s, max(LEAST_PAUSE_S, soon_s + LEAST_PAUSE_S))
    finally:
        if beating is not None:
            beating.cancel()


async def _beat(connection: Connection) -> None:
    try:
        await connection.send(Heartbeat())
    except PeerError:
        return  # whoever receives on this connection hears of it
