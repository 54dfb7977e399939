"""A host's appeal for help: what people are told of a job besides its title, and who may come.

It goes to the matchmaker as part of an `Offer`, whose checks are the only ones: an appeal is tried
out in one as soon as it is made, long before there is anything to publish.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import get_args

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Offer, Requirements, Visibility
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import JobFileError
from crowdgrad.host.door import Admit

NO_REQUIREMENTS = Requirements()
KEY = re.compile(r"[0-9a-f]{16}")
BARE = Offer(
    id=JobId("job"),
    title="job",
    cause="",
    address="host:1",
    key="",
    minimum=0,
    maximum=1,
    hyperparameters={},
)
"""What an appeal is tried out in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appeal:
    description: str = ""
    contact: str = ""
    """Where people reach whoever hosts, as it is to be shown."""
    visibility: Visibility = "public"
    invited: tuple[VolunteerId, ...] = ()
    """Who may help, where only a group may."""
    requirements: Requirements = NO_REQUIREMENTS
    admit: Admit | None = None
    """Whom the host lets in; None: whoever comes, and of a published job those introduced to it."""

    def check(self) -> None:
        """Raises JobFileError."""
        if self.visibility not in get_args(Visibility):
            raise JobFileError(
                f"visibility is {self.visibility!r}.", advice="Write public, link or group."
            )
        if self.admit not in (None, *get_args(Admit)):
            raise JobFileError(f"admit is {self.admit!r}.", advice="Write anyone or introduced.")
        for who in self.invited:
            if not KEY.fullmatch(who):
                raise JobFileError(
                    f"invited names {who[:70]!r}.",
                    advice="Write the ids of volunteers, 16 hexadecimal digits each.",
                )
        if self.visibility == "group" and not self.invited:
            raise JobFileError(
                "The job is for a group, but nobody is invited.",
                advice="List the ids of those who may help under invited.",
            )
        self.put_into(BARE)

    def put_into(self, offer: Offer, data_mb: int = 0) -> Offer:
        """The offer with this appeal. `data_mb`: what a volunteer has to fetch.

        Raises JobFileError.
        """
        try:
            return replace(
                offer,
                description=self.description,
                contact=self.contact,
                visibility=self.visibility,
                invited=frozenset(self.invited),
                requirements=replace(self.requirements, data_mb=data_mb),
            )
        except ValueError as error:
            raise JobFileError(
                f"The job cannot be published: {error}.", advice="Mend that value."
            ) from None


NO_APPEAL = Appeal()
