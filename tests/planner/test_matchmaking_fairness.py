"""No host starves: how often in a row one can be passed over, whatever the others publish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from crowdgrad.domain.matching import Machine, Requirements, VolunteerRecord
from crowdgrad.planner.matchmaking import OVERDUE, Hall, Opening
from tests.planner.matching_worlds import NOON, opening, preference, suits, waiting

CAUSES = ["", "", "art", "climate"]


def most_in_a_row(hosts: int) -> int:
    """After every seat at most hosts - 1 - k stand at OVERDUE + k or above (`matchmaking.py`)."""
    return OVERDUE + hosts - 2


class Town:
    """Volunteers arrive one by one; who is passed over is counted here, in its own way."""

    def __init__(self, openings: list[Opening]) -> None:
        self.jobs = {one.listing.id: one for one in openings}
        self.hosts = {one.listing.offer.key for one in openings}
        self.in_a_row: Counter[str] = Counter()
        self.longest: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.passed_over: dict[str, int] = {}

    def arrive(self, hall: Hall, volunteer: VolunteerRecord) -> None:
        could = [one for one in self.jobs.values() if has_room(one) and suits(volunteer, one, NOON)]
        decision = hall.seat(volunteer)
        if decision is None or decision.job is None:
            assert not could, "nobody waits in vain"
            return
        chosen = self.jobs[decision.job]
        assert chosen in could
        rank = preference(volunteer, chosen)
        equals = {o.listing.offer.key for o in could if preference(volunteer, o) == rank}
        for host in equals - {chosen.listing.offer.key}:
            self.in_a_row[host] += 1
            self.longest[host] = max(self.longest[host], self.in_a_row[host])
        self.in_a_row[chosen.listing.offer.key] = 0
        self.received[chosen.listing.offer.key] += 1
        gflops = volunteer.machine.gflops or 1.0
        self.jobs[decision.job] = replace(
            chosen, members=chosen.members + 1, help=chosen.help + gflops
        )

    def leave(self, dice: Random) -> None:
        """Every member of some job goes home, one by one or all of them."""
        job = dice.choice(sorted(self.jobs))
        left = dice.randint(0, self.jobs[job].members)
        self.jobs[job] = replace(self.jobs[job], members=left, help=float(left))

    def receive(
        self, arrivals: int, at_once: int, somebody: Callable[[int], VolunteerRecord], dice: Random
    ) -> None:
        for start in range(0, arrivals, at_once):
            hall = Hall(self.jobs.values(), now=NOON, passed_over=self.passed_over)
            for number in range(start, min(start + at_once, arrivals)):
                self.arrive(hall, somebody(number))
            self.passed_over = hall.passed_over
            self.leave(dice)


def has_room(one: Opening) -> bool:
    return one.members < one.listing.offer.maximum


def of_many_kinds(dice: Random) -> Callable[[int], VolunteerRecord]:
    def somebody(number: int) -> VolunteerRecord:
        machine = Machine(
            gpu=dice.choice(["", "", "H200"]), gflops=dice.choice([0.0, 0.5, dice.random() * 50])
        )
        causes = dice.choice([(), (), ("art",), ("climate", "art"), ("games",)])
        return waiting(
            number, machine=machine, causes=causes, memory_mb=dice.choice([1000, 8000, 64_000])
        )

    return somebody


@settings(max_examples=3, deadline=None, phases=[Phase.reuse, Phase.generate])  # none is smaller
@given(seed=st.integers(0, 2**32), hosts=st.integers(3, 20))
def test_nobody_starves_over_ten_thousand_arrivals(seed: int, hosts: int) -> None:
    """One host has published ten jobs before all others, which want everybody there is."""
    dice = Random(seed)
    jobs = [opening(n, key="greedy", minimum=1000, maximum=1000) for n in range(10)]
    for n in range(10, 10 + hosts - 1 + dice.randrange(hosts)):
        needs = Requirements(
            gpu=dice.random() < 0.3, memory_mb=dice.choice([0, 0, 8000]),
            gflops=dice.choice([0.0, 0.0, 10.0]),
        )  # fmt: skip
        key, minimum = f"h{n % (hosts - 1)}", dice.randrange(4)
        jobs.append(
            opening(n, key=key, minimum=minimum, maximum=1000, needs=needs,
                    cause=dice.choice(CAUSES))
        )  # fmt: skip
    town = Town(jobs)
    town.receive(10_000, dice.randint(1, 40), of_many_kinds(dice), dice)
    assert max(town.longest.values()) <= most_in_a_row(hosts)
    assert all(town.received[host] > 0 for host in town.hosts)


@pytest.mark.parametrize("hosts", [2, 3, 17, 18, 19, 40])
def test_of_many_hosts_that_want_everybody_none_is_forgotten(hosts: int) -> None:
    """With more hosts than a few, all are overdue; then age must not decide among them."""
    town = Town([opening(n, minimum=1000, maximum=1000) for n in range(hosts)])
    arrivals = 30 * hosts
    town.receive(arrivals, arrivals, waiting, Random(1))
    assert max(town.longest.values()) <= most_in_a_row(hosts)
    assert min(town.received[host] for host in town.hosts) >= arrivals // most_in_a_row(hosts) - 1


def test_the_bound_is_reached_and_not_only_kept() -> None:
    """Of two hosts the younger is passed over as often as may be, and no more."""
    town = Town([opening(n, minimum=1000, maximum=1000) for n in range(2)])
    town.receive(200, 200, waiting, Random(1))
    assert town.longest["host-1"] == most_in_a_row(2) == OVERDUE
    assert town.received["host-1"] == 200 // (OVERDUE + 1)


def test_a_volunteer_that_boasts_does_not_starve_its_host() -> None:
    boast = waiting(0, machine=Machine(gflops=9e11))
    town = Town([opening(n, members=1, maximum=1000) for n in range(3)])
    hall = Hall(town.jobs.values(), now=NOON, passed_over={})
    town.arrive(hall, boast)
    (victim,) = (host for host in town.hosts if town.received[host])
    for number in range(1, 200):
        town.arrive(hall, waiting(number))
    assert town.longest[victim] <= most_in_a_row(3)
    assert town.received[victim] >= 200 // (most_in_a_row(3) + 1)
