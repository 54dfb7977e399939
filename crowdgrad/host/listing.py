"""The job at the matchmaker, as the host keeps it there: published, up to date, withdrawn.

Also who gave how much: told now and then and at the end, so that the matchmaker can show it and the
volunteers can countersign it.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Container, Iterable, Mapping, Sequence

from crowdgrad.domain.job import JobState, Member
from crowdgrad.domain.matching import Code, Gift, Offer
from crowdgrad.domain.routes import Route
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import JobFileError, Unreachable
from crowdgrad.host.job import Prepared
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.net.identity import Identity, id_of
from crowdgrad.net.matchmaker import HostPresence, publish
from crowdgrad.net.web import Again, ask

logger = logging.getLogger(__name__)

CREDIT_EVERY_S = 30.0
PROGRESS_EVERY_S = 5.0
MAX_LINK = 300
AWAY = "the matchmaker does not answer; the job goes on"
BACK = "the matchmaker answers again"


def gifts(
    accounts: Iterable[Contribution], ours: Container[VolunteerId]
) -> dict[VolunteerId, Gift]:
    """What volunteers have given so far; worker 0 and others we started have given nothing away."""
    return {
        account.volunteer.id: Gift(
            units=account.units, samples=account.samples, flop=account.credit
        )
        for account in accounts
        if account.units and not account.own and account.volunteer.id not in ours
    }


class Listing:
    def __init__(self, presence: HostPresence) -> None:
        self._presence = presence
        self._told: JobState = "waiting"
        self._told_failure = False
        self._there = True
        self._credit_at = -math.inf
        self._progress, self._progress_at = -1.0, -math.inf

    @property
    def code(self) -> Code | None:
        return self._presence.code

    @property
    def link(self) -> str:
        """The job's page, for people; empty where the matchmaker names none that can be shown."""
        link = self._presence.link
        sound = len(link) <= MAX_LINK and link.isascii() and link.isprintable()
        return link if sound and link.startswith(("http://", "https://")) else ""

    @property
    def matchmaker_key(self) -> bytes:
        """What the matchmaker's introductions are signed with."""
        return self._presence.matchmaker_key

    def place_of(self, who: VolunteerId) -> int | None:
        """The place in the roster that the matchmaker gave a volunteer, if it did."""
        members = self._presence.roster.members
        return next((member.position for member in members if member.id == who), None)

    def move(self, ways: Sequence[Route]) -> None:
        """Volunteers come to us by these from now on."""
        told = tuple(map(str, ways))
        self._presence.move(_address(ways), told)

    def come_anew(self) -> None:
        """This machine has moved: what was dialled from the old address leads nowhere."""
        self._presence.connection.come_anew()

    def tell(self, state: JobState) -> bool:
        """How the job stands; said once. So is, to people, how we stand with the matchmaker.

        Whether it has just come back.
        """
        if state != self._told:
            self._told = state
            self._presence.set_state(state)
        if self._presence.failure is None:
            return self._has_come_back()
        if not self._told_failure:
            self._told_failure = True
            logger.warning("the matchmaker: %s", self._presence.failure)
        return False

    def _has_come_back(self) -> bool:
        there = self._presence.connected
        if there == self._there:
            return False
        self._there = there
        logger.warning("%s", BACK if there else AWAY)
        return there

    def progress(self, now: float, share: float) -> None:
        """How much is done, to a hundredth: said now and then, where it is another by then."""
        share = math.floor(100 * share) / 100
        if share != self._progress and now - self._progress_at >= PROGRESS_EVERY_S:
            self._progress, self._progress_at = share, now
            self._presence.set_progress(share)

    def credit_due(self, now: float) -> bool:
        return now - self._credit_at >= CREDIT_EVERY_S

    def credit(self, now: float, given: Mapping[VolunteerId, Gift]) -> None:
        """Tell who has given what; what was said before is not said again."""
        self._credit_at = now
        self._presence.credit(given)

    async def withdraw(self, state: JobState, share: float) -> None:
        """The last word: how it ended, and how far it came."""
        self.progress(math.inf, share)
        self.tell(state)
        await self._presence.close()


def look_for(url: str) -> None:
    """That a matchmaker answers there: asked before anything slow. One that is busy does, too.

    Raises Unreachable, PeerError or TargetError.
    """
    try:
        ask(url, "GET", "/healthz")
    except Unreachable as error:
        if not isinstance(error.__context__, Again):  # publishing will wait for its turn
            raise


async def list_job(
    url: str,
    prepared: Prepared,
    *,
    ways: Sequence[Route],
    key: Identity,
    members: Iterable[Member],
) -> Listing:
    """Publish a job at the matchmaker. `members`: who had a place in it.

    Raises JobFileError, Unreachable, PeerError or TargetError.
    """
    own = Member(position=0, id=id_of(key.public + b"worker 0"), name="the host's own worker")
    presence = await publish(
        url,
        offer_of(prepared, ways=ways, public=key.public),
        key=key,
        worker=own,
        members=members,
        on_waiting=lambda reason: logger.warning("%s", reason),
        random01=random.random,
    )
    return Listing(presence)


def _address(ways: Sequence[Route]) -> str:
    """HOST:PORT, for those who know of nothing else."""
    best = next((way for way in ways if way.kind == "direct"), ways[0])
    return str(Route(host=best.host, port=best.port))


def offer_of(prepared: Prepared, *, ways: Sequence[Route], public: bytes) -> Offer:
    """The job as it is published. Raises JobFileError."""
    job = prepared.job
    try:
        offer = Offer(
            id=job.id,
            title=job.title,
            cause=job.cause,
            address=_address(ways),
            key=id_of(public),
            public=public.hex(),
            routes=tuple(map(str, ways)),
            minimum=prepared.minimum,
            maximum=prepared.maximum,
            hyperparameters=job.hyperparameters,
        )
    except ValueError as error:
        raise JobFileError(f"The job cannot be published: {error}.") from None
    return prepared.appeal.put_into(offer, data_mb=math.ceil(prepared.volunteer_bytes / 1e6))
