"""A job as anybody may see it: what it is for, how it goes, who helps, how to join.

This is what the public page shows. Members are told by the names they chose, never by their keys;
where the host is reached is told only where it lets in anyone.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import segno

from crowdgrad.domain.job import JobState
from crowdgrad.domain.program import Better
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.folder import started_at
from crowdgrad.host.telling.history import thinned
from crowdgrad.host.telling.status import Status, point, score, spell

CURVE_POINTS = 200
LEAST_PROGRESS = 0.005
"""Before that nobody can say how long the rest takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How somebody joins."""

    title: str
    cause: str
    description: str
    contact: str
    host: str
    """Fingerprint of the host's key."""
    code: str | None
    """At the matchmaker."""
    local_code: str
    link: str
    routes: tuple[str, ...]
    """Empty unless anyone is admitted."""
    matchmaker: str | None
    page: str = ""
    """Where others find this page; empty: it was not opened to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper:
    name: str
    samples: int
    share: float
    """Of all accepted samples, 0 to 1."""
    connected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    at_s: float
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    title: str
    cause: str
    description: str
    contact: str
    host: str
    """Fingerprint of the host's key."""
    code: str | None
    local_code: str
    link: str
    routes: tuple[str, ...]
    """Ways to the host; empty unless it lets in anyone."""
    matchmaker: str | None
    page: str
    """Where others find this page; empty: it was not opened to them."""
    state: JobState
    phase: str
    paused: bool
    reason: str
    progress: float
    epochs_done: float
    epochs: int
    metric: str | None
    watched: str
    """The first metric, or `loss`."""
    better: Better
    """Which way it improves."""
    best: str
    """The best of what is watched, for people; `–` if there is none."""
    members: list[Helper]
    """Who came to help: the host's own worker is none of them."""
    here: int
    took_part: int
    samples: int
    samples_per_s: float
    eta_s: float | None
    """How long it takes from here, if it goes on as it did; None where nobody can say."""
    started_at: float
    """Seconds since 1970; 0 where its id does not say."""
    curve: list[CurvePoint]
    """What is watched, over the seconds of training."""


def job_page(entry: Entry, status: Status, evaluations: Sequence[Scores]) -> JobPage:
    own = next((member for member in status.members if member.position == 0), None)
    seen = [found for scores in evaluations if (found := point(scores)) is not None]
    return JobPage(
        title=entry.title,
        cause=entry.cause,
        description=entry.description,
        contact=entry.contact,
        host=entry.host,
        code=entry.code,
        local_code=entry.local_code,
        link=entry.link,
        routes=entry.routes,
        matchmaker=entry.matchmaker,
        page=entry.page,
        state=status.state,
        phase=status.phase,
        paused=status.paused,
        reason=status.reason,
        progress=status.progress,
        epochs_done=status.epochs_done,
        epochs=status.epochs,
        metric=status.metric,
        watched=status.watched,
        better=status.better,
        best=spell(status, status.best),
        members=[
            Helper(name=m.name, samples=m.samples, share=m.share, connected=m.connected)
            for m in status.members
            if m.position != 0
        ],
        here=status.here - (own is not None and own.connected),
        took_part=status.took_part - (own is not None),
        samples=status.samples,
        samples_per_s=status.samples_per_s,
        eta_s=eta_s(status),
        started_at=started_at(status.job) or 0.0,
        curve=[CurvePoint(at_s=p.at_s, value=score(p)) for p in thinned(seen, CURVE_POINTS)],
    )


def eta_s(status: Status) -> float | None:
    """By how long it took so far; None while it is paused, too young, or over."""
    if status.phase != "training" or status.paused or status.progress < LEAST_PROGRESS:
        return None
    return status.elapsed_s * (1 - status.progress) / status.progress


def job_page_as_json(page: JobPage) -> str:
    """Numbers that are not finite become null."""
    return msgspec.json.encode(page).decode()


@functools.lru_cache(maxsize=4)
def qr_svg(link: str) -> str:
    """A picture of a link for a phone's camera, dark on white: many cameras read nothing else.

    It takes the loop that trains 10 ms, and anybody may ask for it: so it is kept.
    """
    file = io.BytesIO()
    segno.make_qr(link, error="m").save(
        file, kind="svg", xmldecl=False, nl=False, omitsize=True, dark="#000", light="#fff",
        border=3, title="QR code of the job's link",
    )  # fmt: skip
    return file.getvalue().decode()
