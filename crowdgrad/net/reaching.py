"""Questions to a matchmaker about ways: can others dial us, who relays, and what time is it?

found = await ask(url, key, ["*:8701"])      # found.any: others can dial us at that port
found.observed                               # the address they see us come from
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import MessageError
from crowdgrad.net import rooms, web
from crowdgrad.net.identity import Identity

WITHIN_S = 20.0
"""How long dialling may take, with waiting for it: a matchmaker takes 14 s at most."""

_reachability = msgspec.json.Decoder(rooms.Reachability)
_relays = msgspec.json.Decoder(rooms.RelayList)
_health = msgspec.json.Decoder(rooms.Health)


async def ask(
    url: str,
    key: Identity,
    addresses: Iterable[str] = (),
    *,
    hosting: bool = False,
    wall: Callable[[], float] = time.time,
    within_s: float = WITHIN_S,
) -> rooms.Reachability:
    """Let the matchmaker dial us: at the address it sees us come from (`*:PORT`), or at another
    `HOST:PORT` that is ours. At most `rooms.MAX_REACHED`; none: it only tells where we come from.
    `hosting`: as a host, who goes first.

    Raises TargetError, Unreachable (also where it wants to be asked later), TurnedAway or
    MessageError.
    """
    asked = rooms.Reach(addresses=tuple(addresses), hosting=hosting)
    raw = await asyncio.to_thread(
        web.ask,
        url,
        "POST",
        "/v1/reach",
        key=key,
        body=rooms.encode(asked),
        wall=wall,
        within_s=within_s,
    )
    found = rooms.decode(_reachability, raw)
    if tuple(one.address for one in found.tried) != asked.addresses:
        raise MessageError("The matchmaker answers for other addresses than those we asked about.")
    return found


async def relays(url: str) -> tuple[str, ...]:
    """Routes to the relays that a matchmaker tells people of, of those we know how to dial.

    Raises TargetError, Unreachable, TurnedAway or MessageError.
    """
    raw = await asyncio.to_thread(web.ask, url, "GET", "/v1/relays")
    return tuple(route for route in rooms.decode(_relays, raw).relays if is_relay(route))


async def clock_offset(url: str, *, wall: Callable[[], float] = time.time) -> float:
    """How many seconds the matchmaker's clock is ahead of ours; half the way there and back off.

    Raises TargetError, Unreachable, TurnedAway or MessageError.
    """
    before = wall()
    raw = await asyncio.to_thread(web.ask, url, "GET", "/healthz")
    after = wall()
    now_ms = rooms.decode(_health, raw).now_ms
    if not now_ms:
        raise MessageError("The matchmaker does not tell the time.", advice="It may be an old one.")
    return now_ms / 1000 - (before + after) / 2


def is_relay(route: str) -> bool:
    """Whether that is a way by a relay, of a kind that we know."""
    try:
        return route_of(route).kind == "relay"
    except ValueError:
        return False
