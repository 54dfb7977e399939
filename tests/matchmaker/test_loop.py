"""The room under a virtual clock: presence, places and what everyone is told."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.loop import Room
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import rooms
from crowdgrad.store.memory import MemoryStore

T = TypeVar("T", bound=rooms.Said)
RULES = Rules()
TOKEN = "t" * 48


class Ear:
    """A connection that remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[rooms.Said] = []
        self.closed: Refusal | bool = False

    def send(self, message: rooms.Said) -> None:
        assert not self.closed
        self.heard.append(message)

    def close(self, why: Refusal | None = None) -> None:
        self.closed = why or True

    def last(self, kind: type[T]) -> T:
        return [message for message in self.heard if isinstance(message, kind)][-1]


class World:
    def __init__(self, rules: Rules = RULES) -> None:
        self.now = 1000.0
        self.store = MemoryStore()
        count = iter(range(10**9))
        desk = Desk(
            self.store,
            wall=lambda: 0.0,  # a wall clock that stands still keeps everyone's order all the same
            random_bytes=lambda size: (next(count) * 7919).to_bytes(size, "little"),
            rules=rules,
        )
        self.room = Room(self.store, desk, clock=lambda: self.now, rules=rules)

    def host(self, name: str = "mnist-1", *, minimum: int = 0, maximum: int = 8) -> Ear:
        self.publish(name, minimum=minimum, maximum=maximum)
        ear = Ear()
        self.room.host_arrives(JobId(name), TOKEN, ear)
        return ear

    def publish(
        self,
        name: str = "mnist-1",
        *,
        token: str = TOKEN,
        key: str = "k",
        minimum: int = 0,
        maximum: int = 8,
    ) -> None:
        body = rooms.OfferBody(
            id=name, title=name, address="h:1", key=key, minimum=minimum, maximum=maximum
        )
        own = rooms.MemberBody(position=0, id="worker0", name="own")
        self.room.publish(rooms.Publish(offer=body, members=(own,), token=token))

    def volunteer(self, name: str, *, token: str = TOKEN) -> Ear:
        body = rooms.VolunteerBody(id=name, name=name)
        self.room.register(rooms.Register(volunteer=body, token=token))
        ear = Ear()
        self.room.volunteer_arrives(VolunteerId(name), token, ear)
        return ear

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.room.step()


def positions(message: rooms.RosterChanged) -> list[tuple[int, str]]:
    return [(member.position, member.id) for member in message.members]


def test_a_group_forms_and_all_are_told_the_same() -> None:
    world = World()
    ears = [world.volunteer(name) for name in "abc"]
    world.step()
    assert all(ear.last(rooms.StillWaiting).reason == "waiting: no job is open" for ear in ears)
    host = world.host(minimum=2, maximum=2)
    world.step()
    expected = [(0, "worker0"), (1, "a"), (2, "b")]
    assert positions(host.last(rooms.RosterChanged)) == expected
    assert [positions(ear.last(rooms.Matched).roster) for ear in ears[:2]] == [expected] * 2
    assert ears[2].last(rooms.StillWaiting).reason == "waiting: job mnist-1 is full (2 of 2)"
    heard = [len(ear.heard) for ear in (*ears, host)]
    world.step()
    assert [len(ear.heard) for ear in (*ears, host)] == heard, "nothing new, nothing said"


def test_silence_makes_a_volunteer_suspect_then_gone() -> None:
    world = World()
    quiet, lively = world.volunteer("a"), world.volunteer("b")
    world.step(RULES.patience.suspect_after_s)
    world.room.volunteer_says(VolunteerId("b"), rooms.StillHere(), lively)
    assert lively.last(rooms.StillHere)
    world.host(minimum=1, maximum=1)
    world.step()
    assert lively.last(rooms.Matched).position == 1, "the suspect was passed over"
    assert quiet.last(rooms.StillWaiting).reason.endswith("nothing was heard from you for a while")
    world.step(RULES.patience.gone_after_s - RULES.patience.suspect_after_s)
    assert quiet.closed is True
    assert world.room.health().volunteers == 1


def test_a_silent_host_gets_nobody_until_it_is_heard_again() -> None:
    world = World()
    host = world.host()
    world.step(RULES.patience.suspect_after_s)
    guest = world.volunteer("a")
    world.step()
    assert guest.last(rooms.StillWaiting).reason == "waiting: no job is open"
    world.room.host_says(JobId("mnist-1"), rooms.StillHere(), host)
    world.step()
    assert guest.last(rooms.Matched).position == 1


def test_a_lost_host_leaves_its_members_alone_and_returns() -> None:
    world = World()
    host = world.host()
    guest = world.volunteer("a")
    world.step()
    world.room.host_leaves(JobId("mnist-1"), host)
    for _ in range(20):
        world.step(5.0)
        world.room.volunteer_says(VolunteerId("a"), rooms.StillHere(), guest)
    assert world.room.host_presence(JobId("mnist-1")) == "gone"
    assert not any(isinstance(message, rooms.JobEnded) for message in guest.heard)
    back = world.host()
    assert positions(back.last(rooms.RosterChanged)) == [(0, "worker0"), (1, "a")]


def test_only_the_owner_publishes_again_unless_it_is_gone() -> None:
    world = World()
    host = world.host()
    with pytest.raises(Refusal, match="someone else"):
        world.publish(token="other" * 10)
    world.room.host_leaves(JobId("mnist-1"), host)
    world.now += RULES.patience.gone_after_s
    with pytest.raises(Refusal, match="someone else"):
        world.publish(token="other" * 10, key="another key")
    world.publish(token="other" * 10)
    with pytest.raises(Refusal, match="does not fit"):
        world.room.host_arrives(JobId("mnist-1"), TOKEN, Ear())


def test_only_an_absent_volunteer_may_come_with_a_new_token() -> None:
    world = World()
    world.host()
    first = world.volunteer("a")
    world.step()
    with pytest.raises(Refusal, match="is here already"):
        world.volunteer("a", token="other" * 10)
    world.room.volunteer_leaves(VolunteerId("a"), first)
    again = world.volunteer("a", token="other" * 10)
    world.step()
    assert again.last(rooms.Matched).position == 1, "it has its place back"
    with pytest.raises(Refusal, match="does not fit"):
        world.room.volunteer_arrives(VolunteerId("a"), TOKEN, Ear())


def test_what_an_earlier_life_still_says_is_out_of_date() -> None:
    world = World()
    old_host, old = world.host(), world.volunteer("a")
    world.step()
    body = rooms.VolunteerBody(id="a", name="a")
    world.room.register(rooms.Register(volunteer=body, token=TOKEN))
    world.publish()
    # On the way for long, and here only now that both have died and begun anew.
    world.room.volunteer_says(VolunteerId("a"), rooms.Free(avoid=("mnist-1",)), old)
    world.room.host_says(JobId("mnist-1"), rooms.StateChanged(state="stopped"), old_host)
    assert old.closed
    assert old_host.closed
    again, host = Ear(), Ear()
    world.room.volunteer_arrives(VolunteerId("a"), TOKEN, again)
    world.room.host_arrives(JobId("mnist-1"), TOKEN, host)
    world.step()
    assert again.last(rooms.Matched).position == 1
    assert positions(host.last(rooms.RosterChanged)) == [(0, "worker0"), (1, "a")]


def test_a_new_address_is_told_to_the_members() -> None:
    world = World()
    world.host()
    guest = world.volunteer("a")
    world.step()
    world.publish(maximum=5)
    again = guest.last(rooms.Matched)
    assert (again.listing.offer.maximum, again.position) == (5, 1)


def test_the_end_of_a_job_sends_its_members_to_the_next() -> None:
    world = World()
    host = world.host("one-1", maximum=1)
    world.host("two-1", minimum=0)
    guest = world.volunteer("a")
    world.step()
    assert guest.last(rooms.Matched).listing.offer.id == "one-1"
    world.room.host_says(JobId("one-1"), rooms.StateChanged(state="failed"), host)
    assert guest.last(rooms.JobEnded) == rooms.JobEnded(job="one-1", state="failed")
    world.step()
    assert guest.last(rooms.Matched).listing.offer.id == "two-1"
    assert positions(host.last(rooms.RosterChanged)) == [(0, "worker0")]


def test_what_is_over_is_forgotten_in_the_end() -> None:
    world = World()
    host = world.host()
    guest = world.volunteer("a")
    world.step()
    world.room.host_leaves(JobId("mnist-1"), host)
    world.room.volunteer_leaves(VolunteerId("a"), guest)
    world.step(RULES.forget_after_s - 1)
    assert (world.store.count_jobs(), world.store.count_volunteers()) == (1, 1)
    world.step(1)
    assert (world.store.count_jobs(), world.store.count_volunteers()) == (0, 0)


def test_the_house_has_limits() -> None:
    world = World(Rules(max_jobs=1, max_volunteers=1))
    world.host()
    world.volunteer("a")
    with pytest.raises(Refusal, match="1 jobs") as jobs:
        world.host("more-1")
    with pytest.raises(Refusal, match="1 volunteers") as volunteers:
        world.volunteer("b")
    assert (jobs.value.status, volunteers.value.status) == (429, 429)
    world.host()
    world.volunteer("a")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["come", "come", "go", "free", "job", "end", "lose", "wait"]),
            st.integers(0, 4),
        ),
        max_size=40,
    )
)
def test_whatever_happens(story: list[tuple[str, int]]) -> None:
    """Nobody in two groups, no job too full, places unique and stable, a word for everyone."""
    world = World()
    guests: dict[str, Ear] = {}
    hosts: dict[str, Ear] = {}
    places: dict[tuple[str, str], int] = {}
    for what, number in story:
        name, job = f"v{number}", f"job-no{number % 2}"
        if what == "come":
            guests[name] = world.volunteer(name)
        elif what == "job":
            hosts[job] = world.host(job, minimum=1, maximum=2)
        elif what == "wait":
            world.step(number * 3.0)
        elif what == "go" and name in guests:
            world.room.volunteer_leaves(VolunteerId(name), guests.pop(name))
        elif what == "free" and name in guests:
            world.room.volunteer_says(VolunteerId(name), rooms.Free(), guests[name])
        elif what == "end" and job in hosts and not hosts[job].closed:
            world.room.host_says(JobId(job), rooms.StateChanged(state="stopped"), hosts[job])
        elif what == "lose" and job in hosts:
            world.room.host_leaves(JobId(job), hosts.pop(job))
        world.step()
        rosters = {
            record.listing.id: world.room._roster(record.listing.id)
            for record in world.store.jobs()
        }
        present = [m.id for roster in rosters.values() for m in roster.members if m.position > 0]
        assert len(present) == len(set(present))
        for of, roster in rosters.items():
            assert len(roster.members) <= 3
            for member in roster.members:
                assert places.setdefault((of, member.id), member.position) == member.position
        for of in rosters:
            given_to = [place for (owner, _), place in places.items() if owner == of]
            assert len(given_to) == len(set(given_to))
        for guest, ear in guests.items():
            if not ear.closed and guest not in present:
                assert isinstance(ear.heard[-1], rooms.StillWaiting | rooms.StillHere)
