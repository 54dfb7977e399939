"""How hosts and volunteers reach the matchmaker, and stay.

    presence = await publish(url, offer, key=key, worker=member)           # a host
    match = await wait_for_job(url, volunteer, key=key, on_waiting=print)  # a volunteer
    match = await match.presence.next_job()                                # … and its next job

Only the first connection can fail. After that a presence keeps itself alive: when the matchmaker is
lost it comes back and says everything again, signed with the same key (the places already given,
what everybody gave), so a matchmaker that lost its memory learns it from those it served. Meanwhile
the job goes on: nothing here is in the training path.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from crowdgrad.domain.job import JobId, JobState, Member, Roster, Volunteer
from crowdgrad.domain.matching import (
    ANYONE,
    OPEN_STATES,
    Code,
    Gift,
    JobListing,
    Machine,
    Offer,
    Wants,
    is_code,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, MessageError, one_line
from crowdgrad.net import bodies, rooms, signing
from crowdgrad.net.identity import Identity
from crowdgrad.net.presence import HELLO_BYTES, Calls, Link, Wire

TOLD_BYTES = 32 << 10
"""How much of a long roster a host tells when it publishes again."""
GIFTS_AT_ONCE = 256
UNKNOWN = Machine()
"""Of which nothing was measured."""


async def publish(
    url: str,
    offer: Offer,
    *,
    key: Identity,
    worker: Member,
    state: JobState = "waiting",
    members: Iterable[Member] = (),
    on_roster: Callable[[Roster], None] | None = None,
    on_waiting: Callable[[str], None] | None = None,
    random01: Callable[[], float] = random.random,
    wire: Wire | None = None,
) -> HostPresence:
    """Publish a job and stay. The job belongs to `key`; `worker` is the host's own, at position 0.

    A host that comes back from a checkpoint passes the `members` it remembers. `on_waiting`: the
    matchmaker wants us later. Raises Unreachable, TurnedAway, MessageError or TargetError.
    """
    presence = HostPresence(
        url,
        offer,
        key=key,
        known=(worker, *members),
        state=state,
        on_roster=on_roster,
        on_waiting=on_waiting,
        random01=random01,
        wire=wire,
    )
    await presence.connection.open()
    return presence


class HostPresence:
    """A published job. `code`, `link`, `roster` and `failure` are current at any time."""

    def __init__(
        self,
        url: str,
        offer: Offer,
        *,
        key: Identity,
        known: Iterable[Member],
        state: JobState,
        on_roster: Callable[[Roster], None] | None,
        random01: Callable[[], float],
        on_waiting: Callable[[str], None] | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.code: Code | None = None
        self.link = ""
        """The job's page at the matchmaker, for people."""
        self.matchmaker_key = b""
        """Whose introductions to believe."""
        self.roster = Roster(job=offer.id, members=())
        self.failure: CrowdgradError | None = None
        """Set when the matchmaker turned us away for good; the job goes on without it."""
        self._offer = offer
        self._state = state
        self._known = {member.position: member for member in known}
        self._next_position = max(self._known, default=0) + 1
        self._gifts: dict[VolunteerId, Gift] = {}
        self._progress: float | None = None
        self._hears_progress = False
        self._on_roster = on_roster
        self.connection: Link[rooms.TO_HOST] = Link(
            url,
            path=f"/v1/jobs/{offer.id}/presence",
            key=key,
            decoder=rooms.to_host,
            calls=Calls(
                announcement=self._announcement,
                accepted=self._accepted,
                receive=self._receive,
                lost=lambda _: None,
                busy=lambda why, wait_s: _say(on_waiting, _busy(why, wait_s)),
                turned_away=self._turned_away,
            ),
            random01=random01,
            wire=wire,
        )

    @property
    def connected(self) -> bool:
        return self.connection.connected

    @property
    def members(self) -> tuple[Member, ...]:
        """Everyone who ever had a place, as far as we were told."""
        return tuple(self._known[position] for position in sorted(self._known))

    def set_state(self, state: JobState) -> None:
        self._state = state
        self.connection.say(rooms.StateChanged(state=state))

    def set_progress(self, share: float) -> None:
        """How much of the job is done, 0 to 1; said again after a loss."""
        self._progress = share
        self._say_progress()

    def _say_progress(self) -> None:
        if self._hears_progress and self._progress is not None:
            self.connection.say(rooms.Progressed(share=self._progress))

    def move(self, address: str, routes: tuple[str, ...] = ()) -> None:
        """Volunteers reach us there from now on; told to the members at once. Raises ValueError."""
        self._offer = replace(self._offer, address=address, routes=routes)
        self.connection.say(rooms.Moved(address=address, routes=routes))

    def credit(self, gifts: Mapping[VolunteerId, Gift]) -> None:
        """Tell what these volunteers have given by now, all of it; said again after a loss."""
        new = {who: gift for who, gift in gifts.items() if self._gifts.get(who) != gift}
        self._gifts.update(new)
        self._say_gifts(new)

    async def close(self) -> None:
        await self.connection.close()

    def _say_gifts(self, gifts: Mapping[VolunteerId, Gift]) -> None:
        gave = [rooms.Gave(volunteer=w, gift=bodies.GiftBody.of(g)) for w, g in gifts.items()]
        for start in range(0, len(gave), GIFTS_AT_ONCE):
            some = tuple(gave[start : start + GIFTS_AT_ONCE])
            self.connection.say(rooms.Credited(gifts=some))

    def _announcement(self) -> rooms.Publish:
        bare = rooms.Publish(
            offer=bodies.OfferBody.of(self._offer),
            members=(),
            next_position=self._next_position,
            state="waiting" if self._state == "waiting" else "running",
            code=self.code,
        )
        room = rooms.MAX_REQUEST_BYTES - HELLO_BYTES - _told_bytes(bare)
        return msgspec.structs.replace(bare, members=self._told(min(TOLD_BYTES, room)))

    def _told(self, most_bytes: int) -> tuple[bodies.MemberBody, ...]:
        """The worker, whoever is here, then the latest of those who were: as many as fit.

        Each once, at one place: an earlier host, or an earlier matchmaker, may have given others.
        """
        here = {member.position for member in self.roster.members}
        order = sorted(self._known, key=lambda p: (p != 0, p not in here, -p))
        told: dict[str, bodies.MemberBody] = {}
        size = 0
        for position in order:
            body = bodies.MemberBody.of(self._known[position])
            if body.id in told:
                continue
            size += _told_bytes(body) + 1
            if size > most_bytes and told:
                break
            told[body.id] = body
        return tuple(sorted(told.values(), key=lambda body: body.position))

    def _accepted(self, welcome: rooms.Welcome) -> None:
        if not is_code(welcome.code):
            raise MessageError(f"The matchmaker's code for the job is {welcome.code!r}.")
        self.code = Code(welcome.code)
        self.link = welcome.link
        self.matchmaker_key = bytes.fromhex(welcome.key)
        self._hears_progress = welcome.hears_progress
        self._say_gifts(self._gifts)
        self._say_progress()
        if self._state not in OPEN_STATES:
            # It ended while the matchmaker was away; nobody else is to be sent here.
            self.connection.say(rooms.StateChanged(state=self._state))

    def _receive(self, message: rooms.TO_HOST) -> None:
        if isinstance(message, rooms.RosterChanged):
            self.roster = message.roster()
            self._next_position = max(self._next_position, message.next_position)
            self._known.update({member.position: member for member in self.roster.members})
            if self._on_roster is not None:
                self._on_roster(self.roster)

    def _turned_away(self, error: CrowdgradError) -> None:
        self.failure = error


def _told_bytes(body: bodies.Body) -> int:
    """What it takes as text inside a Hello, where every quote is escaped."""
    return len(rooms.encode(rooms.encode(body).decode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A job to work for; `presence.match` is the same, kept up to date."""

    listing: JobListing
    roster: Roster
    position: int
    reason: str
    introduction: str = field(default="", repr=False)
    """What to show the host: that the matchmaker sent us. It holds for some minutes; a later one
    is in `presence.match`."""
    presence: VolunteerPresence = field(repr=False, compare=False)


async def wait_for_job(
    url: str,
    volunteer: Volunteer,
    *,
    key: Identity,
    machine: Machine = UNKNOWN,
    wants: Wants = ANYONE,
    on_waiting: Callable[[str], None] | None = None,
    on_roster: Callable[[Roster], None] | None = None,
    on_ended: Callable[[JobId, JobState], None] | None = None,
    on_credit: Callable[[JobId, Gift], bool] | None = None,
    on_turned_away: Callable[[CrowdgradError], None] | None = None,
    on_present: Callable[[VolunteerPresence], None] | None = None,
    session: str | None = None,
    random01: Callable[[], float] = random.random,
    wire: Wire | None = None,
) -> Match:
    """Register, wait for the first job, and stay present while working (`match.presence`).

    `key` is the volunteer's own. `on_credit`: is that what we gave to this job; then it is
    countersigned. `on_turned_away`: the matchmaker does not want us any more, which `next_job`
    raises later. `on_present` hears, before it waits, through whom the machine may change what it
    offers. `session`: which process this is, by default a new one. Raises Unreachable,
    TurnedAway, MessageError or TargetError; a cancelled wait leaves politely.
    """
    presence = VolunteerPresence(
        url,
        volunteer,
        key=key,
        machine=machine,
        wants=wants,
        session=session or secrets.token_hex(16),
        on_waiting=on_waiting,
        on_roster=on_roster,
        on_ended=on_ended,
        on_credit=on_credit,
        on_turned_away=on_turned_away,
        random01=random01,
        wire=wire,
    )
    try:
        await presence.connection.open()
        if on_present is not None:
            on_present(presence)
        return await presence.matched()
    except BaseException:
        await presence.close()
        raise


class VolunteerPresence:
    """A volunteer that waits or works. `match` is the job it works for, as of now."""

    def __init__(
        self,
        url: str,
        volunteer: Volunteer,
        *,
        key: Identity,
        machine: Machine,
        wants: Wants,
        session: str,
        on_waiting: Callable[[str], None] | None,
        on_roster: Callable[[Roster], None] | None,
        on_ended: Callable[[JobId, JobState], None] | None,
        on_credit: Callable[[JobId, Gift], bool] | None,
        random01: Callable[[], float],
        on_turned_away: Callable[[CrowdgradError], None] | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.session = session
        self.match: Match | None = None
        self.ended: JobState | None = None
        """How `match` ended, as far as the matchmaker knows."""
        self.failure: CrowdgradError | None = None
        self._volunteer = volunteer
        self._key = key
        self._machine = self._announced = machine
        self._wants = wants
        self._avoid: tuple[JobId, ...] = ()
        self._asked = 0
        self._offered: Match | None = None
        self._news = asyncio.Event()
        self._on_waiting = on_waiting
        self._on_roster = on_roster
        self._on_ended = on_ended
        self._on_credit = on_credit
        self._on_turned_away = on_turned_away
        self._said_lost = False
        self._comes_anew = False
        self.connection: Link[rooms.TO_VOLUNTEER] = Link(
            url,
            path=f"/v1/volunteers/{volunteer.id}/presence",
            key=key,
            decoder=rooms.to_volunteer,
            calls=Calls(
                announcement=self._announcement,
                accepted=self._accepted,
                receive=self._receive,
                lost=self._say_lost,
                busy=lambda why, wait_s: self._say_waiting(_busy(why, wait_s)),
                turned_away=self._turned_away,
            ),
            random01=random01,
            wire=wire,
        )

    @property
    def connected(self) -> bool:
        return self.connection.connected

    async def next_job(
        self, *, wants: Wants | None = None, avoid: Iterable[JobId] | None = None
    ) -> Match:
        """Leave the current job and wait for the next.

        Unless told otherwise we want what we wanted, but no longer one certain job, and the one
        just left is avoided: what made us leave is likely to hold. Raises TurnedAway when the
        matchmaker does not want us any more.
        """
        left = () if self.match is None else (self.match.listing.id,)
        self._wants = replace(self._wants, job=None) if wants is None else wants
        self._avoid = tuple(avoid) if avoid is not None else () if wants is not None else left
        moved_on = self._offered is not None and self.ended is not None
        self.match, self.ended = None, None
        if not (moved_on and wants is None and avoid is None):
            self._offered = None
            self._say_free(self._wants, self._avoid)
        return await self.matched()

    async def matched(self) -> Match:
        """Wait for a job without leaving one. Raises TurnedAway."""
        while self._offered is None:
            if self.failure is not None:
                raise self.failure
            await self._news.wait()
            self._news.clear()
        self.match, self._offered, self.ended = self._offered, None, None
        return self.match

    def offer(self, machine: Machine) -> None:
        """What we offer by now: the matchmaker learns it as we come anew. Say it again: one that
        was said while we came may not have reached it."""
        self._machine = machine
        if machine != self._announced:
            self._comes_anew = self.connected
            self.connection.come_anew()

    async def close(self) -> None:
        """Leave: our room goes to somebody else."""
        self.connection.say(rooms.Leaving())
        await self.connection.close()

    @property
    def _working(self) -> bool:
        return self.match is not None and self.ended is None

    def _announcement(self) -> rooms.Register:
        # While we work we come back to our job and to no other.
        working_for = self.match.listing.id if self.match is not None and self._working else None
        self._offered = None
        self._announced = self._machine
        return rooms.Register(
            volunteer=bodies.VolunteerBody.of(self._volunteer),
            session=self.session,
            machine=bodies.MachineBody.of(self._machine),
            wants=bodies.WantsBody.of(self._wants),
            avoid=self._avoid,
            working_for=working_for,
            asked=self._asked,
        )

    def _accepted(self, welcome: rooms.Welcome) -> None:
        self._say_found()

    def _say_free(self, wants: Wants, avoid: tuple[JobId, ...] = ()) -> None:
        self._asked += 1
        said = rooms.Free(wants=bodies.WantsBody.of(wants), avoid=avoid, asked=self._asked)
        self.connection.say(said)

    def _receive(self, message: rooms.TO_VOLUNTEER) -> None:
        if isinstance(message, rooms.Matched):
            self._receive_match(message)
        elif isinstance(message, rooms.RosterChanged):
            self._receive_roster(message.roster())
        elif isinstance(message, rooms.JobEnded):
            if self.match is not None and self.match.listing.id == message.job:
                self.ended = message.state
                if self._on_ended is not None:
                    self._on_ended(JobId(message.job), message.state)
        elif isinstance(message, rooms.CreditOffered):
            self._receive_credit(message)
        elif isinstance(message, rooms.StillWaiting):
            self._say_waiting(message.reason)

    def _receive_match(self, message: rooms.Matched) -> None:
        if message.asked != self._asked:
            return  # decided before our last word reached it
        match = Match(
            listing=message.listing.listing(),
            roster=message.roster.roster(),
            position=message.position,
            reason=message.reason,
            introduction=message.introduction,
            presence=self,
        )
        if self.match is None or self.ended is not None:
            self._offered = match
            self._news.set()
        elif match.listing.id == self.match.listing.id:
            self.match = match
            self._receive_roster(match.roster)
        else:  # it takes us for idle: we still work for the other job
            self._say_free(Wants(job=self.match.listing.id))

    def _receive_roster(self, roster: Roster) -> None:
        if self.match is not None and self.match.listing.id == roster.job:
            self.match = replace(self.match, roster=roster)
            if self._on_roster is not None:
                self._on_roster(roster)
        elif self._offered is not None and self._offered.listing.id == roster.job:
            self._offered = replace(self._offered, roster=roster)

    def _receive_credit(self, offered: rooms.CreditOffered) -> None:
        job, gift = JobId(offered.job), offered.gift.gift()
        if self._on_credit is None or not self._on_credit(job, gift):
            return
        text = signing.credit_text(job, offered.host, self._volunteer.id, gift)
        signature = self._key.sign_text(text).hex()
        self.connection.say(rooms.CreditSigned(job=job, gift=offered.gift, signature=signature))

    def _say_waiting(self, reason: str) -> None:
        if not self._working:
            _say(self._on_waiting, reason)

    def _say_lost(self, why: str) -> None:
        """Once: it may be away for a night."""
        if self._comes_anew:  # as we wanted
            self._comes_anew = False
            return
        if not (self._said_lost or self._working):
            self._said_lost = True
            why = why.rstrip(".")
            self._say_waiting(f"waiting: the matchmaker does not answer ({why}); trying again")

    def _say_found(self) -> None:
        self._comes_anew = False
        if self._said_lost:
            self._said_lost = False
            self._say_waiting("waiting: the matchmaker answers again")

    def _turned_away(self, error: CrowdgradError) -> None:
        self.failure = error
        self._news.set()
        if self._on_turned_away is not None:
            self._on_turned_away(error)


def _say(listener: Callable[[str], None] | None, text: str) -> None:
    if listener is not None:
        listener(one_line(text))


def _busy(why: str, wait_s: float) -> str:
    return f"waiting: {why.rstrip('.')}; trying again in {math.ceil(wait_s)} s"
