"""Which addresses a name stands for: to be looked at before anybody dials one of them."""

from __future__ import annotations

import asyncio
import socket

from crowdgrad.errors import Unreachable


async def addresses(name: str) -> tuple[str, ...]:
    """All of them, in the order in which to try them; an address is itself. Raises Unreachable."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise Unreachable(f"Nobody knows where {name} is.", advice="Is the name right?")
    return tuple(dict.fromkeys(str(where[0]) for *_, where in found))
