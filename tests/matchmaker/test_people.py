"""What is kept about a key, what everybody sees of it, and what is left when it is forgotten."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import msgspec
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
    Visibility,
    VolunteerRecord,
    Wants,
)
from crowdgrad.matchmaker import people
from crowdgrad.net import rooms
from crowdgrad.net.identity import Identity, guest, signed_by
from crowdgrad.net.signing import credit_text
from crowdgrad.store.memory import MemoryStore

HOST, ANNA, BERT = guest("host"), guest("anna"), guest("bert")
CODES = {"mnist-1": "K7Q-2MP", "other-1": "B3F-9TX"}


def hex_of(who: Identity) -> str:
    return who.public.hex()


def job(
    name: str = "mnist-1", *, owner: Identity = HOST, visibility: Visibility = "public"
) -> JobRecord:
    offer = Offer(
        id=JobId(name),
        title=f"title of {name}",
        cause="tests",
        address="192.0.2.7:8710",
        key=owner.id,
        minimum=1,
        maximum=8,
        hyperparameters={"learning_rate": 0.05},
        description="two\nlines",
        contact="host@example.org",
        requirements=Requirements(cores=2, engines=frozenset({"onnx"})),
        visibility=visibility,
        invited=frozenset({ANNA.id}) if visibility == "group" else frozenset(),
    )
    listing = JobListing(offer=offer, state="running", published_at=1.0, code=Code(CODES[name]))
    return JobRecord(listing=listing, owner=hex_of(owner))


def volunteer(who: Identity = ANNA) -> VolunteerRecord:
    return VolunteerRecord(
        volunteer=Volunteer(
            id=who.id, name="Anna's PC", cores=2, memory_mb=4000, engine="onnx", software="1"
        ),
        owner=hex_of(who),
        since=77.5,
        machine=Machine(gpu="a card", gpu_memory_mb=8000, gflops=12.5, hours=Hours(start=1, end=2)),
        wants=Wants(causes=("climate",), hosts=frozenset({HOST.id})),
        avoid=frozenset({JobId("old-2"), JobId("old-1")}),
        job=JobId("mnist-1"),
    )


def gift(units: int) -> Gift:
    return Gift(units=units, samples=units * 100, flop=units * 1e9)


def credit(
    who: Identity = ANNA, *, name: str = "mnist-1", units: int = 5, signed: int = 0, at: float = 9.0
) -> Credit:
    text = credit_text(JobId(name), HOST.id, who.id, gift(signed))
    return Credit(
        job=JobId(name),
        title=f"title of {name}",
        host=HOST.id,
        volunteer=who.id,
        reported=gift(units),
        reported_at=at,
        signed=gift(signed) if signed else None,
        signature=who.sign_text(text).hex() if signed else "",
    )


@pytest.fixture
def store() -> MemoryStore:
    """Anna and Bert help a host; Anna has signed, Bert has not."""
    store = MemoryStore()
    store.put_job(job())
    store.put_volunteer(volunteer())
    store.add_member(JobId("mnist-1"), Member(position=0, id=HOST.id, name="own"))
    store.add_member(JobId("mnist-1"), Member(position=1, id=ANNA.id, name="Anna's PC"))
    store.add_member(JobId("mnist-1"), Member(position=2, id=BERT.id, name="Bert's PC"))
    store.put_credit(credit(ANNA, signed=5))
    store.put_credit(credit(BERT, units=3))
    return store


def test_the_owner_sees_everything(store: MemoryStore) -> None:
    kept = people.kept(store, hex_of(ANNA))
    record = volunteer()
    assert kept.key == ANNA.id
    assert kept.since == 77.5
    assert kept.registered is not None
    assert kept.registered.volunteer.volunteer() == record.volunteer
    assert kept.registered.machine.machine() == record.machine
    assert kept.registered.wants.wants() == record.wants
    assert kept.registered.avoid == ("old-1", "old-2")
    assert kept.registered.working_for == "mnist-1"
    assert kept.places == (rooms.PlaceKept(job="mnist-1", position=1, name="Anna's PC"),)
    assert [row.agreed for row in kept.gave] == [True]
    assert (kept.jobs, kept.received) == ((), ())


def test_nothing_of_the_records_is_left_out() -> None:
    """Who adds a field to what is remembered is reminded of showing it."""
    shown = {
        VolunteerRecord: {"volunteer", "owner", "since", "machine", "wants", "avoid", "job"},
        JobRecord: {"listing", "owner", "first_free"},
        JobListing: {"offer", "state", "published_at", "code"},
        Credit: {"job", "title", "host", "volunteer", "reported", "reported_at", "signed",
                 "signature"},
        Member: {"position", "id", "name"},
    }  # fmt: skip
    for kind, names in shown.items():
        assert is_dataclass(kind)
        assert {field.name for field in fields(kind)} == names, kind


def test_a_host_sees_its_jobs_with_what_concerns_it_alone(store: MemoryStore) -> None:
    store.put_job(job("other-1", visibility="group"))
    kept = people.kept(store, hex_of(HOST))
    assert [offer.offer() for offer in kept.jobs] == [
        job().listing.offer,
        job("other-1", visibility="group").listing.offer,
    ]
    assert kept.jobs[1].invited == (ANNA.id,)
    assert kept.jobs[0].address == "192.0.2.7:8710"
    assert {row.volunteer for row in kept.received} == {ANNA.id, BERT.id}
    assert kept.registered is None
    assert kept.since is None


def test_what_is_kept_survives_the_wire(store: MemoryStore) -> None:
    for who in (ANNA, BERT, HOST):
        kept = people.kept(store, hex_of(who))
        assert msgspec.json.decode(rooms.encode(kept), type=rooms.Kept) == kept


def test_of_an_unknown_key_nothing_is_kept(store: MemoryStore) -> None:
    nobody = guest("nobody")
    kept = people.kept(store, hex_of(nobody))
    empty = (kept.registered, kept.places, kept.jobs, kept.gave, kept.received)
    assert empty == (None, (), (), (), ())
    assert people.forget(store, hex_of(nobody)).entries == 0
    assert people.summary(store, nobody.id).flop == 0


def test_somebody_elses_record_under_the_same_id_is_neither_shown_nor_forgotten() -> None:
    store = MemoryStore()
    store.put_volunteer(replace(volunteer(), owner="f" * 64))
    assert people.kept(store, hex_of(ANNA)).registered is None
    people.forget(store, hex_of(ANNA))
    assert store.volunteer(ANNA.id) is not None


def test_everybody_sees_what_a_key_gave(store: MemoryStore) -> None:
    store.put_credit(credit(ANNA, name="other-1", units=7, signed=2, at=20.0))
    summary = people.summary(store, ANNA.id)
    assert [row.job for row in summary.gave] == ["other-1", "mnist-1"], "the newest first"
    assert summary.flop == 7e9
    row = summary.gave[1]
    assert row.signed is not None
    text = credit_text(JobId(row.job), row.host, ANNA.id, row.signed.gift())
    assert signed_by(ANNA.public, text, bytes.fromhex(row.signature))
    host = people.summary(store, HOST.id)
    assert len(host.received) == 2, "Bert has not signed what the host says of him"
    assert host.flop == 0


@pytest.mark.parametrize(("reported", "signed", "counts"), [(5, 5, 5), (5, 3, 3), (3, 5, 3)])
def test_neither_side_alone_makes_a_gift_larger(reported: int, signed: int, counts: int) -> None:
    store = MemoryStore()
    store.put_credit(credit(units=reported, signed=signed))
    assert people.summary(store, ANNA.id).flop == counts * 1e9


def test_what_everybody_sees_is_bounded_and_the_sum_is_not() -> None:
    store = MemoryStore()
    for n in range(people.MAX_ROWS + 50):
        store.put_credit(credit(name=f"job-{n}", units=1, signed=1, at=float(n)))
    summary = people.summary(store, ANNA.id)
    assert len(summary.gave) == people.MAX_ROWS
    assert summary.gave[0].job == f"job-{people.MAX_ROWS + 49}"
    assert summary.flop == pytest.approx((people.MAX_ROWS + 50) * 1e9)
    assert len(people.summary(store, HOST.id).received) == people.MAX_ROWS


@pytest.mark.parametrize("visibility", ["link", "group"])
def test_a_job_that_is_not_public_gives_nothing_away(
    store: MemoryStore, visibility: Visibility
) -> None:
    store.put_job(job("other-1", visibility=visibility))
    store.put_credit(credit(ANNA, name="other-1", units=7, signed=7, at=20.0))
    hidden = people.summary(store, ANNA.id).gave[0]
    assert (hidden.job, hidden.title, hidden.host, hidden.signature) == ("unlisted", "", "", "")
    assert hidden.reported.units == 7
    assert people.summary(store, ANNA.id).flop == 12e9, "it counts all the same"
    assert all(row.job == "mnist-1" for row in people.summary(store, HOST.id).received)
    assert people.kept(store, hex_of(ANNA)).gave[0].job == "other-1", "its owner knows"


def test_nor_does_it_when_it_is_forgotten_if_its_credit_has_no_title() -> None:
    store = MemoryStore()
    store.put_credit(replace(credit(signed=5), title=""))
    assert people.summary(store, ANNA.id).gave[0].job == "unlisted"
    assert people.summary(store, HOST.id).received == ()


def everything(store: MemoryStore) -> str:
    """All that is remembered, as text."""
    jobs = store.jobs()
    credits = [store.gave(who.id) for who in (ANNA, BERT, HOST)]
    return repr([jobs, [store.members(r.listing.id) for r in jobs], store.volunteers(), credits])


def test_a_forgotten_volunteer_leaves_nothing_but_its_empty_place(store: MemoryStore) -> None:
    gone = people.forget(store, hex_of(ANNA))
    assert gone.entries == 3, "a record, a place, a gift"
    assert ANNA.id not in everything(store)
    assert hex_of(ANNA) not in everything(store)
    assert "Anna" not in everything(store)
    assert [member.position for member in store.members(JobId("mnist-1"))] == [0, 2]
    with pytest.raises(ValueError, match="position 2"):
        store.add_member(JobId("mnist-1"), Member(position=2, id=ANNA.id, name="back"))
    assert store.next_position(JobId("mnist-1")) == 3
    assert store.gave(BERT.id), "others are untouched"
    assert people.forget(store, hex_of(ANNA)).entries == 0


def test_the_place_of_the_last_one_is_not_given_again(store: MemoryStore) -> None:
    people.forget(store, hex_of(BERT))
    assert store.next_position(JobId("mnist-1")) == 3


def test_a_forgotten_host_leaves_only_what_others_have_signed(store: MemoryStore) -> None:
    store.put_job(job("other-1"))
    store.put_job(job("mnist-1"))
    gone = people.forget(store, hex_of(HOST))
    assert gone.entries == 4, "two jobs, Anna's gift, Bert's gift"
    assert store.jobs() == []
    assert store.gave(BERT.id) == [], "only the host has ever said so"
    assert HOST.id not in repr(store.gave(ANNA.id))
    assert "title" not in people.summary(store, ANNA.id).gave[0].title
    assert store.received(HOST.id) == []
    assert people.kept(store, hex_of(HOST)) == people.kept(MemoryStore(), hex_of(HOST))


def test_what_was_signed_for_a_forgotten_host_still_counts_and_can_still_be_proven(
    store: MemoryStore,
) -> None:
    people.forget(store, hex_of(HOST))
    assert people.summary(store, ANNA.id).flop == 5e9
    (row,) = people.kept(store, hex_of(ANNA)).gave
    assert row.signed is not None
    text = credit_text(JobId(row.job), HOST.id, ANNA.id, row.signed.gift())
    assert signed_by(ANNA.public, text, bytes.fromhex(row.signature))


def test_who_helped_themselves_is_forgotten_at_once() -> None:
    store = MemoryStore()
    store.put_job(job())
    store.add_member(JobId("mnist-1"), Member(position=1, id=HOST.id, name="own"))
    store.put_credit(credit(HOST, signed=5))
    people.forget(store, hex_of(HOST))
    assert store.count_credits() == 0
    assert store.count_jobs() == 0
