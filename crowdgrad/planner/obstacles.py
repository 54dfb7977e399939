"""What stands between a volunteer and a job, and how a person is told.

`obstacle` finds the first thing that keeps the two apart; the rows below it say so, of one job or
of several. A job counts as full only for those who could work for it, so that nobody hopes for a
seat that would not suit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Final, Protocol

from crowdgrad.domain.matching import Kind, Offer, Requirements, VolunteerRecord

MAX_REASON: Final = 300
MOST_NAMED: Final = 3
"""Of obstacles, causes or engines in one sentence."""


def tidy(cause: str) -> str:
    return cause.strip().casefold()


@lru_cache(maxsize=1024)
def liked(causes: tuple[str, ...]) -> Mapping[str, int]:
    """The causes a volunteer named, tidied, and the rank of each, 0 for the most liked."""
    ranks: dict[str, int] = {}
    for cause in filter(None, map(tidy, causes)):
        ranks.setdefault(cause, len(ranks))
    return ranks


def obstacle(offer: Offer, volunteer: VolunteerRecord) -> Obstacle | None:
    """The first thing in the way besides the clock and a lack of room; None: they suit."""
    wants, machine, about = volunteer.wants, volunteer.machine, volunteer.volunteer
    needs = offer.requirements
    if wants.hosts is not None and offer.key not in wants.hosts:
        return HOST
    if wants.only_causes and tidy(offer.cause) not in liked(wants.causes):
        return CAUSE
    if offer.id in volunteer.avoid:
        return LEFT
    if needs.kinds and machine.kind not in needs.kinds:
        return KIND
    if needs.engines and about.engine not in needs.engines:
        return ENGINE
    if (needs.gpu or needs.gpu_memory_mb > 0) and not machine.gpu:
        return GPU
    if machine.gpu_memory_mb < needs.gpu_memory_mb:
        return GPU_MEMORY
    if about.cores < needs.cores:
        return CORES
    if about.memory_mb < needs.memory_mb:
        return MEMORY
    if machine.gflops < needs.gflops:
        return SPEED
    if machine.download_mbps < needs.download_mbps:
        return DOWNLOAD
    if 0 < machine.most_download_mb < needs.data_mb:
        return DATA
    return None


class Obstacle(Protocol):
    """How it is said."""

    def one(self, job: str, offer: Offer, volunteer: VolunteerRecord) -> str:
        """A clause about one job, which it calls `job`: "job “mnist”", "1 job" or "1"."""
        ...

    def many(self, jobs: str, volunteer: VolunteerRecord) -> str:
        """A clause about several, which it calls `jobs`: "3 jobs" or "3"."""
        ...

    def mentions(self, volunteer: VolunteerRecord) -> Hashable:
        """What of the volunteer the clauses depend on."""
        ...


class Amount:
    """A job needs so much of something; a volunteer that says 0 does not know what it has."""

    def __init__(self, need: str, have: str, measure: str, thing: str) -> None:
        """`need` and `have`: where it is written; what it is called after a number, and alone."""
        self.need: Callable[[Requirements], float] = attrgetter(need)
        self.mentions: Callable[[VolunteerRecord], float] = attrgetter(have)
        self.have = have
        self._measure = measure
        self._thing = thing

    def one(self, job: str, offer: Offer, volunteer: VolunteerRecord) -> str:
        needed = f"{job} needs {_number(self.need(offer.requirements))} {self._measure}"
        have = self.mentions(volunteer)
        return f"{needed} and this machine {f'has {_number(have)}' if have else _SILENT}"

    def many(self, jobs: str, volunteer: VolunteerRecord) -> str:
        if have := self.mentions(volunteer):
            return f"{jobs} need more than this machine's {_number(have)} {self._measure}"
        return f"{jobs} ask for {self._thing} and this machine {_SILENT}"


_SILENT = "does not say what it has"


@dataclass(frozen=True, slots=True, eq=False)
class Other:
    """An obstacle in words of its own."""

    one: Callable[[str, Offer, VolunteerRecord], str]
    many: Callable[[str, VolunteerRecord], str]
    mentions: Callable[[VolunteerRecord], Hashable] = lambda volunteer: None


HOST = Other(
    lambda job, offer, v: f"{job} is not of a host you named or trust",
    lambda jobs, v: f"{jobs} are not of a host you named or trust",
)
CAUSE = Other(
    lambda job, offer, v: f"{job} is not for {_a_cause(v)}",
    lambda jobs, v: f"{jobs} are not for {_a_cause(v)}",
    attrgetter("wants.causes"),
)
LEFT = Other(
    lambda job, offer, v: f"you left or will not do {job}",
    lambda jobs, v: f"you left or will not do {jobs}",
)
KIND = Other(
    lambda job, offer, v: f"{job} takes no {_KINDS[v.machine.kind]}",
    lambda jobs, v: f"{jobs} take no {_KINDS[v.machine.kind]}",
    attrgetter("machine.kind"),
)
_KINDS: dict[Kind, str] = {"browser": "browsers", "native": "volunteers outside a browser"}
ENGINE = Other(
    lambda job, offer, v: (
        f"{job} needs the engine {_several(sorted(offer.requirements.engines), ' or ')}"
        f" and this machine has {v.volunteer.engine or 'none'}"
    ),
    lambda jobs, v: (
        f"{jobs} need another engine and this machine has {v.volunteer.engine or 'none'}"
    ),
    attrgetter("volunteer.engine"),
)
GPU = Other(
    lambda job, offer, v: f"{job} needs a GPU and this machine has none",
    lambda jobs, v: f"{jobs} need a GPU and this machine has none",
)
GPU_MEMORY = Amount("gpu_memory_mb", "machine.gpu_memory_mb", "MB of GPU memory", "GPU memory")
CORES = Amount("cores", "volunteer.cores", "cores", "cores")
MEMORY = Amount("memory_mb", "volunteer.memory_mb", "MB of memory", "memory")
SPEED = Amount("gflops", "machine.gflops", "GFLOPS", "speed")
DOWNLOAD = Amount("download_mbps", "machine.download_mbps", "Mbit/s of download", "a fast download")
AMOUNTS = (GPU_MEMORY, CORES, MEMORY, SPEED, DOWNLOAD)
DATA = Other(
    lambda job, offer, v: (
        f"{job} has {_number(offer.requirements.data_mb)} MB to fetch"
        f" and you allow {_number(v.machine.most_download_mb)}"
    ),
    lambda jobs, v: (
        f"{jobs} have more to fetch than the {_number(v.machine.most_download_mb)} MB you allow"
    ),
    attrgetter("machine.most_download_mb"),
)
FULL = Other(lambda job, offer, v: f"{job} is full", lambda jobs, v: f"{jobs} are full")

Found = dict[Obstacle, tuple[int, Offer]]
"""How many jobs each obstacle keeps somebody from, and the first of them."""


def add(found: Found, row: Obstacle, offer: Offer) -> None:
    count, first = found.get(row, (0, offer))
    found[row] = (count + 1, first)


def why_nothing(silent: int, volunteer: VolunteerRecord) -> str:
    """One sentence for somebody who knows of no job whose host answers; of `silent` none does."""
    of_hosts = volunteer.wants.hosts is not None
    if silent == 0:
        return waiting(
            "the hosts you named or trust have no open job" if of_hosts else "no job is open"
        )
    if silent == 1:
        return waiting("the host of 1 open job does not answer")
    return waiting(f"the hosts of {silent:,} open jobs do not answer")


def why_waiting(found: Found, volunteer: VolunteerRecord) -> str:
    """One sentence about all the open jobs that somebody may know of, of the hosts it named."""
    of_hosts = "" if volunteer.wants.hosts is None else " of the hosts you named or trust"
    total = sum(count for count, _ in found.values())
    if LEFT in found and found.keys() <= {LEFT, FULL}:
        left = f"{found[LEFT][0]:,} that you left or will not do"
        return waiting(f"no job{of_hosts} has room besides {left}")
    if total > 1 and found.keys() == {FULL}:
        return waiting(f"all {total:,} open jobs{of_hosts} are full")
    if total > 1 and found.keys() == {CAUSE}:
        return waiting(f"none of the {total:,} open jobs{of_hosts} is for {_a_cause(volunteer)}")
    if total == 1:
        ((row, (_, offer)),) = found.items()
        return waiting(row.one(f"job {title_of(offer)}", offer, volunteer))
    clauses: list[str] = []
    for row in sorted(found, key=lambda row: -found[row][0])[:MOST_NAMED]:
        count, offer = found[row]
        noun = "" if clauses else f" {'job' if count == 1 else 'jobs'}{of_hosts}"
        jobs = f"{count:,}{noun}"
        clauses.append(row.one(jobs, offer, volunteer) if count == 1 else row.many(jobs, volunteer))
    return waiting(", ".join(clauses))


def waiting(why: str) -> str:
    return clip(f"waiting: {why}", MAX_REASON)


def title_of(offer: Offer) -> str:
    return f"“{clip(offer.title, 60)}”"


def clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _a_cause(volunteer: VolunteerRecord) -> str:
    names = _several([cause.strip() for cause in volunteer.wants.causes], ", ")
    return f"a cause you named ({names or 'you named none'})"


def _several(names: list[str], between: str) -> str:
    more = " …" if len(names) > MOST_NAMED else ""
    return between.join(clip(name, 30) for name in names[:MOST_NAMED]) + more


def _number(value: float) -> str:
    return f"{round(value, 2):,}".removesuffix(".0")
