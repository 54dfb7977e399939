"""The desk: what this machine's owner sees of the work, and wishes of it.

A terminal, the control panel and scripts use the same one. A wish is for a state, so saying it
twice changes nothing, and what cannot be is answered with the reason instead of an error:

    pause    compute nothing, for so long or until resumed; the connection is kept
    resume   work again
    limits   how hard to work, from now on
    answer   whether to help the host that asks
    next     leave this job politely and look for another
    stop     leave it and end
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from crowdgrad.domain.manners import Effort, Limits, Readings
from crowdgrad.errors import one_line
from crowdgrad.volunteer import consent
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.remote.board import Around, Board
from crowdgrad.volunteer.remote.status import Question, State, Totals, WorkStatus

PATIENCE_S = 600.0
"""How long a question waits: meanwhile a place in the job is taken."""
FRESH_S = 0.1
"""Whoever asks within so long gets the same status."""
ANOTHER = "you asked for another job"
Reply = Literal["once", "always", "no"]
REPLIES: dict[Reply, consent.Answer] = {"once": "yes", "always": "always", "no": "no"}


class Governs(Protocol):
    """As `crowdgrad/volunteer/governor.py` has it: how hard this machine works, and why."""

    @property
    def limits(self) -> Limits: ...
    @property
    def readings(self) -> Readings: ...
    @property
    def effort(self) -> Effort: ...
    def set_limits(self, limits: Limits) -> None: ...
    def pause(self, seconds: float | None) -> None: ...
    def resume(self) -> None: ...
    def subscribe(self, hear: Callable[[Effort], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a wish."""

    state: State
    changed: bool
    """Whether the wish changed anything."""
    holds: bool
    """Whether it is now as wished."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the desk has to do with."""

    name: str
    key: str
    """Our own fingerprint."""
    governor: Governs
    totals: Callable[[], Totals]
    leave: Callable[[], None]
    """Leave the job at hand and look for another."""
    stop: Callable[[], None]
    one_job: bool = False
    """A job was named, or only one is wanted: there is no other."""


class Desk:
    def __init__(self, work: Work, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970."""
        self._work = work
        self._clock = clock
        self._board = Board(clock())
        self._numbers = itertools.count(1)
        self._question: Question | None = None
        self._reply: asyncio.Future[consent.Answer] | None = None
        self._over = False
        self._latest: tuple[float, WorkStatus] | None = None
        self._hear: list[Callable[[], None]] = []
        work.governor.subscribe(lambda effort: self._news())

    # -- what is seen ---------------------------------------------------------------------------

    def status(self) -> WorkStatus:
        """The work as it is now; the same one for all who ask at about the same time."""
        now = self._clock()
        if self._latest is None or not 0 <= now - self._latest[0] < FRESH_S:
            self._latest = now, self._take(now)
        return self._latest[1]

    def _take(self, now: float) -> WorkStatus:
        work = self._work
        around = Around(
            name=work.name,
            key=work.key,
            effort=work.governor.effort,
            readings=work.governor.readings,
            limits=work.governor.limits,
            question=self._question,
            totals=work.totals(),
        )
        return self._board.status(now, around)

    def hear(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the status is another for a reason that is not an event."""
        self._hear.append(changed)

    def _news(self) -> None:
        self._latest = None
        for hear in self._hear:
            hear()

    def watch(self, inner: Watch) -> Watch:
        """`inner`, and what it hears is seen here."""

        def watch(event: Event) -> None:
            self._board.take(event, self._clock())
            self._latest = None
            inner(event)

        return watch

    def ended(self, outcome: Outcome | None) -> None:
        """A visit is over; None: it was broken off."""
        if outcome is None:
            self._board.left(self._clock())
        else:
            self._board.ended(outcome, self._clock())
        self._news()

    def close(self, why: str) -> None:
        """Nothing more will happen; whoever asks hears so."""
        self._over = True
        self._board.end(why)
        self._news()

    # -- the question ---------------------------------------------------------------------------

    def asking(self, other: consent.Ask | None) -> consent.Ask:
        """The question put on the desk, and to `other` (a terminal): the first answer counts."""

        async def ask(request: consent.Request) -> consent.Answer:
            reply: asyncio.Future[consent.Answer] = asyncio.get_running_loop().create_future()
            self._reply, self._question = reply, _question(str(next(self._numbers)), request)
            self._news()
            elsewhere = asyncio.ensure_future(other(request)) if other is not None else None
            waiting = [reply] if elsewhere is None else [reply, elsewhere]
            try:
                done, _ = await asyncio.wait(
                    waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
                )
                return next(iter(done)).result() if done else "no"
            finally:
                self._reply = self._question = None
                self._news()
                reply.cancel()
                if elsewhere is not None:
                    elsewhere.cancel()
                    await asyncio.gather(elsewhere, return_exceptions=True)

        return ask

    def answer(self, question: str, reply: Reply) -> Answer:
        asked, waiting = self._question, self._reply
        if asked is None or waiting is None or waiting.done():
            return self._said(changed=False, holds=False, reason="nothing is asked just now")
        if question != asked.id:
            return self._said(
                changed=False, holds=False, reason=f"question {question} is not asked any more"
            )
        if reply == "always" and not asked.host:
            reply = "once"  # it has proven no key: nothing can be remembered of it
        waiting.set_result(REPLIES[reply])
        self._question = self._latest = None
        return self._said(changed=True, reason=_spoken(reply))

    # -- wishes ---------------------------------------------------------------------------------

    def pause(self, seconds: float | None) -> Answer:
        """Raises ValueError for a time that makes no sense."""
        if seconds is not None and not 0 < seconds < 1e9:
            raise ValueError(f"a pause of {seconds} s")
        if self._over:
            return self._too_late()
        self._work.governor.pause(seconds)
        return self._changed()

    def resume(self) -> Answer:
        if self._over:
            return self._too_late()
        before = self._work.governor.effort
        self._work.governor.resume()
        effort = self._work.governor.effort
        self._latest = None
        return self._said(changed=effort != before, holds=effort.share > 0, reason=effort.reason)

    def limit(self, limits: Limits) -> Answer:
        if self._over:
            return self._too_late()
        before = self._work.governor.limits
        self._work.governor.set_limits(limits)
        return replace(self._changed(), changed=limits != before)

    def next(self) -> Answer:
        if self._over:
            return self._too_late()
        if self._work.one_job:
            reason = "only this job is wanted here: stop ends the work"
            return self._said(changed=False, holds=False, reason=reason)
        job = self.status().job
        if job is None:
            return self._said(changed=False, reason="another job is being looked for already")
        self._work.leave()
        return self._said(
            changed=True, reason=f"“{one_line(job.title)}” is left; another is sought"
        )

    def stop(self) -> Answer:
        if self._over:
            return self._said(changed=False, reason="it is over already")
        self._work.stop()
        return self._said(changed=True, reason="the host is told, and it ends")

    def _changed(self) -> Answer:
        self._latest = None
        return self._said(changed=True, reason=self._work.governor.effort.reason)

    def _too_late(self) -> Answer:
        return self._said(changed=False, holds=False, reason="it is over")

    def _said(self, *, changed: bool, reason: str, holds: bool = True) -> Answer:
        return Answer(state=self.status().state, changed=changed, holds=holds, reason=reason)


def _question(number: str, request: consent.Request) -> Question:
    lines: list[str] = []
    for label, text in consent.particulars(request):
        lines.append(f"{label}: {text}" if label else text)
    return Question(
        id=number,
        title=one_line(request.title),
        cause=one_line(request.cause),
        host=request.host,
        host_name=one_line(request.host_name),
        lines=tuple(lines),
    )


def _spoken(reply: Reply) -> str:
    return {
        "once": "this job of the host is helped",
        "always": "this host is helped from now on",
        "no": "this host is not helped",
    }[reply]
