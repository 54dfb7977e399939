"""The first words on a connection: versions, and what to update when they do not fit."""

from __future__ import annotations

import asyncio

from crowdgrad.errors import ConnectionLost, PeerError, VersionMismatch
from crowdgrad.net.framing import UPDATE_ADVICE
from crowdgrad.net.messages import PROTOCOL, Hello, Message, Welcome, expect, problem
from crowdgrad.net.transport.base import Connection

HANDSHAKE_S = 10.0


def compatible(ours: tuple[int, int], theirs: tuple[int, int]) -> tuple[bool, str]:
    """Whether two protocol versions work together, and why not."""
    if ours[0] == theirs[0] and abs(ours[1] - theirs[1]) <= 1:
        return True, ""
    # Both sides may read this, so it does not say "you" or "we".
    older, newer = sorted((ours, theirs))
    return False, (
        f"the side that speaks protocol {older[0]}.{older[1]} is too old for the one that speaks "
        f"{newer[0]}.{newer[1]}"
    )


async def greet(connection: Connection, software: str) -> Welcome:
    """The dialler's half. Raises PeerError."""
    await connection.send(Hello(protocol=PROTOCOL, software=software))
    welcome = expect(await hear(connection), Welcome)
    _require(welcome.protocol)
    return welcome


async def answer(connection: Connection, software: str, challenge: bytes) -> Hello:
    """The listener's half. Raises PeerError."""
    hello = expect(await hear(connection), Hello)
    _require(hello.protocol)
    await connection.send(Welcome(protocol=PROTOCOL, software=software, challenge=challenge))
    return hello


async def hear(connection: Connection, timeout_s: float = HANDSHAKE_S) -> Message:
    """One message that must come soon."""
    try:
        async with asyncio.timeout(timeout_s):
            return (await connection.receive())[0]
    except TimeoutError:
        error = ConnectionLost(
            f"{connection.peer} said nothing for {timeout_s:g} s.",
            advice="Does a crowdgrad host listen there?",
        )
        connection.close(error)
        raise error from None


async def say_problem(connection: Connection, error: PeerError) -> None:
    """Tell the other side what is wrong, if it still listens."""
    try:
        await connection.send(problem(error))
    except PeerError:
        return  # it has gone: nobody is left to tell


def _require(theirs: tuple[int, int]) -> None:
    fits, why = compatible(PROTOCOL, theirs)
    if not fits:
        raise VersionMismatch(f"Versions do not fit: {why}.", advice=UPDATE_ADVICE)
