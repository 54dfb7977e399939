"""One job after the other, as the matchmaker finds them.

A job that this machine will not do, or that went wrong here, is not gone to again. One whose host
could not be reached, or stayed away, is left to others for a while only: the host may come back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import MAX_AVOIDED, Wants
from crowdgrad.errors import (
    ChildDied,
    CrowdgradError,
    DataError,
    NotAgreed,
    PeerError,
    ProgramError,
    RefusedHere,
    SettingError,
    Unreachable,
)
from crowdgrad.net.matchmaker import Match, VolunteerPresence
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.outcome import Outcome

UNWANTED = (NotAgreed, RefusedHere, ChildDied, ProgramError)
"""Of jobs that this machine will not do, or that went wrong here: it does not go there again."""
OF_ONE_JOB = (PeerError, Unreachable, DataError, *UNWANTED)
"""Troubles that another job need not have."""
AGAIN_S = 30.0
"""How long a job just left is avoided, where nothing speaks against it but that it did not work."""

Pay = Callable[[Match], Awaitable[Outcome]]


def ended(outcome: Outcome) -> str:
    return f"It ended: {outcome.reason}. Looking for another."


async def one_after_another(
    match: Match,
    pay: Pay,
    watch: Watch,
    *,
    may_go_on: Callable[[CrowdgradError | Outcome], bool],
    parting: Callable[[Outcome], str] = ended,
    unwelcome: Callable[[], bool] = lambda: False,
    wants: Wants | None = None,
    again_s: float = AGAIN_S,
) -> None:
    """Work for one job after the other; closes the presence at the end.

    `pay` visits a host. `may_go_on`: after this error, which is raised otherwise, or this outcome.
    `parting`: what to say between two jobs. `unwelcome`: whether the job just left is not to be
    gone to again.
    `wants`: the next is to be this one; None: any other that we would work for.
    """
    unwanted: deque[JobId] = deque(maxlen=MAX_AVOIDED - 1)
    try:
        while True:
            watch(Event(kind="state", text=f"Matched with “{match.listing.offer.title}”."))
            try:
                outcome = await pay(match)
            except (*OF_ONE_JOB, SettingError) as error:
                if not may_go_on(error):
                    raise
                watch(Event(kind="trouble", text=f"{error} Looking for another job."))
                if isinstance(error, UNWANTED):
                    unwanted.append(match.listing.id)
            else:
                if not may_go_on(outcome):
                    return
                watch(Event(kind="state", text=parting(outcome), phase="looking"))
                if unwelcome():
                    unwanted.append(match.listing.id)
            if wants is not None:
                match = await match.presence.next_job(wants=wants)
            else:
                match = await _next(match.presence, match.listing.id, unwanted, again_s)
    finally:
        await match.presence.close()


async def _next(
    presence: VolunteerPresence, left: JobId, unwanted: Collection[JobId], again_s: float
) -> Match:
    avoid = {*unwanted, left} if unwanted else None  # None: the one just left
    if left in unwanted:
        return await presence.next_job(avoid=avoid)
    try:
        async with asyncio.timeout(again_s):
            return await presence.next_job(avoid=avoid)
    except TimeoutError:  # there is no other, and its host may be back
        return await presence.next_job(avoid=set(unwanted))
