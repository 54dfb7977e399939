"""Notice that the other side has gone, also when the connection stays half-open.

Anything that arrives counts as a sign of life, a payload still on its way included.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from crowdgrad.errors import ConnectionLost, PeerError
from crowdgrad.net.messages import Heartbeat
from crowdgrad.net.transport.base import Connection

Action = Literal["rest", "beat", "give_up"]


def next_action(
    now: float, *, heard_at: float, sent_at: float, beat_s: float, silence_s: float
) -> tuple[Action, str]:
    """What to do about a connection, and why."""
    silent = now - heard_at
    if silent > silence_s:
        return "give_up", f"nothing heard for {silent:.0f} s"
    if now - sent_at >= 0.9 * beat_s:
        return "beat", "we have been quiet"
    return "rest", "we spoke just now"


async def keep_alive(connection: Connection, *, beat_s: float, silence_s: float) -> None:
    """Run beside a conversation; ends the connection when the other side falls silent."""
    loop = asyncio.get_running_loop()
    beating: asyncio.Task[None] | None = None
    try:
        while True:
            await asyncio.sleep(beat_s)
            action, reason = next_action(
                loop.time(),
                heard_at=loop.time() if connection.paused else connection.heard_at,
                sent_at=connection.sent_at,
                beat_s=beat_s,
                silence_s=silence_s,
            )
            if action == "give_up":
                connection.close(ConnectionLost(f"{connection.peer} fell silent: {reason}."))
                return
            # A beat may have to wait behind a large payload; never queue a second one.
            if action == "beat" and (beating is None or beating.done()):
                beating = loop.create_task(_beat(connection))
    finally:
        if beating is not None:
            beating.cancel()


async def _beat(connection: Connection) -> None:
    try:
        await connection.send(Heartbeat())
    except PeerError:
        return  # whoever receives on this connection hears of it
