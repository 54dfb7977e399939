"""How hosts and volunteers reach the matchmaker, and stay.

    presence = await publish(url, offer, worker=member)           # a host
    match = await wait_for_job(url, volunteer, on_waiting=print)  # a volunteer
    match = await match.presence.next_job()                       # … and its next job

Only the first connection can fail. After that a presence keeps itself alive: when the matchmaker is
lost it comes back and says everything again (the same id, the same token, the places already
given), so a matchmaker that lost its memory learns it from those it served. Meanwhile the job goes
on: nothing here is in the training path.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import msgspec

from crowdgrad.domain.job import JobId, JobState, Member, Roster, Volunteer
from crowdgrad.domain.matching import OPEN_STATES, Code, JobListing, Offer
from crowdgrad.errors import CrowdgradError
from crowdgrad.net import rooms
from crowdgrad.net.presence import Calls, Link, Wire

TOLD_BYTES = 32 << 10
"""How much of a long roster a host tells when it publishes again."""

_published = msgspec.json.Decoder(rooms.Published)
_registered = msgspec.json.Decoder(rooms.Registered)


def new_token() -> str:
    """What proves, to a matchmaker that knows us, that we are who we were."""
    return secrets.token_hex(24)


async def publish(
    url: str,
    offer: Offer,
    *,
    worker: Member,
    state: JobState = "waiting",
    token: str | None = None,
    members: Iterable[Member] = (),
    on_roster: Callable[[Roster], None] | None = None,
    random01: Callable[[], float] = random.random,
    wire: Wire | None = None,
) -> HostPresence:
    """Publish a job and stay. `worker` is the host's own, at position 0.

    A host that comes back from a checkpoint passes the `token` and the `members` it remembers.
    Raises Unreachable, TurnedAway or TargetError.
    """
    presence = HostPresence(
        url,
        offer,
        known=(worker, *members),
        state=state,
        token=token or new_token(),
        on_roster=on_roster,
        random01=random01,
        wire=wire,
    )
    await presence.link.open()
    return presence


class HostPresence:
    """A published job. `code`, `roster` and `failure` are current at any time."""

    def __init__(
        self,
        url: str,
        offer: Offer,
        *,
        known: Iterable[Member],
        state: JobState,
        token: str,
        on_roster: Callable[[Roster], None] | None,
        random01: Callable[[], float],
        wire: Wire | None = None,
    ) -> None:
        self.token = token
        self.code: Code | None = None
        self.roster = Roster(job=offer.id, members=())
        self.failure: CrowdgradError | None = None
        """Set when the matchmaker turned us away for good; the job goes on without it."""
        self._offer = offer
        self._state = state
        self._known = {member.position: member for member in known}
        self._next_position = max(self._known, default=0) + 1
        self._on_roster = on_roster
        self.link: Link[rooms.TO_HOST] = Link(
            url,
            announce_at="/v1/jobs",
            stay_at=f"/v1/jobs/{offer.id}/presence",
            token=token,
            decoder=rooms.to_host,
            calls=Calls(
                announcement=self._announcement,
                accepted=self._accepted,
                receive=self._receive,
                lost=lambda _: None,
                turned_away=self._turned_away,
            ),
            random01=random01,
            wire=wire,
        )

    @property
    def connected(self) -> bool:
        return self.link.connected

    @property
    def members(self) -> tuple[Member, ...]:
        """Everyone who ever had a place, as far as we were told."""
        return tuple(self._known[position] for position in sorted(self._known))

    def set_state(self, state: JobState) -> None:
        self._state = state
        self.link.say(rooms.StateChanged(state=state))

    async def close(self) -> None:
        await self.link.close()

    def _announcement(self) -> rooms.Body:
        return rooms.Publish(
            offer=rooms.OfferBody.of(self._offer),
            members=self._told(),
            next_position=self._next_position,
            state="waiting" if self._state == "waiting" else "running",
            token=self.token,
            code=self.code,
        )

    def _told(self) -> tuple[rooms.MemberBody, ...]:
        """The worker, whoever is here, then the latest of those who were: as many as fit.

        Each once, at one place: an earlier host, or an earlier matchmaker, may have given others.
        """
        here = {member.position for member in self.roster.members}
        order = sorted(self._known, key=lambda p: (p != 0, p not in here, -p))
        told: dict[str, rooms.MemberBody] = {}
        size = 0
        for position in order:
            body = rooms.MemberBody.of(self._known[position])
            if body.id in told:
                continue
            size += len(rooms.encode(body)) + 1
            if size > TOLD_BYTES:
                break
            told[body.id] = body
        return tuple(sorted(told.values(), key=lambda body: body.position))

    def _accepted(self, raw: bytes) -> None:
        self.code = Code(rooms.decode(_published, raw).code)
        if self._state not in OPEN_STATES:
            # It ended while the matchmaker was away; nobody else is to be sent here.
            self.link.say(rooms.StateChanged(state=self._state))

    def _receive(self, message: rooms.TO_HOST) -> None:
        if isinstance(message, rooms.RosterChanged):
            self.roster = message.roster()
            self._next_position = max(self._next_position, message.next_position)
            self._known.update({member.position: member for member in self.roster.members})
            if self._on_roster is not None:
                self._on_roster(self.roster)

    def _turned_away(self, error: CrowdgradError) -> None:
        self.failure = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A job to work for; `presence.match` is the same, kept up to date."""

    listing: JobListing
    roster: Roster
    position: int
    reason: str
    presence: VolunteerPresence = field(repr=False, compare=False)


async def wait_for_job(
    url: str,
    volunteer: Volunteer,
    *,
    wants: str | None = None,
    on_waiting: Callable[[str], None] | None = None,
    on_roster: Callable[[Roster], None] | None = None,
    on_ended: Callable[[JobId, JobState], None] | None = None,
    token: str | None = None,
    random01: Callable[[], float] = random.random,
    wire: Wire | None = None,
) -> Match:
    """Register, wait for the first job, and stay present while working (`match.presence`).

    `wants` is the id or code of the only job to work for. Raises Unreachable, TurnedAway or
    TargetError; a cancelled wait leaves politely.
    """
    presence = VolunteerPresence(
        url,
        volunteer,
        wants=wants,
        token=token or new_token(),
        on_waiting=on_waiting,
        on_roster=on_roster,
        on_ended=on_ended,
        random01=random01,
        wire=wire,
    )
    try:
        await presence.link.open()
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
        wants: str | None,
        token: str,
        on_waiting: Callable[[str], None] | None,
        on_roster: Callable[[Roster], None] | None,
        on_ended: Callable[[JobId, JobState], None] | None,
        random01: Callable[[], float],
        wire: Wire | None = None,
    ) -> None:
        self.token = token
        self.match: Match | None = None
        self.ended: JobState | None = None
        """How `match` ended, as far as the matchmaker knows."""
        self.failure: CrowdgradError | None = None
        self._volunteer = volunteer
        self._wants = wants
        self._avoid: tuple[JobId, ...] = ()
        self._offered: Match | None = None
        self._news = asyncio.Event()
        self._on_waiting = on_waiting
        self._on_roster = on_roster
        self._on_ended = on_ended
        self.link: Link[rooms.TO_VOLUNTEER] = Link(
            url,
            announce_at="/v1/volunteers",
            stay_at=f"/v1/volunteers/{volunteer.id}/presence",
            token=token,
            decoder=rooms.to_volunteer,
            calls=Calls(
                announcement=self._announcement,
                accepted=lambda raw: _check_registered(raw),
                receive=self._receive,
                lost=self._lost,
                turned_away=self._turned_away,
            ),
            random01=random01,
            wire=wire,
        )

    @property
    def connected(self) -> bool:
        return self.link.connected

    async def next_job(
        self, *, wants: str | None = None, avoid: Iterable[JobId] | None = None
    ) -> Match:
        """Leave the current job and wait for the next.

        Unless told otherwise the job just left is avoided: what made us leave is likely to hold.
        Raises TurnedAway when the matchmaker does not want us any more.
        """
        left = () if self.match is None else (self.match.listing.id,)
        self._wants = wants
        self._avoid = tuple(avoid) if avoid is not None else () if wants is not None else left
        moved_on = self._offered is not None and self.ended is not None
        self.match, self.ended = None, None
        if not (moved_on and wants is None and avoid is None):
            self._offered = None
            self.link.say(rooms.Free(wants=wants, avoid=self._avoid))
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

    async def close(self) -> None:
        await self.link.close()

    @property
    def _working(self) -> bool:
        return self.match is not None and self.ended is None

    def _announcement(self) -> rooms.Body:
        # While we work we come back to our job and to no other.
        working_for = self.match.listing.id if self.match is not None and self._working else None
        self._offered = None
        return rooms.Register(
            volunteer=rooms.VolunteerBody.of(self._volunteer),
            wants=working_for or self._wants,
            avoid=() if working_for else self._avoid,
            token=self.token,
        )

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
        elif isinstance(message, rooms.StillWaiting) and not self._working:
            self._say_waiting(message.reason)

    def _receive_match(self, message: rooms.Matched) -> None:
        match = Match(
            listing=message.listing.listing(),
            roster=message.roster.roster(),
            position=message.position,
            reason=message.reason,
            presence=self,
        )
        if self.match is None or self.ended is not None:
            self._offered = match
            self._news.set()
        elif match.listing.id == self.match.listing.id:
            self.match = match
            self._receive_roster(match.roster)
        else:
            # Decided before our last word reached it: we still work for the other job.
            self.link.say(rooms.Free(wants=self.match.listing.id))

    def _receive_roster(self, roster: Roster) -> None:
        if self.match is not None and self.match.listing.id == roster.job:
            self.match = replace(self.match, roster=roster)
            if self._on_roster is not None:
                self._on_roster(roster)
        elif self._offered is not None and self._offered.listing.id == roster.job:
            self._offered = replace(self._offered, roster=roster)

    def _say_waiting(self, reason: str) -> None:
        if self._on_waiting is not None:
            self._on_waiting(reason)

    def _lost(self, why: str) -> None:
        if not self._working:
            self._say_waiting(f"waiting: the matchmaker does not answer ({why}); trying again")

    def _turned_away(self, error: CrowdgradError) -> None:
        self.failure = error
        self._news.set()


def _check_registered(raw: bytes) -> None:
    rooms.decode(_registered, raw)
