"""What is known of the work from what the agent says: events in, one status out.

It reads no clock and asks nobody: whoever hands it an event says when that was.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from crowdgrad.domain.manners import Effort, Limits, Readings
from crowdgrad.volunteer.events import Event, Phase
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.remote.status import (
    DataHere,
    JobDone,
    JobSeen,
    Line,
    Question,
    State,
    Totals,
    WorkStatus,
)

MAX_LINES = 200
MAX_JOBS = 200
SPEED_OVER_S = 30.0
ALL = -1
"""In place of a shard's number: all the data there is to fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a status holds besides what was said."""

    name: str
    key: str
    effort: Effort
    readings: Readings
    limits: Limits
    question: Question | None = None
    totals: Totals


class Board:
    def __init__(self, since: float) -> None:
        """`since`: when the work began, in seconds since 1970; so are all times here."""
        self._since = since
        self._phase: Phase = "starting"
        self._doing = "Starting."
        self._trouble = ""
        self._job: JobSeen | None = None
        self._data: dict[int, tuple[int, int]] = {}
        """By shard: chunks that are here, and of how many."""
        self._log: deque[Line] = deque(maxlen=MAX_LINES)
        self._jobs: deque[JobDone] = deque(maxlen=MAX_JOBS)
        self._over = False
        self._before = _Counts()
        """Of the jobs that have ended."""
        self._now = _Counts()
        """Of the job at hand, as the agent counts them."""
        self._loss: float | None = None
        self._compute_s = 0.0
        self._steps: deque[tuple[float, int]] = deque()
        """When how many samples had been used."""

    def take(self, event: Event, now: float) -> None:
        if event.kind == "unit":
            self._unit(event, now)
        elif event.kind == "progress":
            self._fetched(event)
        else:
            self._said(event, now)

    def _fetched(self, event: Event) -> None:
        """Chunks of one shard; or of all that is wanted, where others pass them on."""
        shard = int(event.data.get("shard", ALL))
        if shard == ALL:
            self._data.clear()
        elif ALL in self._data:
            return  # counted there
        self._data[shard] = (int(event.data["done"]), int(event.data["total"]))

    def ended(self, outcome: Outcome, now: float) -> None:
        """The job at hand is over, or we have left it."""
        done = JobDone(
            title=outcome.title,
            host=outcome.host,
            code=outcome.code,
            samples=outcome.samples,
            credit=outcome.credit,
            share=outcome.share,
            reason=outcome.reason,
            left=outcome.left,
            ended_at=now,
        )
        self._jobs.append(done)
        self._log.append(Line(at=now, kind="job", text=_parting(done)))
        self.left(now)

    def left(self, now: float) -> None:
        """There is no job at hand any more."""
        self._before, self._now = self._before + self._now, _Counts()
        self._job, self._phase = None, "looking"
        self._data.clear()

    def end(self, why: str) -> None:
        """Nothing more will happen."""
        self._over, self._doing = True, why

    def status(self, now: float, around: Around) -> WorkStatus:
        counts, state = self._before + self._now, self._state(around)
        return WorkStatus(
            name=around.name,
            key=around.key,
            state=state,
            doing=around.effort.reason if state == "paused" else self._doing,
            effort=around.effort,
            readings=around.readings,
            limits=around.limits,
            job=self._job,
            question=around.question,
            samples=counts.samples,
            accepted=counts.accepted,
            refused=counts.refused,
            loss=self._loss,
            compute_s=self._compute_s,
            samples_per_s=self._speed(now),
            since=self._since,
            log=tuple(self._log),
            jobs=tuple(self._jobs),
            totals=around.totals,
            trouble=self._trouble,
            data=self._chunks(),
        )

    def _state(self, around: Around) -> State:
        if self._over:
            return "over"
        if around.question is not None:
            return "asking"
        return "paused" if around.effort.share == 0 else self._phase

    def _said(self, event: Event, now: float) -> None:
        self._log.append(Line(at=now, kind=event.kind, text=event.text))
        if event.kind == "trouble":
            self._trouble = event.text
        elif event.kind == "state":
            self._doing = event.text
        if event.phase is not None:
            self._phase = event.phase
            self._trouble = "" if event.phase == "working" else self._trouble
        if "position" in event.data:
            self._joined(event)
        elif self._job is not None:
            self._job = _learned(self._job, event)

    def _joined(self, event: Event) -> None:
        words = {name: str(event.data.get(name, "")) for name in
                 ("title", "cause", "host", "host_name", "address", "why")}  # fmt: skip
        known, id_ = self._job, str(event.data.get("job", ""))
        same = known is not None and known.id == id_ and known.host == words["host"]
        self._job = JobSeen(
            id=id_,
            position=int(event.data["position"]),
            engine=known.engine if known is not None and same else "",
            memory_bytes=known.memory_bytes if known is not None and same else 0,
            data_bytes=known.data_bytes if known is not None and same else 0,
            share=known.share if known is not None and same else None,
            **words,
        )

    def _unit(self, event: Event, now: float) -> None:
        if self._job is None:
            return  # it is told of a moment later, and the job is counted already
        data = event.data
        self._now = _Counts(
            samples=int(data.get("samples", 0)),
            accepted=int(data.get("accepted", 0)),
            refused=int(data.get("refused", 0)),
        )
        loss = float(data.get("loss", math.nan))
        self._loss = loss if math.isfinite(loss) else None
        self._compute_s += float(data.get("seconds", 0.0))
        if "share" in data:
            self._job = replace(self._job, share=float(data["share"]))
        self._phase, self._trouble = "working", ""
        self._steps.append((now, (self._before + self._now).samples))
        while self._steps[-1][0] - self._steps[0][0] > SPEED_OVER_S:
            self._steps.popleft()

    def _speed(self, now: float) -> float:
        """Samples a second between the first and the last step seen lately."""
        steps = [step for step in self._steps if now - step[0] <= SPEED_OVER_S]
        if len(steps) < 2 or now <= steps[0][0]:
            return 0.0
        return (steps[-1][1] - steps[0][1]) / (now - steps[0][0])

    def _chunks(self) -> DataHere | None:
        if not self._data:
            return None
        return DataHere(
            done=sum(done for done, _ in self._data.values()),
            total=sum(total for _, total in self._data.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    samples: int = 0
    accepted: int = 0
    refused: int = 0

    def __add__(self, other: _Counts) -> _Counts:
        return _Counts(
            samples=self.samples + other.samples,
            accepted=self.accepted + other.accepted,
            refused=self.refused + other.refused,
        )


def _learned(job: JobSeen, event: Event) -> JobSeen:
    """Of the job at hand: what it takes here, what computes it."""
    data = event.data
    return replace(
        job,
        engine=str(data.get("engine", job.engine)),
        memory_bytes=int(data.get("memory_bytes", job.memory_bytes)),
        data_bytes=int(data.get("data_bytes", job.data_bytes)),
    )


def _parting(done: JobDone) -> str:
    part = f", {100 * done.share:.1f} % of all" if done.share is not None else ""
    return f"“{done.title}” ended: {done.reason}. You gave {done.samples:,} samples{part}."
