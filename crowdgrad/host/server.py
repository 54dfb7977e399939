"""The host's conversations with volunteers: the thin edge between sockets and `Training`."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping

from crowdgrad import __version__
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import ChunkHash, Seal
from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import (
    ConnectionLost,
    CrowdgradError,
    PeerError,
    TurnedAway,
    one_line,
)
from crowdgrad.host.door import Admits, anyone
from crowdgrad.host.gate import LARGE_BYTES, Gate
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.spreading import Spread
from crowdgrad.host.training import Training
from crowdgrad.host.visit import Desk, Visit
from crowdgrad.net import handshake, identity
from crowdgrad.net.heartbeat import keep_alive
from crowdgrad.net.messages import (
    CHALLENGE_BYTES,
    MAX_WORDS,
    Admit,
    Finished,
    Grew,
    Join,
    Leave,
    RosterChanged,
    expect,
)
from crowdgrad.net.transport.base import Connection

logger = logging.getLogger(__name__)

SOFTWARE = f"crowdgrad {__version__}"
FAREWELL_S = 1.0
ROSTER_EVERY_S = 0.2
ROSTER_MEMBERS_PER_S = 20_000
"""How many lines of rosters are sent a second, to everybody together."""
NEAR = ("127.", "[::1]", "::1", "localhost")


def roster_every_s(members: int) -> float:
    """How often all are told of all."""
    return max(ROSTER_EVERY_S, members * members / ROSTER_MEMBERS_PER_S)


def departure(error: PeerError) -> str:
    """Why somebody is gone, in the words of a list."""
    words = error.message.rstrip(".")
    if isinstance(error, ConnectionLost):
        return words[:1].lower() + words[1:]
    return f"turned away: {words}"


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
        admits: Admits = anyone,
        key: identity.Identity | None = None,
        name: str = "",
        exchanges: int = 8,
        servers_for: Callable[[VolunteerId], tuple[ServerPlace, ...]] = lambda who: (),
        spread: Spread | None = None,
    ) -> None:
        """`blobs`: program, manifest and chunks by hash. `token`: makes its bearer worker 0.

        `exchanges`: how many large updates or parameters are under way at once.

        `key`: proven to every volunteer that asks who hosts; `name`: what it is told besides.

        `place_of`: the place in the roster that the matchmaker gave a volunteer, if it did.

        `admits`: raises where a volunteer that is not our own worker may not come in.

        `servers_for`: where a volunteer finds the parameters, if not here.

        `spread`: how the data spreads; None: everybody fetches it here.
        """
        self._training = training
        self._blobs = blobs
        self._token = token
        self._max_volunteers = max_volunteers
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._clock = clock
        self._place_of = place_of
        self._admits = admits
        self._servers_for = servers_for
        self._key = key
        self._name = name
        self._spreading = spread.spreading if spread is not None else None
        self._talking: dict[VolunteerId, Visit] = {}
        self._news = self._parting = False
        self._telling: asyncio.TimerHandle | None = None
        self.grew(seal(training.state.manifest, key) if key is not None else None)
        parameters = training.parameters
        large = max(parameters.update_bytes, parameters.state_bytes) > LARGE_BYTES
        parameters.pool.keep = exchanges
        self._desk = Desk(
            training=training,
            blobs=blobs,
            gate=Gate(exchanges, clock, each=training.job.local.overlap + 1) if large else None,
            clock=clock,
            silence_s=silence_s,
            newest=lambda: self._newest,
            spread=spread,
        )

    def grew(self, seal: Seal | None) -> None:
        """What training goes on with from now on, sealed: everybody hears of it before a unit."""
        name = self._training.job.manifest
        self._newest = Grew(manifest=name, manifest_bytes=len(self._blobs[name]), seal=seal)

    async def serve(self, connection: Connection) -> None:
        """One connection from its first byte to its end."""
        try:
            join, own = await self._greet(connection)
        except PeerError as error:
            connection.refuse(error)
            raise
        visit = self._enter(connection, join, own=own)
        beats = asyncio.create_task(
            keep_alive(
                connection,
                beat_s=self._heartbeat_s,
                silence_s=self._silence_s,
                looked=visit.look,
            )
        )
        watching = None
        if self._training.parameters.elsewhere:
            watching = asyncio.create_task(self._watch(connection, visit))
        why = "an error on the host"
        try:
            await connection.send(self._admission(visit.account))
            self._tell_roster()
            why = await visit.converse()
        except PeerError as error:
            connection.refuse(error)
            why = await _farewell_of(connection) or departure(error)
        finally:
            beats.cancel()
            if watching is not None:
                watching.cancel()
            await visit.end()
            self._go(visit, one_line(why))

    async def farewell(self, reason: str) -> None:
        """Tell everyone that the job is over and let them go."""
        self._parting = True
        if self._telling is not None:
            self._telling.cancel()
        async with asyncio.TaskGroup() as group:
            for visit in list(self._talking.values()):
                group.create_task(self._part(visit, reason))

    # -- joining ------------------------------------------------------------------------------

    async def _greet(self, connection: Connection) -> tuple[Join, bool]:
        """Who it is, proven, and whether it is our own worker. Raises PeerError."""
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        await handshake.answer(connection, SOFTWARE, challenge, key=self._key, name=self._name)
        join = expect(await handshake.hear(connection), Join)
        who = identity.verify(join.key, challenge, join.signature, connection.binding)
        if who != join.volunteer.id:
            raise TurnedAway(f"That key belongs to {who}, not to {join.volunteer.id}.")
        own = bool(join.token) and hmac.compare_digest(join.token.encode(), self._token.encode())
        if not own:
            self._admits(who, join.introduction)
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

    def _enter(self, connection: Connection, join: Join, *, own: bool) -> Visit:
        """Make it a member. Whoever was here under the same key, or as worker 0, goes."""
        who = join.volunteer.id
        for other in [m for m in self._talking if m == who or (own and self._is_own(m))]:
            before = self._talking.pop(other)
            self._training.leave(
                other, f"came back on another connection, from {connection.peer}", self._clock()
            )
            before.dismiss(
                TurnedAway(
                    "Somebody joined with the same key.",
                    advice="For a second volunteer on one machine use --guest.",
                )
            )
        account = self._training.join(
            self._clock(),
            join.volunteer,
            own=own,
            hint=self._place_of(who),
            near=connection.peer.startswith(NEAR),
        )
        self._talking[who] = visit = Visit(self._desk, connection, account)
        logger.info("%s joined as number %d", account.volunteer.name, account.position)
        return visit

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
            servers=self._servers_for(account.volunteer.id),
            in_step=self._training.turns.in_rounds,
            seal=self._newest.seal,
            spreading=self._spreading if not account.own else None,
        )

    async def _watch(self, connection: Connection, visit: Visit) -> None:
        """Where updates come in parts: whoever waits for them hears when their volunteer goes."""
        await connection.wait_closed()
        who = visit.account.volunteer.id
        if self._talking.get(who) is visit:
            self._training.parameters.left(who)

    def _go(self, visit: Visit, why: str) -> None:
        who = visit.account.volunteer.id
        if self._talking.get(who) is visit:  # not if the same volunteer came back anew
            del self._talking[who]
            self._training.leave(who, why, self._clock())
            logger.info("%s left: %s", visit.account.volunteer.name, why)
            self._tell_roster()

    def _tell_roster(self) -> None:
        """Tell everyone who is here, soon, and never wait for one who does not listen."""
        self._news = True
        if self._telling is None and not self._parting:
            # Several who come at once are one piece of news. All are told of all: the more there
            # are, the less often, so that it never comes to more than a few bytes.
            pause_s = roster_every_s(len(self._talking))
            self._telling = asyncio.get_running_loop().call_later(pause_s, self._tell_all)

    def _tell_all(self) -> None:
        self._telling, self._news = None, False
        if self._talking and not self._parting:
            news = RosterChanged(roster=self._training.roster())
            self._tell_next(news, list(self._talking.values()))

    def _tell_next(self, news: RosterChanged, left: list[Visit]) -> None:
        """One at a time: whatever else there is to do comes in between."""
        if not left.pop().tell(news):
            self._news = True  # it has not heard the last one yet
        if left:
            asyncio.get_running_loop().call_soon(self._tell_next, news, left)
        elif self._news:
            self._tell_roster()

    # -- parting ------------------------------------------------------------------------------

    async def _part(self, visit: Visit, reason: str) -> None:
        connection, account = visit.connection, visit.account
        with contextlib.suppress(CrowdgradError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await connection.send(
                    Finished(
                        reason=one_line(reason)[:MAX_WORDS],
                        samples=account.samples,
                        credit=account.credit,
                        given=self._training.ledger.total_samples,
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
