"""What every store promises. A test module subclasses `StoreContract` and gives it a `store`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from crowdgrad.domain.job import JobId, Member, Volunteer
from crowdgrad.domain.matching import (
    Code,
    Credit,
    Gift,
    Hours,
    JobListing,
    JobRecord,
    Machine,
    Offer,
    Requirements,
    Totals,
    VolunteerRecord,
    Wants,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.store.base import Store

JOB = JobId("mnist-1")
OWNER = "0" * 64
Reopen = Callable[[Store], Store]


def job(name: str = JOB, *, code: str = "K7Q-2MP", at: float = 1.0, title: str = "t") -> JobRecord:
    offer = Offer(
        id=JobId(name),
        title=title,
        cause="medicine",
        address="127.0.0.1:1",
        key="k",
        minimum=1,
        maximum=8,
        hyperparameters={"learning_rate": 0.5, "momentum": True, "steps": 3, "rule": "sgd"},
        description="Zwei Zeilen,\nmit “Zeichen” 🙂",
        contact="anna@example.org",
        requirements=Requirements(
            cores=2,
            gpu=True,
            gflops=0.1,
            engines=frozenset({"onnx", "torch"}),
            kinds=frozenset({"native", "browser"}),
        ),
        visibility="group",
        invited=frozenset({VolunteerId("b"), VolunteerId("a")}),
        public=OWNER,
        routes=("127.0.0.1:1", "relay:relay.example.org:8702"),
    )
    listing = JobListing(offer=offer, state="waiting", published_at=at, code=Code(code))
    return JobRecord(listing=listing, owner=OWNER)


def volunteer(name: str, *, since: float = 1.0) -> VolunteerRecord:
    who = Volunteer(
        id=VolunteerId(name), name=name, cores=2, memory_mb=100, engine="onnx", software="1"
    )
    return VolunteerRecord(
        volunteer=who,
        owner="1" * 64,
        since=since,
        machine=Machine(
            kind="browser",
            gpu="H200",
            gflops=1 / 3,
            hours=Hours(start=1380, end=300),
            reachable=True,
        ),
        wants=Wants(job="K7Q-2MP", hosts=frozenset({"h", "g"}), causes=("climate", "games")),
        avoid=frozenset({JobId("other-1"), JobId("another-1")}),
    )


def member(position: int, name: str) -> Member:
    return Member(position=position, id=VolunteerId(name), name=f"{name}'s PC")


def credit(
    name: str, *, job: JobId = JOB, host: str = "k", at: float = 1.0, signed: bool = False
) -> Credit:
    gift = Gift(units=3, samples=(1 << 63) - 1, flop=1e29 / 3)
    return Credit(
        job=job,
        title="t",
        host=host,
        volunteer=VolunteerId(name),
        reported=gift,
        reported_at=at,
        signed=gift if signed else None,
        signature="ab" * 64 if signed else "",
    )


def gift(samples: int) -> Gift:
    return Gift(units=1, samples=samples, flop=samples * 1e9)


def fill(store: Store) -> None:
    """Something of everything, changed and forgotten a little."""
    store.put_job(job())
    store.put_job(job("mnist-2", code="AAA-222", at=0.5))
    store.put_job(job("mnist-3", code="AAA-333"))
    store.forget_job(JobId("mnist-3"))
    for place, name in enumerate("wabc"):
        store.add_member(JOB, member(place, name))
    store.add_member(JobId("mnist-2"), member(5, "a"))
    store.forget_member(JOB, VolunteerId("c"))
    for at, name in enumerate("abcd"):
        store.put_volunteer(volunteer(name, since=10.0 - at))
    store.put_volunteer(replace(volunteer("b"), job=JOB, since=20.25))
    store.forget_volunteer(VolunteerId("d"))
    store.put_credit(credit("a"))
    store.put_credit(credit("a", at=2.0, signed=True))
    store.put_credit(credit("a", job=JobId("mnist-2"), host="h"))
    store.put_credit(credit("b"))
    store.forget_credit(JOB, VolunteerId("b"))
    store.keep_secret("key", bytes(range(256)))


def contents(store: Store) -> object:
    """Everything that can be asked."""
    jobs = store.jobs()
    people = [VolunteerId(name) for name in "wabcdx"]
    return (
        jobs,
        [store.job(r.listing.id) for r in jobs],
        [store.job_by_code(r.listing.code) for r in jobs],
        [store.members(r.listing.id) for r in jobs],
        [store.next_position(r.listing.id) for r in jobs],
        store.jobs_of(OWNER),
        store.volunteers(),
        [store.volunteer(who) for who in people],
        [store.places(who) for who in people],
        [store.gave(who) for who in people],
        [store.received(host) for host in "khx"],
        [[store.credit(r.listing.id, who) for who in people] for r in jobs],
        (store.count_jobs(), store.count_volunteers(), store.count_credits()),
        store.totals(),
        store.secret("key"),
    )


class StoreContract:
    @pytest.fixture
    def store(self) -> Store:
        raise AssertionError("a subclass says which store is tested")

    @pytest.fixture
    def reopen(self) -> Reopen:
        raise AssertionError("a subclass says how it is closed and opened again")

    # Jobs

    def test_a_job_comes_back_as_it_was_put(self, store: Store) -> None:
        store.put_job(job())
        assert store.job(JOB) == job()
        assert store.job_by_code(Code("K7Q-2MP")) == job()
        assert store.count_jobs() == 1

    def test_what_was_never_put_is_not_there(self, store: Store) -> None:
        who = VolunteerId("a")
        assert store.job(JOB) is None
        assert store.job_by_code(Code("K7Q-2MP")) is None
        assert store.volunteer(who) is None
        assert store.member(JOB, who) is None
        assert store.members(JOB) == ()
        assert store.next_position(JOB) == 1
        assert store.credit(JOB, who) is None
        assert store.secret("key") is None
        assert store.jobs_of(OWNER) == store.places(who) == store.gave(who) == []
        assert store.received("k") == []

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

    def test_a_code_has_one_owner(self, store: Store) -> None:
        store.put_job(job())
        with pytest.raises(ValueError, match="K7Q-2MP"):
            store.put_job(job("mnist-2"))
        assert store.job(JobId("mnist-2")) is None

    def test_jobs_come_in_the_order_they_were_published(self, store: Store) -> None:
        for name, code, at in (("b-1", "AAA-222", 2.0), ("a-1", "BBB-222", 1.0)):
            store.put_job(job(name, code=code, at=at))
        store.put_job(job("c-1", code="CCC-222", at=1.0))
        assert [r.listing.id for r in store.jobs()] == ["a-1", "c-1", "b-1"]
        store.put_job(job("a-1", code="BBB-222", at=3.0))
        assert [r.listing.id for r in store.jobs()] == ["c-1", "b-1", "a-1"]

    def test_what_is_returned_is_not_the_store_s_own(self, store: Store) -> None:
        store.put_job(job())
        store.put_volunteer(volunteer("a"))
        store.jobs().clear()
        store.volunteers().clear()
        assert store.jobs() == [job()]
        assert store.volunteers() == [volunteer("a")]

    def test_a_key_finds_its_jobs(self, store: Store) -> None:
        store.put_job(job("b-1", code="AAA-222", at=2.0))
        store.put_job(job("a-1", code="BBB-222", at=3.0))
        store.put_job(job("c-1", code="CCC-222"))
        assert [r.listing.id for r in store.jobs_of(OWNER)] == ["c-1", "b-1", "a-1"]
        store.put_job(replace(job("c-1", code="CCC-222"), owner="2" * 64))
        store.forget_job(JobId("b-1"))
        assert [r.listing.id for r in store.jobs_of(OWNER)] == ["a-1"]
        assert [r.listing.id for r in store.jobs_of("2" * 64)] == ["c-1"]

    def test_a_forgotten_job_takes_its_roster_with_it(self, store: Store) -> None:
        store.put_job(job())
        store.add_member(JOB, member(3, "a"))
        store.put_credit(credit("a"))
        store.forget_job(JOB)
        store.forget_job(JOB)
        assert store.job(JOB) is None
        assert store.job_by_code(Code("K7Q-2MP")) is None
        assert store.members(JOB) == ()
        assert store.places(VolunteerId("a")) == []
        assert store.gave(VolunteerId("a")) == [credit("a")]
        store.put_job(job())
        assert store.next_position(JOB) == 1

    # Volunteers

    def test_a_volunteer_comes_back_as_it_was_put(self, store: Store) -> None:
        store.put_volunteer(volunteer("a"))
        assert store.volunteer(VolunteerId("a")) == volunteer("a")
        changed = replace(volunteer("a", since=9.0), job=JOB)
        store.put_volunteer(changed)
        assert store.volunteer(VolunteerId("a")) == changed
        assert store.count_volunteers() == 1

    def test_volunteers_come_in_the_order_they_wait(self, store: Store) -> None:
        for name, since in (("c", 3.0), ("a", 2.0), ("b", 1.0)):
            store.put_volunteer(volunteer(name, since=since))
        assert [r.volunteer.id for r in store.volunteers()] == ["b", "a", "c"]
        store.put_volunteer(volunteer("b", since=4.0))
        assert [r.volunteer.id for r in store.volunteers()] == ["a", "c", "b"]
        store.put_volunteer(volunteer("b", since=2.5))
        assert [r.volunteer.id for r in store.volunteers()] == ["a", "b", "c"]
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

    # Places

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
        assert store.places(VolunteerId("w")) == []
        store.add_member(JOB, member(1, "w"))
        assert store.members(JOB) == (member(0, "x"), member(1, "w"))

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

    def test_a_forgotten_member_s_place_is_not_given_again(
        self, store: Store, reopen: Reopen
    ) -> None:
        store.put_job(job())
        store.add_member(JOB, member(1, "a"))
        store.add_member(JOB, member(4, "b"))
        store.forget_member(JOB, VolunteerId("b"))
        store.forget_member(JOB, VolunteerId("b"))
        store.forget_member(JobId("nowhere-1"), VolunteerId("b"))
        store.put_job(job(title="published again, by a host that knows nothing of it"))
        store = reopen(store)
        assert store.members(JOB) == (member(1, "a"),)
        assert store.places(VolunteerId("b")) == []
        assert store.next_position(JOB) == 5
        store.add_member(JOB, member(5, "b"))
        assert store.places(VolunteerId("b")) == [(JOB, member(5, "b"))]

    def test_a_volunteer_s_places_in_all_rosters_are_found(self, store: Store) -> None:
        for name, code in (("b-1", "AAA-222"), ("a-1", "BBB-222")):
            store.put_job(job(name, code=code))
            store.add_member(JobId(name), member(2, "x"))
            store.add_member(JobId(name), member(1, "y"))
        found = [(JobId("a-1"), member(2, "x")), (JobId("b-1"), member(2, "x"))]
        assert store.places(VolunteerId("x")) == found

    # Credit

    def test_credit_is_replaced_and_found_from_both_sides(self, store: Store) -> None:
        other = JobId("mnist-2")
        store.put_credit(credit("a", at=5.0))
        store.put_credit(credit("a", at=6.0, signed=True))
        store.put_credit(credit("a", job=other, at=7.0))
        store.put_credit(credit("b", at=6.5))
        assert store.credit(JOB, VolunteerId("a")) == credit("a", at=6.0, signed=True)
        assert [c.reported_at for c in store.gave(VolunteerId("a"))] == [7.0, 6.0]
        assert [c.reported_at for c in store.received("k")] == [7.0, 6.5, 6.0]
        assert store.count_credits() == 3
        store.put_credit(credit("b", host="new"))
        assert [c.volunteer for c in store.received("k")] == ["a", "a"]
        assert store.received("new") == [credit("b", host="new")]

    def test_forgotten_credit_is_gone(self, store: Store) -> None:
        store.put_credit(credit("a"))
        store.forget_credit(JOB, VolunteerId("a"))
        store.forget_credit(JOB, VolunteerId("a"))
        assert store.credit(JOB, VolunteerId("a")) is None
        assert store.gave(VolunteerId("a")) == store.received("k") == []
        assert store.count_credits() == 0

    def test_totals_count_what_both_sides_are_sure_of(self, store: Store) -> None:
        def given(name: str, job: str, reported: int, signed: int | None) -> Credit:
            made = replace(credit(name, job=JobId(job)), reported=gift(reported))
            return made if signed is None else replace(made, signed=gift(signed), signature="ab")

        assert store.totals() == Totals(volunteers=0, jobs=0, samples=0, flop=0.0)
        for one in (
            given("a", "mnist-1", 30, 20),
            given("b", "mnist-1", 10, 50),
            given("b", "mnist-2", 7, 7),
            given("c", "mnist-3", 1000, None),
            given("d", "mnist-4", 0, 0),
        ):
            store.put_credit(one)
        assert store.totals() == Totals(volunteers=2, jobs=2, samples=37, flop=37e9)
        store.put_credit(given("a", "mnist-1", 31, 31))
        store.forget_credit(JobId("mnist-2"), VolunteerId("b"))
        assert store.totals() == Totals(volunteers=2, jobs=1, samples=41, flop=41e9)
        store.forget_credit(JOB, VolunteerId("b"))
        store.put_credit(given("a", "mnist-1", 31, None))
        assert store.totals() == Totals(volunteers=0, jobs=0, samples=0, flop=0.0)

    def test_totals_stay_sayable_whatever_strangers_sign_for_each_other(self, store: Store) -> None:
        for name in "abc":
            store.put_credit(credit(name, signed=True))
        assert store.totals().samples == (1 << 63) - 1
        assert store.totals().volunteers == 3

    # Lasting

    def test_secrets_are_kept_to_the_bit(self, store: Store, reopen: Reopen) -> None:
        store.keep_secret("key", b"old")
        store.keep_secret("key", bytes(range(256)))
        assert reopen(store).secret("key") == bytes(range(256))

    def test_everything_comes_back_after_closing(self, store: Store, reopen: Reopen) -> None:
        fill(store)
        before = contents(store)
        assert contents(reopen(store)) == before

    def test_it_goes_on_where_it_was(self, store: Store, reopen: Reopen) -> None:
        fill(store)
        store = reopen(store)
        store.forget_job(JOB)
        store.put_job(job("mnist-4", code="K7Q-2MP"))  # the code is free again
        store.forget_volunteer(VolunteerId("a"))
        store.forget_credit(JOB, VolunteerId("a"))
        before = contents(store)
        assert contents(reopen(store)) == before

    def test_codes_and_places_may_be_swapped_at_once(self, store: Store, reopen: Reopen) -> None:
        one, two = job("a-1", code="AAA-222"), job("b-1", code="BBB-222")
        store.put_job(one)
        store.put_job(two)
        store.add_member(one.listing.id, member(0, "w"))
        asyncio.run(store.kept())

        async def swap() -> None:
            store.put_job(job("a-1", code="CCC-222"))
            store.put_job(job("b-1", code="AAA-222"))
            store.put_job(job("a-1", code="BBB-222"))
            store.add_member(one.listing.id, member(0, "x"))
            store.add_member(one.listing.id, member(1, "w"))
            await store.kept()

        asyncio.run(swap())
        store = reopen(store)
        assert store.job_by_code(Code("BBB-222")) == job("a-1", code="BBB-222")
        assert store.job_by_code(Code("AAA-222")) == job("b-1", code="AAA-222")
        assert store.members(one.listing.id) == (member(0, "x"), member(1, "w"))

    def test_kept_returns_for_everybody(self, store: Store) -> None:
        async def come(number: int) -> None:
            store.put_volunteer(volunteer(f"v{number}"))
            await store.kept()

        async def all_come() -> None:
            await asyncio.gather(*map(come, range(200)))
            await store.kept()

        asyncio.run(all_come())
        assert store.count_volunteers() == 200
        assert store.trouble == ""

    def test_hyperparameters_stay_in_the_host_s_order(self, store: Store, reopen: Reopen) -> None:
        store.put_job(job())
        found = reopen(store).job(JOB)
        assert found is not None
        assert list(found.listing.offer.hyperparameters.items()) == list(
            job().listing.offer.hyperparameters.items()
        )
