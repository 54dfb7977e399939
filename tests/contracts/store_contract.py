"""What every store promises. A test module subclasses `StoreContract` and gives it a `store`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crowdgrad.domain.job import JobId, Member, Volunteer
from crowdgrad.domain.matching import (
    Code,
    JobListing,
    JobRecord,
    Offer,
    VolunteerRecord,
    Waiting,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.store.base import Store

JOB = JobId("mnist-1")


def job(name: str = JOB, *, code: str = "K7Q-2MP", at: float = 1.0, title: str = "t") -> JobRecord:
    offer = Offer(
        id=JobId(name),
        title=title,
        cause="",
        address="127.0.0.1:1",
        key="k",
        minimum=1,
        maximum=8,
        hyperparameters={"learning_rate": 0.5, "momentum": True, "steps": 3, "rule": "sgd"},
    )
    listing = JobListing(offer=offer, state="waiting", published_at=at, code=Code(code))
    return JobRecord(listing=listing, owner="0" * 64)


def volunteer(name: str, *, since: float = 1.0) -> VolunteerRecord:
    who = Volunteer(
        id=VolunteerId(name), name=name, cores=2, memory_mb=100, engine="onnx", software="1"
    )
    waiting = Waiting(
        volunteer=who.id, wants="K7Q-2MP", avoid=frozenset({JobId("other-1")}), since=since
    )
    return VolunteerRecord(volunteer=who, owner="1" * 64, waiting=waiting)


def member(position: int, name: str) -> Member:
    return Member(position=position, id=VolunteerId(name), name=f"{name}'s PC")


class StoreContract:
    @pytest.fixture
    def store(self) -> Store:
        raise AssertionError("a subclass says which store is tested")

    def test_a_job_comes_back_as_it_was_put(self, store: Store) -> None:
        store.put_job(job())
        assert store.job(JOB) == job()
        assert store.job_by_code(Code("K7Q-2MP")) == job()
        assert store.count_jobs() == 1

    def test_what_was_never_put_is_not_there(self, store: Store) -> None:
        assert store.job(JOB) is None
        assert store.job_by_code(Code("K7Q-2MP")) is None
        assert store.volunteer(VolunteerId("a")) is None
        assert store.member(JOB, VolunteerId("a")) is None
        assert store.members(JOB) == ()

    def test_putting_again_replaces_and_keeps_the_roster(self, store: Store) -> None:
        store.put_job(job())
        store.add_member(JOB, member(0, "w"))
        store.put_job(job(title="new", code="AAA-222"))
        found = store.job(JOB)
        assert found is not None
        assert found.listing.title == "new"
        assert store.job_by_code(Code("K7Q-2MP")) is None
        assert store.job_by_code(Code("AAA-222")) == found
        assert store.count_jobs() == 1
        assert store.members(JOB) == (member(0, "w"),)

    def test_two_jobs_do_not_share_a_code(self, store: Store) -> None:
        store.put_job(job())
        with pytest.raises(ValueError, match="K7Q-2MP"):
            store.put_job(job("other-1"))
        assert store.job(JobId("other-1")) is None

    def test_jobs_are_listed_by_age(self, store: Store) -> None:
        store.put_job(job("b-1", code="BBB-222", at=2.0))
        store.put_job(job("a-1", code="AAA-222", at=3.0))
        store.put_job(job("c-1", code="CCC-222", at=1.0))
        assert [record.listing.id for record in store.jobs()] == ["c-1", "b-1", "a-1"]

    def test_a_forgotten_job_takes_its_roster_and_code_along(self, store: Store) -> None:
        store.put_job(job())
        store.add_member(JOB, member(3, "a"))
        store.forget_job(JOB)
        store.forget_job(JOB)
        assert store.job(JOB) is None
        assert store.jobs() == []
        store.put_job(job("other-1"))
        store.put_job(job(code="AAA-222"))
        assert store.members(JOB) == ()
        assert store.next_position(JOB) == 1

    def test_volunteers_are_kept_and_listed_by_arrival(self, store: Store) -> None:
        for name, since in (("b", 2.0), ("a", 3.0), ("c", 1.0)):
            store.put_volunteer(volunteer(name, since=since))
        assert store.volunteer(VolunteerId("a")) == volunteer("a", since=3.0)
        assert [r.volunteer.id for r in store.volunteers()] == ["c", "b", "a"]
        store.put_volunteer(volunteer("c", since=9.0))
        assert [r.volunteer.id for r in store.volunteers()] == ["b", "a", "c"]
        assert store.count_volunteers() == 3

    def test_a_forgotten_volunteer_keeps_its_place(self, store: Store) -> None:
        store.put_job(job())
        store.put_volunteer(volunteer("a"))
        store.add_member(JOB, member(1, "a"))
        store.forget_volunteer(VolunteerId("a"))
        store.forget_volunteer(VolunteerId("a"))
        assert store.volunteer(VolunteerId("a")) is None
        assert store.member(JOB, VolunteerId("a")) == member(1, "a")
        assert store.next_position(JOB) == 2

    def test_a_place_is_given_once(self, store: Store) -> None:
        store.put_job(job())
        store.add_member(JOB, member(0, "w"))
        store.add_member(JOB, member(2, "b"))
        store.add_member(JOB, member(1, "a"))
        with pytest.raises(ValueError, match="position 1"):
            store.add_member(JOB, member(1, "b"))
        with pytest.raises(ValueError, match="position 1"):
            store.add_member(JOB, member(1, "c"))
        with pytest.raises(ValueError, match="position 3"):
            store.add_member(JOB, member(3, "a"))
        assert store.members(JOB) == (member(0, "w"), member(1, "a"), member(2, "b"))
        assert store.next_position(JOB) == 3

    def test_the_same_place_again_changes_the_name(self, store: Store) -> None:
        store.put_job(job())
        store.add_member(JOB, member(1, "a"))
        renamed = replace(member(1, "a"), name="new name")
        store.add_member(JOB, renamed)
        assert store.members(JOB) == (renamed,)

    def test_only_position_0_changes_hands(self, store: Store) -> None:
        store.put_job(job())
        store.add_member(JOB, member(0, "w"))
        store.add_member(JOB, member(0, "x"))
        assert store.members(JOB) == (member(0, "x"),)
        assert store.member(JOB, VolunteerId("w")) is None

    def test_an_unknown_job_has_no_places(self, store: Store) -> None:
        with pytest.raises(ValueError, match="unknown"):
            store.add_member(JOB, member(0, "w"))

    def test_reserved_positions_are_not_given(self, store: Store) -> None:
        store.put_job(replace(job(), first_free=7))
        assert store.next_position(JOB) == 7
        store.add_member(JOB, member(2, "a"))
        assert store.next_position(JOB) == 7
        store.add_member(JOB, member(9, "b"))
        assert store.next_position(JOB) == 10
