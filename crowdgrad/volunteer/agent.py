"""The agent: joins a job, fetches what it needs, keeps the trainer busy, comes back when cut off.

A volunteer has `overlap + 1` lanes. Each lane goes round on its own: exchange (my update for your
next unit), compute, exchange. The trainer computes for one lane at a time, so with two lanes one
computes while the other's numbers travel; with one lane it is lock-step. The agent never loads an
engine: numbers pass through memory it shares with the trainer.

How hard it works is the governor's to say, and whoever watches hears of it. While that is not at
all the connection stays, and no unit is in hand: one that was granted meanwhile goes back, and so
does one that waits for its turn while the other lane computes; one that is under way is finished
first. Whoever comes while that is so is asked at once, since they may be gone later; but the
program is loaded, which computes a little, only when work may begin.

Before the first unit this machine's owner is asked, once the program is checked and what it takes
is known. A job whose trainer went wrong three times is refused here from then on.

Where a job's data grows, a lane that was granted a unit first sees to it that the workshop knows
all the host has told of. Where there is no room for that, every lane stops where it is, with what
it has in hand; a larger workshop is opened, and they go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import Job, Volunteer
from crowdgrad.domain.manners import Effort
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.domain.work import Update
from crowdgrad.errors import (
    ChildDied,
    ConnectionLost,
    CrowdgradError,
    DataError,
    NotDialled,
    NotPutThrough,
    PeerError,
    ProgramError,
    TurnedAway,
    Unreachable,
    UpdateRefused,
    VersionMismatch,
    one_line,
)
from crowdgrad.net.identity import Identity
from crowdgrad.net.messages import (
    Admit,
    Exchange,
    Finished,
    Grant,
    Leave,
    Wait,
)
from crowdgrad.net.resolve import addresses
from crowdgrad.net.retry import delay_s
from crowdgrad.net.transport.base import Payload
from crowdgrad.planner.manners import share_of
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.supply import Direct, Supply
from crowdgrad.volunteer.additions import Additions
from crowdgrad.volunteer.consent import Consent, Request, Shares, always
from crowdgrad.volunteer.conversation import Conversation, Reach
from crowdgrad.volunteer.events import Watch
from crowdgrad.volunteer.gatekeeper import Gatekeeper, for_the_host
from crowdgrad.volunteer.governor import Governor, free
from crowdgrad.volunteer.hosts import Refusals
from crowdgrad.volunteer.outcome import Outcome, share_given
from crowdgrad.volunteer.parts import Part, machine_of, parts_of
from crowdgrad.volunteer.servers import Bases, Connect, Resolve, reached
from crowdgrad.volunteer.sharing import Sharing, supplied
from crowdgrad.volunteer.talk import Trusted
from crowdgrad.volunteer.tally import Tally
from crowdgrad.volunteer.telling import Telling
from crowdgrad.volunteer.workshop import NotBegun, Workshop

OpenShop = Callable[..., Awaitable[Workshop]]
"""As `Workshop.open`; the simulator's has no trainer."""
MAX_WAIT_S = 5.0
RETRY_CAP_S = 5.0
"""A host that answers again is heard of within so many seconds."""
LASTING_S = 10.0
PARTING_S = 1.0
"""How long the host's last word may take when a server has gone."""
BLAMELESS = ("other_incarnation", "over", "already_done", "too_old", "too_late")
"""Verdicts on updates that merely came too late."""
MAX_FAILURES = 10
"""Units that may fail one after the other before we leave the job to others."""
AFTER_FAILURE_S = 0.5
CUT_OFF = (ConnectionLost, NotPutThrough, Unreachable)
"""The host has not said a word: whoever was with it comes back."""
NEAR = ("127.", "[::1]", "localhost")
"""Hosts on this very machine: how fast they are says nothing about its network."""
MANY_LATE = 20
"""Updates that came too late one after the other, of which people should hear."""
UNKNOWN_MEMORY_MB = 2048


class Agent:
    def __init__(
        self,
        *,
        identity: Identity,
        volunteer: Volunteer,
        chunks: Chunks,
        connect: Connect,
        resolve: Resolve = addresses,
        watch: Watch,
        random01: Callable[[], float],
        reconnect_s: float,
        memory_bytes: int | None = None,
        token: str = "",
        tally: Tally | None = None,
        received: Callable[[int, float], None] = lambda count, seconds: None,
        pace_s: float = 0.0,
        trusted: Trusted | None = None,
        consent: Consent = always,
        refusals: Refusals | None = None,
        all_walls: bool = False,
        clock: Callable[[], float] = time.monotonic,
        open_shop: OpenShop = Workshop.open,
        sharing: Sharing | None = None,
        governor: Governor | None = None,
    ) -> None:
        """`memory_bytes`: the most a job may take; by default half of what there is.

        `resolve`: the addresses of a name. `tally`: counts what we give. `received`: hears how many
        bytes of data came from afar in how many seconds.

        `pace_s`: how long to pause after every batch. `trusted`: the owner's own model. `refusals`:
        jobs this machine has had enough of; a host's own worker has none. `all_walls`: do not work
        where any of them is missing. `sharing`: how data is exchanged with other volunteers; None:
        all of it comes from the host. `governor`: says how hard to work; None: as hard as it can.
        """
        self._identity = identity
        self.volunteer = volunteer
        self._chunks = chunks
        self._connect = connect
        self._resolve = resolve
        self._watch = watch
        self._telling = Telling(watch)
        self._say = self._telling.say
        self._random01 = random01
        self._reconnect_s = reconnect_s
        self._memory_bytes = memory_bytes or lent_memory(volunteer)
        self._token = token
        self._tally = tally or Tally(None, clock)
        self._received = received
        self._introduction: Callable[[], str] = lambda: ""
        self._pace_s = pace_s
        self._trusted = trusted
        self._gatekeeper = Gatekeeper(
            watch=watch, consent=consent, refusals=refusals, all_walls=all_walls
        )
        self._clock = clock
        self._open_shop = open_shop
        self._sharing = sharing
        self._governor = governor or free()
        self._governor.subscribe(self._tell_effort)
        self._host_key = ""
        """Of whom our owner was asked."""
        self._host_proven = ""
        self._address = ""
        self._why = ""
        self._workshop: Workshop | None = None
        self._unanswered: dict[int, tuple[Update, bool]] = {}
        """By slot: updates whose verdict we have not heard, and whether numbers belong to them."""
        self._granted: dict[int, Grant] = {}
        """By slot: units in hand while a larger workshop is opened."""
        self._additions = Additions(chunks, lambda words: self._say("note", words))
        self._supply: Supply = Direct(_nowhere, chunks)
        """Where chunks come from, on this connection."""
        self._bases: dict[int, Bases] = {}
        """By slot: the versions its unit started from, where servers keep the parameters."""
        self._agreed: frozenset[str] = frozenset()
        """Machines beside the host that our owner has agreed to send updates to."""
        self._leaving = asyncio.Event()
        self._why_leaving = "stopped"
        self._title = ""
        self._left = False
        self._failures = self._late = 0
        self.samples = self.accepted = self.refused = 0
        self._share: float | None = None

    def lend(self, memory_bytes: int | None) -> None:
        """The most that jobs from the next one on may take; None: half of what there is."""
        self._memory_bytes = memory_bytes or lent_memory(self.volunteer)

    def leave(self) -> None:
        """Finish politely: tell the host, give units back, stop the trainer."""
        self._left = True
        self._leaving.set()

    def rest(self, why: str) -> None:
        """The same for the job at hand; another may be worked for later."""
        self._why_leaving = why
        self._leaving.set()

    async def work_for(
        self,
        where: Whereabouts,
        *,
        moved: Callable[[], Whereabouts] | None = None,
        introduction: Callable[[], str] = lambda: "",
        why: str = "",
    ) -> Outcome:
        """Work until the job ends, we leave, or the host stays away. Raises CrowdgradError.

        `moved`: where the host is by now, asked before every attempt: it may have been started
        again elsewhere. Whoever has let us in once must prove the same key from then on.
        `introduction`: the matchmaker's word that it sent us, as of now. `why`: this job, for its
        owner.
        """
        self._introduction, self._why = introduction, why
        if not self._left:
            self._leaving.clear()
        self._why_leaving, self._title = "stopped", ""
        attempt, last_contact, joined = 0, self._clock(), False
        self.samples = self.accepted = self.refused = 0
        self._share = None
        self._failures = self._late = 0  # another job's are not this one's
        try:
            while True:
                began = self._clock()
                if moved is not None:
                    where = moved()
                self._address = str(where)
                try:
                    conversation, admit = await self._join(where)
                    joined, last_contact = True, self._clock()
                    where = replace(where, key=where.key or conversation.host_key)
                    return await self._stay(conversation, admit)
                except (NotDialled, TurnedAway, VersionMismatch):
                    raise
                except (PeerError, Unreachable) as error:
                    now = self._clock()
                    if now - began > LASTING_S:  # it was a real connection: begin anew
                        attempt, last_contact = 0, now
                    cut_off = joined and isinstance(error, CUT_OFF)
                    if self._workshop is None and not cut_off:
                        raise
                    left_s = last_contact + self._reconnect_s - now
                    if left_s <= 0:
                        away = f"the host has been away for {now - last_contact:.0f} s"
                        return self._outcome(away, left=False)
                    pause = min(delay_s(attempt, self._random01(), cap_s=RETRY_CAP_S), left_s)
                    attempt += 1
                    again = f"{error.message} Trying again in {pause:.1f} s."
                    self._say("trouble", again, phase="waiting")
                    if await self._left_within(pause):
                        return self._outcome(f"{self._why_leaving} while the host was away")
        finally:
            self._tally.keep()
            if self._workshop is not None:
                await self._workshop.close()
                self._workshop = None

    async def _join(self, where: Whereabouts) -> tuple[Conversation, Admit]:
        connection = await self._connect(where)
        conversation = Conversation(connection)
        try:
            admit = await conversation.join(
                self.volunteer,
                self._identity,
                pin=where.key,
                token=self._token,
                introduction=self._introduction(),
            )
        except BaseException:
            connection.close()
            raise
        self._title, self._host_proven = admit.job.title, conversation.host_key
        self._say(
            "state",
            f"Joined “{admit.job.title}” as number {admit.position}. {self._why}".rstrip(),
            phase="starting",
            data=self._about(conversation, admit),
        )
        return conversation, admit

    def _about(self, conversation: Conversation, admit: Admit) -> dict[str, str | int | float]:
        """The job, for whoever watches."""
        job = admit.job
        return {
            "job": job.id,
            "title": one_line(job.title),
            "cause": one_line(job.cause),
            "host": conversation.host_key,
            "host_name": one_line(conversation.host_name),
            "address": self._address,
            "position": admit.position,
            "why": self._why,
        }

    async def _stay(self, conversation: Conversation, admit: Admit) -> Outcome:
        """One connection, from admission to its end."""
        listening = asyncio.create_task(
            conversation.run(beat_s=admit.heartbeat_s, silence_s=admit.silence_s)
        )
        working = asyncio.create_task(self._work(conversation, admit))
        leaving = asyncio.create_task(self._leaving.wait())
        tasks: set[asyncio.Task[Finished] | asyncio.Task[None] | asyncio.Task[bool]]
        tasks = {listening, working, leaving}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                with contextlib.suppress(PeerError):
                    await conversation.connection.send(Leave(reason="the volunteer stopped"))
                return self._outcome(self._why_leaving)
            if listening.done():  # it is over, or the host has gone
                finished = listening.result()
                return self._outcome(finished.reason, finished)
            error = _first_error(working.exception())
            if admit.servers and isinstance(error, ConnectionLost):
                # When a job is over its servers go, too: perhaps before we hear of it.
                # Or it lets us go: then the host's own word says whether to come back.
                await asyncio.wait({listening}, timeout=PARTING_S)
                if listening.done():
                    finished = listening.result()
                    return self._outcome(finished.reason, finished)
            with contextlib.suppress(PeerError):  # say why before going
                await conversation.connection.send(Leave(reason=for_the_host(error)))
            raise error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not conversation.connection.peer.startswith(NEAR):
                self._received(conversation.fetched_bytes, conversation.fetched_s)
            conversation.connection.close()

    async def _work(self, conversation: Conversation, admit: Admit) -> None:
        self._granted.clear()  # these were another connection's
        self._additions.forget()
        if self._workshop is not None and not await self._serves(conversation, admit):
            await self._workshop.close()
            self._workshop = None
        if self._workshop is None:
            self._unanswered.clear()  # they lay in another's memory
            self._bases.clear()
            self._workshop = await self._set_up(conversation, admit)
            work = self._workshop.spec.work_per_sample
            self._tally.begin(admit.job.id, admit.job.title, work)
        self._tell_effort(self._governor.effort)
        shop, parts = self._workshop, self._parts(conversation, admit, self._workshop)
        if not self._agreed >= _machines(parts):  # the host has moved its parameters since
            await self._agree(conversation, admit, shop)
        async with (
            reached(
                conversation,
                admit,
                parts,
                self.volunteer,
                connect=self._connect,
                resolve=self._resolve,
                bases=self._bases,
            ) as reach,
            supplied(
                self._sharing,
                conversation,
                admit,
                shop,
                self._chunks,
                self._watch,
            ) as self._supply,
        ):
            while True:
                async with asyncio.TaskGroup() as lanes:
                    for slot in range(shop.slots):
                        lanes.create_task(self._lane(conversation, reach(slot), shop, slot))
                shop = await self._open_larger(conversation, admit, shop)
                for slot in [n for n, grant in self._granted.items() if grant.link]:
                    await self._return_link(reach(slot), self._granted.pop(slot))

    async def _serves(self, conversation: Conversation, admit: Admit) -> bool:
        """Whether the workshop of an earlier connection is the one for this job, perhaps grown."""
        shop = self._workshop
        if shop is None or self._host_key != conversation.host_key:  # agreed was to help that one
            return False
        if replace(shop.job, manifest=admit.job.manifest) != admit.job:
            return False
        return await self._additions.caught_up(conversation, admit, shop)

    async def _open_larger(
        self, conversation: Conversation, admit: Admit, shop: Workshop
    ) -> Workshop:
        """A workshop for data that has outgrown this one, with what lies in its slots.

        Raises TurnedAway where it would be too large for this machine.
        """
        admit = self._additions.larger(admit)
        slots = shop.take_out()
        await shop.close()
        self._workshop = None
        self._workshop = larger = await self._set_up(conversation, admit)
        larger.put_in(slots)
        self._additions.forget()
        return larger

    async def _return_link(self, reach: Reach, grant: Grant) -> None:
        """A unit that goes on from a replica which went with the trainer that had it."""
        await reach.give_back(grant.unit.id, "its replica is gone: the data needed more room")

    def _parts(self, conversation: Conversation, admit: Admit, shop: Workshop) -> tuple[Part, ...]:
        if not admit.servers:
            return ()
        host = machine_of(conversation.connection.peer)
        return parts_of(admit.servers, shop.spec, admit.job.local.codec, host=host)

    async def _set_up(self, conversation: Conversation, admit: Admit) -> Workshop:
        """Fetch and check what the host sends, ask our owner, and only then load it, once this
        machine may work."""
        job, self._host_key = admit.job, conversation.host_key
        self._gatekeeper.let_pass(job)
        own = " and comparing your model with it" if self._trusted is not None else ""
        self._say("state", f"Fetching the program, checking it{own}.")
        shop: Workshop | None = None
        try:
            shop = await self._open_shop(
                admit,
                conversation,
                self._chunks,
                memory_bytes=self._memory_bytes,
                pace_s=self._pace_s,
                trusted=self._trusted,
                threads=self._threads,
                share=lambda threads: share_of(self._governor.effort, threads),
                note=lambda text: self._say("note", text),
            )
            self._say("note", shop.findings)
            await self._agree(conversation, admit, shop)
            if self._pauses and not self._granted:  # a unit in hand must not wait with us
                self._tell_effort(self._governor.effort)
                await self._hold()
            await shop.begin()
        except BaseException as error:
            if isinstance(error, ChildDied):
                self._gatekeeper.refuse_from_now(job, error)
            if shop is not None:
                await shop.close()
            raise
        return shop

    async def _agree(self, conversation: Conversation, admit: Admit, shop: Workshop) -> None:
        """Ask our owner. Raises NotAgreed; MessageError where the servers make no sense."""
        parts = self._parts(conversation, admit, shop)
        await self._gatekeeper.ask(self._request(conversation, admit.job, shop, parts))
        self._agreed = _machines(parts)

    def _request(
        self, conversation: Conversation, job: Job, shop: Workshop, parts: Sequence[Part]
    ) -> Request:
        return Request(
            host=conversation.host_key,
            host_name=conversation.host_name,
            address=self._address,
            job=job.id,
            title=job.title,
            cause=job.cause,
            program=job.program,
            memory_bytes=shop.memory_bytes,
            traffic_bytes=shop.data_bytes,
            exchange_bytes=shop.exchange_bytes,
            disk_bytes=shop.data_bytes,
            again=shop.takes_turns,
            walls=shop.missing_walls,
            own_model=self._trusted is not None,
            servers=tuple(part.address for part in parts),
            data=shop.manifest.title,
            card=shop.manifest.card,
            growing=job.growing,
            shares=self._shares(),
        )

    def _shares(self) -> Shares:
        if self._sharing is None:
            return "no"
        return "dial" if self._sharing.listen is None else "listen"

    async def _lane(
        self, conversation: Conversation, reach: Reach, shop: Workshop, slot: int
    ) -> None:
        """One lane, from the update it could not bring home on the last connection, if any.

        It ends where the workshop has become too small.
        """
        waits, later = 0, asyncio.get_running_loop().call_soon  # when the next unit is under way
        again = slot in self._unanswered  # refused now, it may have been taken the first time
        if slot in self._granted:
            await self._work_on(reach, shop, self._granted.pop(slot), slot)
        if slot not in self._unanswered:
            await self._hold()
        while self._additions.fit:
            update, trained = self._unanswered.get(slot, (None, False))
            payload: Payload = shop.update(slot) if trained else b""
            answer = await reach.exchange(
                Exchange(update=update, shards=shop.shards_held),
                payload,
                shop.state(slot),
                shop.whole_state(slot),
            )
            if update is not None:
                del self._unanswered[slot]
                self._record(update, answer.verdict)
                accepted = answer.verdict == "accepted"
                if trained and (accepted or not again):
                    self._tally.answered(update.samples, accepted=accepted)
                again = False
                later(self._tell_of, update, self.samples, self.accepted)
            if isinstance(answer, Wait):
                waits += 1
                if waits > 1:  # not worth a word if it is over at once
                    held_up = f"Waiting for “{shop.job.title}”: {answer.reason}."
                    self._say("state", held_up, phase="waiting")
                # Who has asked is counted on, rounds wait for it: also where we pause by now we ask
                # on, seldom, for a unit to give back.
                pause_s = MAX_WAIT_S if self._pauses else answer.seconds
                await asyncio.sleep(min(max(pause_s, 0.05), MAX_WAIT_S))
                continue
            waits = 0
            self._share = share_given(answer.yours, answer.given)
            if not await self._additions.learned(conversation, shop):
                self._granted[slot] = answer
                return
            await self._work_on(reach, shop, answer, slot)

    async def _work_on(self, reach: Reach, shop: Workshop, grant: Grant, slot: int) -> None:
        update = await self._compute(reach, shop, grant, slot)
        if update is not None:
            trained = grant.unit.kind == "train"
            self._unanswered[slot] = (update, trained)
            if trained:
                self._tally.computed(update.samples)

    @property
    def _pauses(self) -> bool:
        return self._governor.effort.share == 0

    async def _hold(self) -> None:
        """Wait while this machine pauses."""
        while self._pauses:
            await self._governor.may_work()

    async def _rest(self, reach: Reach, grant: Grant) -> None:
        """Give back what was granted, so that nobody waits for it, and hold."""
        await reach.give_back(grant.unit.id, "the volunteer pauses", rests=True)
        await self._hold()

    async def _compute(
        self, reach: Reach, shop: Workshop, grant: Grant, slot: int
    ) -> Update | None:
        unit = grant.unit
        if self._pauses:
            await self._rest(reach, grant)
            return None
        await shop.need(unit.shard, self._supply, self._telling.of_data(unit), slot=slot)
        if self._pauses:  # it may have taken a while
            shop.let_go(slot)
            await self._rest(reach, grant)
            return None
        try:
            done = await shop.compute(grant, slot, reach)
        except NotBegun:
            await self._rest(reach, grant)
            return None
        except (ChildDied, ProgramError, DataError) as error:
            self._say("trouble", str(error))
            await reach.give_back(unit.id, for_the_host(error))
            self._failures += 1
            if shop.trainer.broken and isinstance(error, ChildDied):
                self._gatekeeper.refuse_from_now(shop.job, error)
            if shop.trainer.broken or self._failures >= MAX_FAILURES:
                raise
            await asyncio.sleep(AFTER_FAILURE_S)
            return None
        self._failures = 0
        engine = shop.trainer.engine
        working = f"Working for “{shop.job.title}” with {engine}."
        self._say("state", working, phase="working", data={"engine": engine})
        return Update(
            unit=unit.id,
            base=grant.base,
            link=grant.link,
            samples=done.samples,
            loss=done.loss,
            metrics=done.metrics,
            compute_s=done.compute_s,
        )

    def _record(self, update: Update, verdict: str) -> None:
        if verdict == "accepted":
            self.accepted += 1
            self.samples += update.samples
            self._late = 0
        elif verdict in ("too_old", "too_late"):
            self._late += 1
            if self._late == MANY_LATE:
                self._say("trouble", f"The last {MANY_LATE} updates came too late to be used.")
        elif verdict not in BLAMELESS:
            self.refused += 1
            refusal = UpdateRefused(f"The update of unit {update.unit} was not used: {verdict}.")
            self._say("trouble", str(refusal))

    def _tell_of(self, update: Update, samples: int, accepted: int) -> None:
        self._telling.of_unit(
            update, samples=samples, accepted=accepted, refused=self.refused, share=self._share
        )

    def _outcome(
        self, reason: str, finished: Finished | None = None, *, left: bool = True
    ) -> Outcome:
        if finished is not None:
            self._share = share_given(finished.samples, finished.given)
        return Outcome(
            reason=reason,
            left=left and finished is None,
            samples=finished.samples if finished else self.samples,
            credit=finished.credit if finished else None,
            share=self._share,
            title=self._title,
            host=self._host_proven,
        )

    def _threads(self) -> int:
        return min(self._governor.effort.threads, self.volunteer.cores)

    def _tell_effort(self, effort: Effort) -> None:
        self._telling.of_effort(effort, works=self._workshop is not None)

    async def _left_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._leaving.wait()
        except TimeoutError:
            return False


async def _nowhere(name: ChunkHash, size: int) -> bytes:
    raise ConnectionLost("There is no host to ask for data.")


def lent_memory(volunteer: Volunteer) -> int:
    """Bytes a job may take: half of the machine's memory."""
    known_mb = volunteer.memory_mb or UNKNOWN_MEMORY_MB
    return (known_mb << 20) // 2


def _machines(parts: Sequence[Part]) -> frozenset[str]:
    return frozenset(part.host for part in parts)


def _first_error(error: BaseException | None) -> BaseException:
    """The cause inside the groups that lanes and fetches put around it."""
    while isinstance(error, BaseExceptionGroup):
        lost = [e for e in error.exceptions if not isinstance(e, ConnectionLost)]
        error = (lost or list(error.exceptions))[0]
    assert error is not None
    return error if isinstance(error, CrowdgradError) else RuntimeError(repr(error))
