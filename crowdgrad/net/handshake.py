"""The first words on a connection: versions, what to update when they do not fit, and who hosts.

The host proves its key to the volunteer here; the volunteer proves its own when it joins. Both sign
for this connection (`Connection.binding`): whoever stands in between and passes words on, with a
certificate of its own, passes on proofs that do not hold.
"""

from __future__ import annotations

import asyncio

import msgspec

from crowdgrad.errors import ConnectionLost, PeerError, VersionMismatch
from crowdgrad.net.framing import UPDATE_ADVICE
from crowdgrad.net.identity import Identity, fits, id_of, verify_host
from crowdgrad.net.messages import PROTOCOL, Hello, Message, Welcome, expect, problem
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.tls import impostor

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


async def greet(
    connection: Connection, software: str, challenge: bytes, pin: str = ""
) -> tuple[Welcome, str]:
    """The dialler's half, and the fingerprint of the key the listener has proven, or "".

    `challenge`: random, never used before. `pin`: of the key it must prove, also where nothing is
    encrypted. Raises PeerError, also for a proof that is none.
    """
    await connection.send(Hello(protocol=PROTOCOL, software=software, challenge=challenge))
    welcome = expect(await hear(connection), Welcome)
    _require(welcome.protocol)
    proven = welcome.key or connection.binding  # its certificate has proven that
    if pin and not fits(pin, proven):
        raise impostor(pin, proven)
    if welcome.key:
        verify_host(
            welcome.key, challenge, welcome.challenge, welcome.signature, connection.binding
        )
    return welcome, id_of(proven) if proven else ""


async def answer(
    connection: Connection,
    software: str,
    challenge: bytes,
    *,
    key: Identity | None = None,
    name: str = "",
) -> Hello:
    """The listener's half, proving `key` to a dialler that asks for it. Raises PeerError."""
    hello = expect(await hear(connection), Hello)
    _require(hello.protocol)
    welcome = Welcome(protocol=PROTOCOL, software=software, challenge=challenge, name=name)
    if key is not None and hello.challenge:
        signature = key.sign_as_host(hello.challenge, challenge, connection.binding)
        welcome = msgspec.structs.replace(welcome, key=key.public, signature=signature)
    await connection.send(welcome)
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
