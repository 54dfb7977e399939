"""What has to be settled before a stranger's job computes here: refusals, walls, consent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from crowdgrad.domain.job import Job
from crowdgrad.errors import (
    ChildDied,
    ConnectionLost,
    MachineError,
    NotAgreed,
    NotDialled,
    NotPutThrough,
    RefusedHere,
    Unreachable,
    UserError,
    WallsMissing,
    one_line,
)
from crowdgrad.net.messages import MAX_WORDS
from crowdgrad.volunteer.consent import Consent, Request, always
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.hosts import Refusals
from crowdgrad.volunteer.trainer_link import MAX_DEATHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gatekeeper:
    watch: Watch
    consent: Consent = always
    refusals: Refusals | None = None
    """Jobs this machine has had enough of; a host's own worker has none."""
    all_walls: bool = False
    """Do not work where any of them is missing."""
    clock: Callable[[], float] = time.time

    def let_pass(self, job: Job) -> None:
        """Raises RefusedHere for a job that went wrong here before."""
        reason = self.refusals.reason(job.program) if self.refusals is not None else None
        if reason is not None:
            raise RefusedHere(
                f"This machine refuses “{job.title}”: {reason}.",
                advice=_forgive(job),
            )

    async def ask(self, request: Request) -> None:
        """Raises WallsMissing, NotAgreed."""
        if self.all_walls and request.walls:
            raise WallsMissing(
                f"This system cannot keep a trainer from everything: {'; '.join(request.walls)}.",
                advice='`crowdgrad doctor` says more; the setting walls = "best" does without.',
            )
        agreed, reason = await self.consent(request)
        said = "Agreed" if agreed else "Not agreed"
        host = f"host {request.host}" if request.host else "a host that has proven no key"
        self.watch(
            Event(
                kind="note",
                text=f"{said} to help “{request.title}” of {host}: {reason}.",
                data={
                    "host": request.host,
                    "address": request.address,
                    "servers": ", ".join(request.servers),
                    "job": request.job,
                    "program": request.program,
                    "memory_bytes": request.memory_bytes,
                    "data_bytes": request.traffic_bytes,
                    "walls_missing": "; ".join(request.walls),
                },
            )
        )
        if not agreed:
            raise NotAgreed(
                f"Nobody here has agreed to help “{request.title}”: {reason}.",
                advice=_after_all(request),
            )

    def refuse_from_now(self, job: Job, error: ChildDied) -> None:
        """Its trainer has gone wrong as often as one may, and not for a reason of our own.

        The error's advice then says how to try again.
        """
        if self.refusals is None or error.local:
            return
        last = f"the last one {error.story}" if error.story else error.message
        reason = f"{MAX_DEATHS} of its trainers have failed here; {last}"
        self.refusals.add(job.program, job.title, reason, self.clock())
        text = f"“{job.title}” is refused on this machine from now on: {reason}."
        self.watch(Event(kind="note", text=text, data={"job": job.id, "program": job.program}))
        error.advice = f"The job is refused on this machine from now on. {_forgive(job)}"


def _forgive(job: Job) -> str:
    return f"To try again: crowdgrad hosts forgive {job.program[:12]}."


def _after_all(request: Request) -> str:
    """What somebody does who has changed their mind."""
    if not request.host:
        return "To help it all the same, say --yes."
    return f"To help this host from now on: crowdgrad hosts trust {request.host}."


def for_the_host(error: BaseException) -> str:
    """What a host hears of our trouble: nothing of this machine, its files and its owner."""
    if isinstance(error, ChildDied):
        said = f"its trainer {error.story}" if error.story else "one of its processes ended"
    elif isinstance(error, NotAgreed):
        said = "its owner has not agreed"
    elif isinstance(error, RefusedHere):
        said = "the job went wrong there before"
    elif isinstance(error, ConnectionLost | NotDialled | NotPutThrough | Unreachable):
        # Where it sent us and what we found there would tell it what else there is around here.
        said = "a connection was lost, or a server could not be reached"
    elif isinstance(error, MachineError | UserError):
        said = f"trouble on the volunteer's own machine ({error.code})"
    else:
        said = str(error)
    return one_line(said)[:MAX_WORDS]
