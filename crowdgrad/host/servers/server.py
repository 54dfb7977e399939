"""PROCESS: a parameter server. It listens, is put in charge of a part, and serves it.

It keeps nothing on a disk and decides nothing: the host does. Whoever proves to know the secret is
the host, the last one who did; volunteers show a token that the host made for them with the same
secret, so nobody need be asked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from crowdgrad import __version__
from crowdgrad.errors import PeerError, TurnedAway
from crowdgrad.host.servers import proofs
from crowdgrad.host.servers.charge import Charge
from crowdgrad.net import handshake
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    Enter,
    Entered,
    InCharge,
    TakeCharge,
    expect,
)
from crowdgrad.net.transport import secure
from crowdgrad.net.transport.base import Connection

logger = logging.getLogger(__name__)

SOFTWARE = f"crowdgrad {__version__}"
NO_HOST = "Nobody has put this server in charge of anything yet."


class ParameterServer:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._key = proofs.key_of(secret)
        self._charge: Charge | None = None

    async def serve(self, connection: Connection) -> None:
        """One connection from its first byte to its end."""
        try:
            challenge = secrets.token_bytes(CHALLENGE_BYTES)
            hello = await handshake.answer(connection, SOFTWARE, challenge, key=self._key)
            first = await handshake.hear(connection)
            if isinstance(first, TakeCharge):
                await self._obey(connection, first, hello.challenge, challenge)
            else:
                await self._entertain(connection, expect(first, Enter))
        except PeerError as error:
            connection.refuse(error)
            raise

    async def _obey(
        self, connection: Connection, said: TakeCharge, hosts: bytes, ours: bytes
    ) -> None:
        if not proofs.same(said.proof, proofs.of_host(self._secret, said.job, hosts, ours)):
            raise TurnedAway(
                "The host does not know this server's secret.",
                advice="Give both the same file with --secret-file.",
            )
        if self._charge is not None:
            self._charge.replace()
        charge = self._charge = Charge(connection, said.job)
        logger.info("%s is in charge, with job %s", connection.peer, said.job)
        try:
            proof = proofs.of_server(self._secret, said.job, hosts, ours)
            await connection.send(InCharge(proof=proof))
            await charge.run()
        finally:
            if self._charge is charge:
                self._charge = None

    async def _entertain(self, connection: Connection, enter: Enter) -> None:
        charge = self._charge
        if charge is None:
            raise PeerError(NO_HOST, advice="Try again in a moment.")
        who, admission = enter.volunteer, enter.admission
        if not proofs.same(enter.token, proofs.token(self._secret, charge.job, who, admission)):
            raise TurnedAway("That token is none of this job's.", advice="Join the host again.")
        await charge.entertain(connection, who, admission, Entered())


async def serve(
    *, host: str, port: int, secret: bytes, stop: asyncio.Event, started: Callable[[str, int], None]
) -> None:
    """Listen until told to stop. Raises PortBusy or SettingError."""
    server = ParameterServer(secret)
    listener = await secure.listen(host, port, server.serve, proofs.key_of(secret))
    try:
        started(*listener.address)
        await stop.wait()
    finally:
        await listener.close()
