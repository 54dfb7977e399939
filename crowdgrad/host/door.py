"""Who may come in: whoever dials the host, or only those whom its matchmaker sends.

A job that is published lets in those the matchmaker introduces (`net.introduction`), so that its
word on who helps whom (how many, of which group, with which machine) is not passed by whoever has
learned the address. Volunteers that this job has let in before need no introduction: they come back
while the matchmaker is away. Nor do those the host has started itself.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import SettingError, TurnedAway
from crowdgrad.net import introduction as introductions

Admit = Literal["anyone", "introduced"]
Admits = Callable[[VolunteerId, str], None]
"""Raises TurnedAway where somebody, with this introduction, may not come in."""


def anyone(who: VolunteerId, introduction: str) -> None:
    """Whoever comes may help."""


def chosen(admit: Admit | None, matchmaker: str | None) -> Admit:
    """What was asked for; otherwise a published job takes those introduced to it.

    Raises SettingError where nobody could introduce anyone.
    """
    if admit == "introduced" and matchmaker is None:
        raise SettingError(
            "Only introduced volunteers are to be let in, but no matchmaker introduces any.",
            advice="Give --matchmaker URL, or --admit anyone.",
        )
    return admit or ("anyone" if matchmaker is None else "introduced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Lets in those introduced by the matchmaker: an `Admits`."""

    job: JobId
    host: str
    """Fingerprint of the host's key."""
    known: Container[VolunteerId]
    """Whom this job has let in before."""
    ours: Container[VolunteerId] = ()
    """Whom the host has started itself."""
    matchmaker: Callable[[], bytes]
    """Its public key as of now; empty: not known yet."""
    wall: Callable[[], float]
    """Seconds since 1970."""

    def __call__(self, who: VolunteerId, introduction: str) -> None:
        if who in self.ours or who in self.known:
            return
        public = self.matchmaker()
        if not public:
            raise TurnedAway(
                "This host takes volunteers that its matchmaker introduces, and has not reached "
                "it yet.",
                advice="Try again in a moment.",
            )
        introductions.check(
            introduction,
            public=public,
            job=self.job,
            host=self.host,
            volunteer=who,
            now=self.wall(),
        )
