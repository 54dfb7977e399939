"""The host's conversations with volunteers: the thin edge between sockets and `Training`."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping

from crowdgrad import __version__
from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import (
    CrowdgradError,
    FrameError,
    MessageError,
    PeerError,
    TurnedAway,
    one_line,
)
from crowdgrad.host.evaluation import is_evaluation
from crowdgrad.host.ledger import Contribution
from crowdgrad.host.parameters import BufferPool
from crowdgrad.host.training import Training
from crowdgrad.net import handshake, identity
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    MAX_WORDS,
    Admit,
    Blob,
    Exchange,
    Fetch,
    Finished,
    Fresh,
    Get,
    GiveBack,
    Grant,
    Join,
    Leave,
    Message,
    RosterChanged,
    Wait,
    expect,
)
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.numerics.vectors import as_vector

logger = logging.getLogger(__name__)

SOFTWARE = f"crowdgrad {__version__}"
ASK_AGAIN_S = 0.2
FAREWELL_S = 1.0
ROSTER_EVERY_S = 0.2
ROUND_PATIENCE_S = 1.0
"""How long an answer is held back for the next round before the volunteer is told to ask again."""
LOOK_AGAIN_S = 0.05
NEAR = ("127.", "[::1]", "::1", "localhost")


class Server:
    def __init__(
        self,
        training: Training,
        blobs: Mapping[ChunkHash, bytes],
        *,
        token: str,
        max_volunteers: int,
        heartbeat_s: float,
        silence_s: float,
        clock: Callable[[], float],
        place_of: Callable[[VolunteerId], int | None] = lambda who: None,
        key: identity.Identity | None = None,
        name: str = "",
    ) -> None:
        """`blobs`: program, manifest and chunks by hash. `token`: makes its bearer worker 0.

        `key`: proven to every volunteer that asks who hosts; `name`: what it is told besides.

        `place_of`: the place in the roster that the matchmaker gave a volunteer, if it did.
        """
        self._training = training
        self._blobs = blobs
        self._token = token
        self._max_volunteers = max_volunteers
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._clock = clock
        self._place_of = place_of
        self._key = key
        self._name = name
        self._pool = BufferPool(training.parameters.update_bytes)
        self._talking: dict[VolunteerId, Connection] = {}
        self._answering: dict[Connection, asyncio.Task[None]] = {}
        """Answers held back until the next round."""
        self._telling: dict[Connection, bool] = {}
        """Whom we are telling the roster, and whether it has changed since."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, connection: Connection) -> None:
        """One connection from its first byte to its end."""
        try:
            join, own = await self._greet(connection)
        except PeerError as error:
            connection.refuse(error)
            raise
        account = self._enter(connection, join, own=own)
        beats = asyncio.create_task(
            keep_alive(connection, beat_s=self._heartbeat_s, silence_s=self._silence_s)
        )
        why = "an error on the host"
        try:
            await connection.send(self._admission(account))
            self._tell_roster()
            why = await self._converse(connection, account)
        except PeerError as error:
            connection.refuse(error)
            why = await _farewell_of(connection) or error.message
        finally:
            beats.cancel()
            await self._drop_answer(connection)
            self._go(connection, account, one_line(why))

    async def farewell(self, reason: str) -> None:
        """Tell everyone that the job is over and let them go."""
        async with asyncio.TaskGroup() as group:
            for who, connection in list(self._talking.items()):
                group.create_task(self._part(who, connection, reason))

    # -- joining ------------------------------------------------------------------------------

    async def _greet(self, connection: Connection) -> tuple[Join, bool]:
        """Who it is, proven, and whether it is our own worker. Raises PeerError."""
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        await handshake.answer(connection, SOFTWARE, challenge, key=self._key, name=self._name)
        join = expect(await handshake.hear(connection), Join)
        who = identity.verify(join.key, challenge, join.signature)
        if who != join.volunteer.id:
            raise TurnedAway(f"That key belongs to {who}, not to {join.volunteer.id}.")
        own = bool(join.token) and hmac.compare_digest(join.token.encode(), self._token.encode())
        self._check_place(who, own=own)
        return join, own

    def _check_place(self, who: VolunteerId, *, own: bool) -> None:
        if self._training.course.phase == "over":
            raise TurnedAway("The job is over.", advice="Look for another one.")
        others = sum(1 for member in self._talking if not self._training.ledger[member].own)
        if not own and who not in self._talking and others >= self._max_volunteers:
            raise TurnedAway(
                f"The job is full: {others} volunteers are here already.", advice="Try later."
            )

    def _enter(self, connection: Connection, join: Join, *, own: bool) -> Contribution:
        """Make it a member. Whoever was here under the same key, or as worker 0, goes."""
        who = join.volunteer.id
        for other in [m for m in self._talking if m == who or (own and self._is_own(m))]:
            before = self._talking.pop(other)
            self._training.leave(other, "came back on another connection")
            before.refuse(
                TurnedAway(
                    "Somebody joined with the same key.",
                    advice="For a second volunteer on one machine use --guest.",
                )
            )
        self._talking[who] = connection
        connection.set_sink(self._sink)
        account = self._training.join(
            self._clock(),
            join.volunteer,
            own=own,
            hint=self._place_of(who),
            near=connection.peer.startswith(NEAR),
        )
        logger.info("%s joined as number %d", account.volunteer.name, account.position)
        return account

    def _is_own(self, member: VolunteerId) -> bool:
        return self._training.ledger[member].own

    def _admission(self, account: Contribution) -> Admit:
        job = self._training.job
        return Admit(
            job=job,
            position=account.position,
            program_bytes=len(self._blobs[job.program]),
            manifest_bytes=len(self._blobs[job.manifest]),
            heartbeat_s=self._heartbeat_s,
            silence_s=self._silence_s,
        )

    def _go(self, connection: Connection, account: Contribution, why: str) -> None:
        who = account.volunteer.id
        if self._talking.get(who) is connection:  # not if the same volunteer came back anew
            del self._talking[who]
            self._training.leave(who, why)
            logger.info("%s left: %s", account.volunteer.name, why)
            self._tell_roster()

    def _tell_roster(self) -> None:
        """Tell everyone who is here, soon, and never wait for one who does not listen."""
        for connection in self._talking.values():
            if connection in self._telling:
                self._telling[connection] = True
                continue
            self._telling[connection] = False
            task = asyncio.create_task(self._send_roster(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_roster(self, connection: Connection) -> None:
        changed = True
        try:
            while changed:
                await asyncio.sleep(
                    ROSTER_EVERY_S
                )  # several who come at once are one piece of news
                self._telling[connection] = False
                await connection.send(RosterChanged(roster=self._training.roster()))
                changed = self._telling[connection]
        except PeerError:
            return  # it has gone
        finally:
            del self._telling[connection]

    # -- working ------------------------------------------------------------------------------

    async def _converse(self, connection: Connection, account: Contribution) -> str:
        """Answer until the volunteer goes; returns why it went."""
        while True:
            message, payload = await connection.receive()
            if isinstance(message, Exchange):
                await self._exchange(connection, account, message, payload)
            elif isinstance(message, Get):
                await self._send_blob(connection, message.hash)
            elif isinstance(message, Fetch):
                await self._send_parameters(connection, account, message)
            elif isinstance(message, GiveBack):
                self._training.give_back(self._clock(), account, message.unit, message.reason)
            elif isinstance(message, Leave):
                return f"left: {message.reason}"
            else:
                raise MessageError(f"A volunteer does not say {type(message).__name__}.")

    async def _exchange(
        self, connection: Connection, account: Contribution, ask: Exchange, payload: memoryview
    ) -> None:
        verdict = ""
        if ask.update is not None:
            vector = as_vector(payload) if len(payload) else None
            verdict = await self._training.take(self._clock(), account, ask.update, vector)
        if len(payload):
            self._pool.give(payload)
        if not self._training.turns.holds_back:
            await self._grant(connection, account, ask, verdict)
            return
        # The answer may have to wait for others: go on listening meanwhile, to one question more.
        if connection in self._answering:
            await self._answering[connection]
        self._answering[connection] = asyncio.create_task(
            self._grant_in_turn(connection, account, ask, verdict)
        )

    async def _grant_in_turn(
        self, connection: Connection, account: Contribution, ask: Exchange, verdict: str
    ) -> None:
        try:
            until = self._clock() + ROUND_PATIENCE_S
            while not await self._grant(
                connection, account, ask, verdict, wait=self._clock() >= until
            ):
                # The next round, but an evaluation may be due, or somebody have come, before.
                await self._training.turned(LOOK_AGAIN_S)
        except PeerError:
            return  # whoever listens on this connection hears of it
        except Exception:
            logger.exception("%s: no answer could be given", connection.peer)
            connection.refuse(PeerError("Something went wrong here.", advice="Try again later."))

    async def _drop_answer(self, connection: Connection) -> None:
        answer = self._answering.pop(connection, None)
        if answer is not None:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

    async def _grant(
        self,
        connection: Connection,
        account: Contribution,
        ask: Exchange,
        verdict: str,
        *,
        wait: bool = True,
    ) -> bool:
        """Answer with a unit, or (if `wait`) with why there is none; False: not answered yet."""
        training = self._training
        after = ask.update.unit if ask.update is not None else None
        async with training.parameters.published() as snapshot:
            granted, reason = training.lease(
                self._clock(), account, frozenset(ask.shards), snapshot.version, after
            )
            if granted is None:
                if wait:
                    await connection.send(
                        Wait(ticket=ask.ticket, reason=reason, seconds=ASK_AGAIN_S, verdict=verdict)
                    )
                return wait
            payload: Payload = snapshot.payload
            round_ = training.course.evaluation.round
            if is_evaluation(granted.unit.id) and round_ is not None:
                payload = round_.payload
            elif granted.link:
                payload = b""  # the replica goes on from where it is
            else:
                await training.parameters.hold(snapshot)
            grant = Grant(
                ticket=ask.ticket,
                unit=granted.unit,
                base=granted.base,
                rate=granted.rate,
                link=granted.link,
                verdict=verdict,
            )
            await connection.send(grant, payload)
            return True

    async def _send_parameters(
        self, connection: Connection, account: Contribution, ask: Fetch
    ) -> None:
        if not self._training.may_fetch(account):
            raise MessageError("There is nothing to fetch for: no unit, or all its fetches made.")
        async with self._training.parameters.published() as snapshot:
            await connection.send(Fresh(ticket=ask.ticket, base=snapshot.version), snapshot.payload)

    async def _send_blob(self, connection: Connection, wanted: ChunkHash) -> None:
        data = self._blobs.get(wanted)
        if data is None:
            raise MessageError(f"There are no bytes with the hash {wanted[:12]}… in this job.")
        await connection.send(Blob(hash=wanted), data)

    def _sink(self, message: Message, length: int) -> memoryview:
        if isinstance(message, Exchange) and message.update is not None:
            if length == self._training.parameters.update_bytes:
                return self._pool.take()
            raise FrameError(
                f"An update has {length} bytes; this program's have "
                f"{self._training.parameters.update_bytes}.",
                advice="Update crowdgrad on the volunteer.",
            )
        raise FrameError(f"A {type(message).__name__} came with {length} bytes.")

    async def _part(self, who: VolunteerId, connection: Connection, reason: str) -> None:
        account = self._training.ledger[who]
        with contextlib.suppress(CrowdgradError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await connection.send(
                    Finished(
                        reason=one_line(reason)[:MAX_WORDS],
                        samples=account.samples,
                        credit=account.credit,
                    )
                )
                await connection.wait_closed()
        connection.close()


async def _farewell_of(connection: Connection) -> str:
    """Why it went, where it said so while we were still talking to it."""
    try:
        while True:  # what has arrived is read first, then the connection's end is raised
            message, _ = await connection.receive()
            if isinstance(message, Leave):
                return f"left: {message.reason}"
    except PeerError:
        return ""
