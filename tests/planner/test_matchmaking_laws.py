"""What holds in every world: nobody twice, no job too full, first in first out, nobody in vain."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import Machine, Presence, VolunteerRecord
from crowdgrad.domain.work import VolunteerId
from crowdgrad.planner.matchmaking import OVERDUE, Decision, Hall, Opening, match, place
from tests.planner.matching_worlds import (
    NOON,
    Reference,
    World,
    in_order,
    opening,
    suits,
    waiting,
    worlds_st,
)

YEAR_S = 365 * 86400.0


@settings(max_examples=1000, deadline=None)
@given(worlds_st)
def test_it_does_what_a_slow_and_obvious_one_does(world: World) -> None:
    queue, openings, passed_over = world.queue, world.openings, world.passed_over
    slow = Reference(openings, NOON, passed_over, OVERDUE)
    hall = Hall(openings, now=NOON, passed_over=passed_over)
    for volunteer in in_order(queue):
        expected = slow.seat(volunteer)
        found = hall.seat(volunteer)
        assert (found and found.job) == expected
        assert hall.passed_over == {host: n for host, n in slow.passed_over.items() if n}
        available = [o for o in openings if o.listing.open and o.presence == "alive"]
        assert hall.room == any(slow.room(one) for one in available)
    found_jobs = [d.job for d in match(queue, openings, now=NOON, passed_over=passed_over)]
    slow = Reference(openings, NOON, passed_over, OVERDUE)
    assert found_jobs == [slow.seat(volunteer) for volunteer in in_order(queue)]


@settings(max_examples=200, deadline=None)
@given(worlds_st)
def test_everybody_is_answered_once_and_fits_where_it_goes(world: World) -> None:
    queue, openings = world.queue, world.openings
    decisions = match(queue, openings, now=NOON, passed_over=world.passed_over)
    asked = {volunteer.id: volunteer for volunteer in queue}
    jobs = {one.listing.id: one for one in openings}
    assert [d.volunteer for d in decisions] == [volunteer.id for volunteer in in_order(queue)]
    sent = Counter(d.job for d in decisions)
    for decision in decisions:
        volunteer = asked[decision.volunteer]
        assert decision.reason
        if decision.job is not None:
            assert suits(volunteer, jobs[decision.job], NOON)
            one = jobs[decision.job]
            assert one.members + sent[decision.job] <= one.listing.offer.maximum
            continue
        assert decision.reason.startswith("waiting: ")
        for one in openings:
            if suits(volunteer, one, NOON):
                # It came too late for this one, or nobody can come any more.
                left = one.listing.offer.maximum - one.members - sent[one.listing.id]
                assert left <= 0 or one.places + sent[one.listing.id] >= 100_000


def profile(volunteer: VolunteerRecord) -> object:
    about = replace(volunteer.volunteer, id=VolunteerId("x"), name="x")
    return replace(volunteer, volunteer=about, since=0.0)


@settings(max_examples=200, deadline=None)
@given(worlds_st, st.integers(1, 3))
def test_first_in_first_out_among_equals(world: World, times: int) -> None:
    openings = [one for one in world.openings if one.listing.offer.visibility != "group"]
    queue = [
        replace(
            volunteer,
            volunteer=replace(volunteer.volunteer, id=VolunteerId(f"{volunteer.id}{n}")),
            since=volunteer.since + 1.5 * n,
        )
        for volunteer in world.queue
        for n in range(times)
    ]
    asked = {volunteer.id: volunteer for volunteer in queue}
    left_waiting = []
    for decision in match(queue, openings, now=NOON, passed_over=world.passed_over):
        kind = profile(asked[decision.volunteer])
        if decision.job is None:
            left_waiting.append(kind)
        else:
            assert kind not in left_waiting, "somebody quite like it was here earlier"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(0, OVERDUE),
)
def test_of_equal_jobs_the_older_fills_to_its_minimum_first(
    jobs: list[tuple[int, int]], arrivals: int
) -> None:
    openings = [
        opening(n, minimum=minimum, maximum=5, members=min(members, minimum), at=100.0 - n)
        for n, (minimum, members) in enumerate(jobs)
    ]
    sent = Counter(d.job for d in match([waiting(n) for n in range(arrivals)], openings, now=NOON))
    lacking_before = False
    for one in reversed(openings):  # the oldest first
        enough = one.members + sent[one.listing.id] >= max(1, one.listing.offer.minimum)
        assert not (lacking_before and sent[one.listing.id]), "a younger one went before it"
        lacking_before = lacking_before or not enough


@settings(max_examples=100, deadline=None)
@given(worlds_st, st.integers(0, 2**32))
def test_in_which_order_things_are_listed_does_not_matter(world: World, seed: int) -> None:
    before = match(world.queue, world.openings, now=NOON, passed_over=world.passed_over)
    queue, openings, hosts = list(world.queue), list(world.openings), list(world.passed_over)
    for listed in (queue, openings, hosts):
        Random(seed).shuffle(listed)
    passed_over = {host: world.passed_over[host] for host in hosts}
    assert match(queue, openings, now=NOON, passed_over=passed_over) == before


@settings(max_examples=200, deadline=None)
@given(worlds_st, st.integers(-40, 40), st.integers(-400, 400))
def test_a_clock_that_jumps_changes_nothing_but_whose_hours_it_is(
    world: World, years: int, days: int
) -> None:
    queue, openings, passed_over = world.queue, world.openings, world.passed_over
    before = match(queue, openings, now=NOON, passed_over=passed_over)
    then = NOON + years * YEAR_S + days * 86400.0
    assert match(queue, openings, now=then, passed_over=passed_over) == before
    tireless = [replace(v, machine=replace(v.machine, hours=None)) for v in queue]
    at_night = match(tireless, openings, now=then + 40_000.5, passed_over=passed_over)
    assert at_night == match(tireless, openings, now=NOON, passed_over=passed_over)


@settings(max_examples=200, deadline=None)
@given(worlds_st, st.integers(0, 12))
def test_a_hall_that_is_kept_serves_newcomers_like_a_pass_over_everybody(
    world: World, first: int
) -> None:
    queue, openings = in_order(world.queue), world.openings
    hall = Hall(openings, now=NOON, passed_over=world.passed_over)
    early = [hall.seat(volunteer) for volunteer in queue[:first]]
    after = [filled(one, early, queue) for one in openings]
    still = [volunteer for volunteer, seat in zip(queue, early, strict=False) if seat is None]
    everybody = match([*still, *queue[first:]], after, now=NOON, passed_over=hall.passed_over)
    expected = {decision.volunteer: decision.job for decision in everybody}
    assert not any(expected[volunteer.id] for volunteer in still), "they had no chance before"
    for volunteer in queue[first:]:
        found = hall.seat(volunteer)
        assert (found and found.job) == expected[volunteer.id]


def filled(one: Opening, seats: list[Decision | None], queue: list[VolunteerRecord]) -> Opening:
    """The opening once everybody has sat down."""
    job = one.listing.id
    came = [
        v for v, seat in zip(queue, seats, strict=False) if seat is not None and seat.job == job
    ]
    return replace(
        one,
        members=one.members + len(came),
        places=one.places + len(came),
        help=one.help + sum(v.machine.gflops or 1.0 for v in came),
    )


class House:
    """Jobs and volunteers that come and go, with one pass after whatever happens."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.jobs: dict[JobId, Opening] = {}
        self.groups: dict[JobId, set[VolunteerId]] = {}
        self.rosters: dict[JobId, dict[VolunteerId, Member]] = {}
        self.people: dict[VolunteerId, VolunteerRecord] = {}
        self.passed_over: dict[str, int] = {}
        self.now = NOON

    def publish(self) -> None:
        number = self.dice.randrange(12)
        minimum = self.dice.randrange(4)
        one = opening(
            number,
            minimum=minimum,
            maximum=minimum + self.dice.randrange(1, 3),
            key=f"h{number % 4}",
            cause=self.dice.choice(["", "art"]),
            at=self.now if self.dice.random() < 0.5 else float(number),
        )
        self.jobs[one.listing.id] = one
        self.groups.setdefault(one.listing.id, set())
        self.rosters.setdefault(one.listing.id, {})

    def change(self) -> None:
        """A host ends its job, falls silent, or is heard again."""
        if not self.jobs:
            return
        job = self.dice.choice(sorted(self.jobs))
        presences: list[Presence] = ["alive", "suspect", "gone"]
        one = replace(self.jobs[job], presence=self.dice.choice(presences))
        if self.dice.random() < 0.3:
            one = replace(one, listing=replace(one.listing, state="finished"))
            for name in self.groups[job]:
                self.people[name] = replace(self.people[name], job=None, since=self.now)
            self.groups[job].clear()
        self.jobs[job] = one

    def arrive(self) -> None:
        somebody = waiting(
            self.dice.randrange(30),
            since=max(self.now, 0.0),
            machine=Machine(gflops=self.dice.choice([0.0, 1.5])),
            causes=self.dice.choice([(), ("art",)]),
            avoid=self.dice.choice([(), ("job-1", "job-2")]),
        )
        if somebody.id not in self.people:
            self.people[somebody.id] = somebody

    def leave(self) -> None:
        if self.people:
            name = self.dice.choice(sorted(self.people))
            del self.people[name]
            for group in self.groups.values():
                group.discard(name)

    def jump(self) -> None:
        self.now += self.dice.uniform(-5, 5) * self.dice.choice([1.0, YEAR_S])

    def step(self) -> None:
        openings = {
            job: replace(
                one,
                members=len(self.groups[job]),
                places=len(self.rosters[job]),
                help=sum(self.people[v].machine.gflops or 1.0 for v in self.groups[job]),
            )
            for job, one in self.jobs.items()
        }
        idle = [volunteer for volunteer in self.people.values() if volunteer.job is None]
        hall = Hall(openings.values(), now=self.now, passed_over=self.passed_over)
        for volunteer in in_order(idle):
            decision = hall.seat(volunteer)
            if decision is None or decision.job is None:
                assert hall.why(volunteer).startswith("waiting: ")
                continue
            assert suits(volunteer, openings[decision.job], self.now)
            self.sit(volunteer, decision.job)
        self.passed_over = hall.passed_over

    def sit(self, volunteer: VolunteerRecord, job: JobId) -> None:
        roster, name = self.rosters[job], volunteer.id
        roster[name], _ = place(roster.get(name), len(roster) + 1, name, "name")
        self.groups[job].add(name)
        self.people[name] = replace(volunteer, job=job)

    def check(self) -> None:
        seated = Counter(name for group in self.groups.values() for name in group)
        assert set(seated.values()) <= {1}, "nobody is in two groups"
        for job, group in self.groups.items():
            for name in group:
                assert self.people[name].job == job
            positions = [member.position for member in self.rosters[job].values()]
            assert len(set(positions)) == len(positions), "no position is given twice"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_happens_in_a_house_its_groups_stay_in_order(seed: int) -> None:
    house = House(Random(seed))
    events = [house.publish, house.change, house.arrive, house.arrive, house.leave, house.jump]
    for _ in range(120):
        sizes = {job: len(group) for job, group in house.groups.items()}
        house.dice.choice(events)()
        house.step()
        house.check()
        for job, group in house.groups.items():
            limit = house.jobs[job].listing.offer.maximum
            # A job that is published anew with less room keeps those it has.
            assert len(group) <= max(limit, sizes.get(job, 0))
