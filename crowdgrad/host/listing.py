"""The job at the matchmaker, as the host keeps it there: published, up to date, withdrawn."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

from crowdgrad.domain.job import JobState, Member
from crowdgrad.domain.matching import Code, Offer
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import JobFileError
from crowdgrad.host.job import Prepared
from crowdgrad.net.identity import Identity, id_of
from crowdgrad.net.matchmaker import HostPresence, publish

logger = logging.getLogger(__name__)


class Listing:
    def __init__(self, presence: HostPresence) -> None:
        self._presence = presence
        self._told: JobState = "waiting"
        self._told_failure = False

    @property
    def code(self) -> Code | None:
        return self._presence.code

    @property
    def token(self) -> str:
        """What proves to the matchmaker that the job is ours."""
        return self._presence.token

    def place_of(self, who: VolunteerId) -> int | None:
        """The place in the roster that the matchmaker gave a volunteer, if it did."""
        members = self._presence.roster.members
        return next((member.position for member in members if member.id == who), None)

    def tell(self, state: JobState) -> None:
        """How the job stands; said once. That the matchmaker has turned us away is, too."""
        if state != self._told:
            self._told = state
            self._presence.set_state(state)
        if self._presence.failure is not None and not self._told_failure:
            self._told_failure = True
            logger.warning("the matchmaker: %s", self._presence.failure)

    async def withdraw(self, state: JobState) -> None:
        self.tell(state)
        await self._presence.close()


async def list_job(
    url: str,
    prepared: Prepared,
    *,
    address: str,
    key: Identity,
    token: str | None,
    members: Iterable[Member],
) -> Listing:
    """Publish a job at the matchmaker. `token`: of a job published before; `members`: who had a
    place in it. Raises JobFileError, Unreachable, TurnedAway or TargetError."""
    job = prepared.job
    try:
        offer = Offer(
            id=job.id,
            title=job.title,
            cause=job.cause,
            address=address,
            key=key.id,
            minimum=prepared.minimum,
            maximum=prepared.maximum,
            hyperparameters=job.hyperparameters,
        )
    except ValueError as error:
        raise JobFileError(f"The job cannot be published: {error}.") from None
    own = Member(position=0, id=id_of(key.public + b"worker 0"), name="the host's own worker")
    presence = await publish(
        url, offer, worker=own, token=token, members=members, random01=random.random
    )
    return Listing(presence)
