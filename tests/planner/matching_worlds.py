"""Openings and volunteers for the tests of the matching, and a slow, obvious matching."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from crowdgrad.domain.job import MAX_ROSTER, JobId, JobState, Volunteer
from crowdgrad.domain.matching import (
    CODE_ALPHABET,
    Code,
    Hours,
    JobListing,
    Kind,
    Machine,
    Offer,
    Presence,
    Requirements,
    VolunteerRecord,
    Wants,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.planner.matchmaking import Opening

NOON = 1_750_000_000.0 // 86400 * 86400 + 12 * 3600


def code(number: int) -> Code:
    tens, ones = divmod(number, len(CODE_ALPHABET))
    return Code(f"AAA-A{CODE_ALPHABET[tens]}{CODE_ALPHABET[ones]}")


def opening(
    number: int = 0,
    *,
    members: int = 0,
    maximum: int = 8,
    minimum: int = 0,
    state: JobState = "waiting",
    host: Presence = "alive",
    at: float | None = None,
    places: int = 0,
    help: float | None = None,
    needs: Requirements | None = None,
    **offer: Any,
) -> Opening:
    """Job number so, of a host of its own unless `key` says otherwise."""
    values: dict[str, Any] = {
        "id": JobId(f"job-{number}"), "title": f"j{number}", "cause": "", "address": "h:1",
        "key": f"host-{number}", "hyperparameters": {}, "requirements": needs or Requirements(),
    }  # fmt: skip
    listing = JobListing(
        offer=Offer(**values | offer, minimum=minimum, maximum=maximum),
        state=state,
        published_at=float(number) if at is None else at,
        code=code(number),
    )
    return Opening(
        listing=listing,
        presence=host,
        members=members,
        places=places,
        help=float(members) if help is None else help,
    )


def waiting(
    number: int = 0,
    *,
    since: float | None = None,
    avoid: Iterable[str] = (),
    cores: int = 4,
    memory_mb: int = 8000,
    engine: str = "onnxruntime",
    machine: Machine | None = None,
    **wants: Any,
) -> VolunteerRecord:
    return VolunteerRecord(
        volunteer=Volunteer(
            id=VolunteerId(f"v{number:03}"), name=f"n{number}", cores=cores, memory_mb=memory_mb,
            engine=engine, software="",
        ),
        owner="",
        since=float(number) if since is None else since,
        machine=machine or Machine(),
        wants=Wants(**wants),
        avoid=frozenset(JobId(job) for job in avoid),
    )  # fmt: skip


# The slow and obvious one


def same_job(name: str, one: Opening) -> bool:
    bare = name.upper().replace("-", "").replace(" ", "")
    return name == one.listing.id or bare == one.listing.code.replace("-", "")


def may_know(volunteer: VolunteerRecord, one: Opening) -> bool:
    offer, name = one.listing.offer, volunteer.wants.job
    if offer.visibility == "group":
        return volunteer.id in offer.invited
    return offer.visibility == "public" or (name is not None and same_job(name, one))


def normal(cause: str) -> str:
    return cause.strip().casefold()


def preference(volunteer: VolunteerRecord, one: Opening) -> int:
    """0: the cause it likes best."""
    causes = [normal(cause) for cause in volunteer.wants.causes]
    cause = normal(one.listing.offer.cause)
    return causes.index(cause) if cause and cause in causes else len(causes)


def able(volunteer: VolunteerRecord, needs: Requirements) -> bool:
    about, machine = volunteer.volunteer, volunteer.machine
    return (
        about.cores >= needs.cores
        and about.memory_mb >= needs.memory_mb
        and (machine.gpu != "" or (not needs.gpu and needs.gpu_memory_mb == 0))
        and machine.gpu_memory_mb >= needs.gpu_memory_mb
        and machine.gflops >= needs.gflops
        and machine.download_mbps >= needs.download_mbps
        and (machine.most_download_mb == 0 or machine.most_download_mb >= needs.data_mb)
        and (not needs.engines or about.engine in needs.engines)
        and (not needs.kinds or machine.kind in needs.kinds)
    )


def suits(volunteer: VolunteerRecord, one: Opening, now: float) -> bool:
    """Besides whether there is room."""
    offer, wants, hours = one.listing.offer, volunteer.wants, volunteer.machine.hours
    minute = now % 86400 / 60
    cause = normal(offer.cause)
    return (
        one.listing.state in ("waiting", "running")
        and one.presence == "alive"
        and may_know(volunteer, one)
        and (wants.job is None or same_job(wants.job, one))
        and (wants.hosts is None or offer.key in wants.hosts)
        and (not wants.only_causes or (cause and cause in map(normal, wants.causes)))
        and offer.id not in volunteer.avoid
        and able(volunteer, offer.requirements)
        and (hours is None or (minute - hours.start) % 1440 < (hours.end - hours.start) % 1440)
    )


def in_order(queue: Iterable[VolunteerRecord]) -> list[VolunteerRecord]:
    return sorted(queue, key=lambda volunteer: (volunteer.since, volunteer.id))


class Reference:
    """Openings that fill, with everything worked out anew for every volunteer."""

    def __init__(
        self, openings: Sequence[Opening], now: float, passed_over: Mapping[str, int], often: int
    ) -> None:
        self.openings = list(openings)
        self.now = now
        self.often = often
        self.passed_over = dict.fromkeys((o.listing.offer.key for o in openings), 0)
        self.passed_over |= {k: n for k, n in passed_over.items() if k in self.passed_over}
        self.members = {o.listing.id: o.members for o in openings}
        self.places = {o.listing.id: o.places for o in openings}
        self.help = dict.fromkeys(self.passed_over, 0.0)
        for one in sorted(openings, key=lambda o: (o.listing.published_at, o.listing.id)):
            self.help[one.listing.offer.key] += one.help

    def room(self, one: Opening) -> bool:
        job = one.listing.id
        return self.members[job] < one.listing.offer.maximum and self.places[job] < MAX_ROSTER

    def candidates(self, volunteer: VolunteerRecord) -> list[Opening]:
        """All that suit, have room, and that it likes as much as any of those."""
        found = [o for o in self.openings if suits(volunteer, o, self.now) and self.room(o)]
        best = min((preference(volunteer, one) for one in found), default=0)
        return [one for one in found if preference(volunteer, one) == best]

    def choose(self, volunteer: VolunteerRecord) -> Opening | None:
        candidates = self.candidates(volunteer)
        if not candidates:
            return None
        longest = max(self.passed_over[one.listing.offer.key] for one in candidates)
        if longest >= self.often:
            candidates = [
                one for one in candidates if self.passed_over[one.listing.offer.key] == longest
            ]
        lacking = [
            one
            for one in candidates
            if self.members[one.listing.id] < one.listing.offer.minimum
            or self.members[one.listing.id] == 0
        ]
        if lacking:
            return min(lacking, key=lambda o: (o.listing.published_at, o.listing.id))
        return min(
            candidates,
            key=lambda o: (self.help[o.listing.offer.key], o.listing.published_at, o.listing.id),
        )

    def seat(self, volunteer: VolunteerRecord) -> JobId | None:
        chosen = self.choose(volunteer)
        if chosen is None:
            return None
        for host in {one.listing.offer.key for one in self.candidates(volunteer)}:
            self.passed_over[host] += 1
        host, job = chosen.listing.offer.key, chosen.listing.id
        self.passed_over[host] = 0
        self.members[job] += 1
        self.places[job] += 1
        self.help[host] += volunteer.machine.gflops if volunteer.machine.gflops > 0 else 1.0
        return job


# Worlds, made by dice: hypothesis chooses the seed and how many there are of each, and makes both
# small where something fails.


@dataclass(frozen=True)
class World:
    queue: list[VolunteerRecord]
    openings: list[Opening]
    passed_over: dict[str, int]


def world(seed: int, jobs: int, people: int) -> World:
    dice = Random(seed)
    return World(
        queue=[_somebody(number, dice) for number in range(people)],
        openings=[_something(number, dice) for number in range(jobs)],
        passed_over={
            host: dice.randrange(21) for host in ("ha", "hb", "hc", "gone") if dice.random() < 0.7
        },
    )


worlds_st = st.builds(
    world, seed=st.integers(0, 2**32), jobs=st.integers(0, 7), people=st.integers(0, 14)
)


def _needs(dice: Random) -> Requirements:
    """Mostly little: where everything is asked for, nobody suits."""

    def seldom(value: Any, usual: Any) -> Any:
        return value if dice.random() < 0.2 else usual

    kinds: list[frozenset[Kind]] = [frozenset({"native"}), frozenset({"browser"})]
    return Requirements(
        cores=seldom(dice.choice([4, 16]), 1),
        memory_mb=seldom(dice.choice([8000, 16000]), 0),
        gpu=seldom(True, False),
        gpu_memory_mb=seldom(4000, 0),
        gflops=seldom(dice.choice([1.0, 2.0]), 0.0),
        download_mbps=seldom(50.0, 0.0),
        data_mb=seldom(dice.choice([100, 500]), 0),
        engines=seldom(frozenset({dice.choice(["onnxruntime", "torch"])}), frozenset()),
        kinds=seldom(dice.choice(kinds), frozenset()),
    )


def _something(number: int, dice: Random) -> Opening:
    minimum = dice.randrange(4)
    visibility = dice.choice(["public", "public", "public", "public", "link", "group"])
    invited = frozenset(dice.sample(["v000", "v001", "v002", "v003"], dice.randrange(3)))
    states: list[JobState] = ["waiting", "running", "running", "running", "finished"]
    presences: list[Presence] = ["alive", "alive", "alive", "alive", "alive", "suspect", "gone"]
    return opening(
        number,
        members=dice.randrange(5),
        minimum=minimum,
        maximum=dice.randint(max(1, minimum), 9),
        state=dice.choice(states),
        host=dice.choice(presences),
        at=dice.choice([0.0, 1.0, 2.0]),
        places=dice.choice([0, 0, 0, 0, MAX_ROSTER - 1, MAX_ROSTER]),
        help=dice.choice([0.0, 1.0, 2.0, 4.5]),
        needs=_needs(dice) if dice.random() < 0.5 else None,
        key=dice.choice(["ha", "hb", "hc"]),
        cause=dice.choice(["", "", "Medicine", " climate", "games"]),
        visibility=visibility,
        invited=invited if visibility == "group" else frozenset(),
    )


NAMES = ["job-0", "job-1", "job-3", "aaaa23", "AAA-A24", "aaa a25", "nowhere"]
HOURS = [(11, 13), (13, 15), (22, 13), (13, 11)]


def _machine(dice: Random) -> Machine:
    kinds: list[Kind] = ["native", "native", "browser"]
    start, end = dice.choice(HOURS)
    return Machine(
        kind=dice.choice(kinds),
        gpu=dice.choice(["", "H200", "RTX"]),
        gpu_memory_mb=dice.choice([0, 4000, 8000]),
        gflops=dice.choice([0.0, 0.5, 1.0, 2.0, 4.5]),
        download_mbps=dice.choice([0.0, 10.0, 50.0, 100.0]),
        most_download_mb=dice.choice([0, 0, 50, 100, 1000]),
        hours=Hours(start=start * 60, end=end * 60) if dice.random() < 0.2 else None,
    )


def _somebody(number: int, dice: Random) -> VolunteerRecord:
    causes = dice.choices(["medicine", "CLIMATE ", "Games", "games", "art", " "], k=3)
    hosts = frozenset(dice.sample(["ha", "hb", "other"], dice.randrange(3)))
    return waiting(
        number,
        since=dice.choice([0.0, 1.0, 2.0]),
        avoid=dice.sample(["job-0", "job-1", "else"], dice.choice([0, 0, 1, 2])),
        cores=dice.choice([1, 4, 8]),
        memory_mb=dice.choice([0, 4000, 8000, 32000]),
        engine=dice.choice(["onnxruntime", "onnxruntime", "torch", "", "own"]),
        machine=_machine(dice) if dice.random() < 0.7 else None,
        job=dice.choice(NAMES) if dice.random() < 0.3 else None,
        hosts=hosts if dice.random() < 0.2 else None,
        causes=tuple(causes[: dice.randrange(4)]),
        only_causes=dice.random() < 0.15,
    )
