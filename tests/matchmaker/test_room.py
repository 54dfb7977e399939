"""The room under a virtual clock: presence, places, credit and what everyone is told."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.errors import CannotWrite, MessageError
from crowdgrad.matchmaker.desk import Rules
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.matchmaker.rosters import MOVED_S
from crowdgrad.matchmaker.seating import SEATS_AT_ONCE, TELL_AT_ONCE
from crowdgrad.net import bodies, introduction, rooms
from crowdgrad.net.signing import credit_text
from crowdgrad.store.memory import MemoryStore
from tests.matchmaker.world import MATCHMAKER, RULES, Ear, World, id_of, key_of, positions

JOB = JobId("mnist-1")


def test_a_group_forms_and_all_are_told_the_same() -> None:
    world = World()
    ears = [world.volunteer(name) for name in "abc"]
    world.step()
    assert all(ear.last(rooms.StillWaiting).reason == "waiting: no job is open" for ear in ears)
    host = world.host(minimum=2, maximum=2)
    world.step()
    expected = [(0, "own"), (1, "a"), (2, "b")]
    assert positions(host.last(rooms.RosterChanged)) == expected
    assert [positions(ear.last(rooms.Matched).roster) for ear in ears[:2]] == [expected] * 2
    assert ears[2].last(rooms.StillWaiting).reason == "waiting: job “mnist-1” is full (2 of 2)"
    heard = [len(ear.heard) for ear in (*ears, host)]
    world.step()
    assert [len(ear.heard) for ear in (*ears, host)] == heard, "nothing new, nothing said"


def test_the_welcome_says_how_to_behave_and_where_the_job_is_found() -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    welcome = host.last(rooms.Welcome)
    assert welcome.key == MATCHMAKER.public.hex()
    assert welcome.link == f"https://example.org/j/{welcome.code}"
    assert guest.last(rooms.Welcome).heartbeat_s == RULES.heartbeat_s
    assert guest.last(rooms.Welcome).code == ""


def test_in_a_crowd_hearts_beat_more_slowly() -> None:
    world = World(Rules(beats_per_s=1.0))
    ears = [world.volunteer(f"v{n}") for n in range(12)]
    world.step()
    first, last = ears[0].last(rooms.Welcome), ears[-1].last(rooms.Welcome)
    assert first.heartbeat_s == RULES.heartbeat_s < last.heartbeat_s
    assert last.gone_after_s > first.gone_after_s


def test_the_host_can_check_who_was_sent() -> None:
    world = World()
    world.host()
    guest = world.volunteer("a")
    world.step()
    told = guest.last(rooms.Matched)
    said = introduction.check(
        told.introduction,
        public=MATCHMAKER.public,
        job=JOB,
        host=key_of("host").id,
        volunteer=id_of("a"),
        now=world.wall,
    )
    assert said.position == told.position == 1


def test_silence_makes_a_volunteer_suspect_then_gone() -> None:
    world = World()
    quiet, lively = world.volunteer("a"), world.volunteer("b")
    world.step(RULES.patience.suspect_after_s)
    world.room.volunteer_says(id_of("b"), rooms.StillHere(), lively)
    assert lively.last(rooms.StillHere)
    world.host(minimum=1, maximum=1)
    world.step()
    assert lively.last(rooms.Matched).position == 1, "the suspect was passed over"
    assert quiet.last(rooms.StillWaiting).reason.endswith("nothing was heard from you for a while")
    world.step(RULES.patience.gone_after_s - RULES.patience.suspect_after_s)
    assert quiet.closed is True
    assert world.room.health().volunteers == 1


def test_a_suspect_that_is_heard_again_is_matched() -> None:
    world = World()
    world.host()
    world.step()
    ears = [world.volunteer(f"v{n}") for n in range(9)]
    world.step()
    assert ears[8].last(rooms.StillWaiting)
    world.step(RULES.patience.suspect_after_s)
    world.room.volunteer_says(id_of("v0"), rooms.Leaving(), ears[0])
    world.step()
    assert not ears[8].all(rooms.Matched)
    host = world.host()  # heard again as well
    assert host.last
    world.room.volunteer_says(id_of("v8"), rooms.StillHere(), ears[8])
    world.step()
    assert ears[8].last(rooms.Matched).position == 9


def test_a_silent_host_gets_nobody_until_it_is_heard_again() -> None:
    world = World()
    host = world.host()
    world.step(RULES.patience.suspect_after_s)
    guest = world.volunteer("a")
    world.step()
    silent = "waiting: the host of 1 open job does not answer"
    assert guest.last(rooms.StillWaiting).reason == silent
    world.room.host_says(JOB, rooms.StillHere(), host)
    world.step()
    assert guest.last(rooms.Matched).position == 1


def test_a_lost_host_leaves_its_members_alone_and_returns() -> None:
    world = World()
    host = world.host()
    guest = world.volunteer("a")
    world.step()
    world.room.host_leaves(JOB, host)
    for _ in range(20):
        world.step(5.0)
        world.room.volunteer_says(id_of("a"), rooms.StillHere(), guest)
    assert world.room.host_presence(JOB) == "gone"
    assert not guest.all(rooms.JobEnded)
    back = world.host()
    world.step()
    assert positions(back.last(rooms.RosterChanged)) == [(0, "own"), (1, "a")]


def test_only_the_owner_publishes_again_also_when_it_is_gone() -> None:
    world = World()
    host = world.host()
    with pytest.raises(Refusal, match="another key"):
        world.host(owner="somebody else")
    world.room.host_leaves(JOB, host)
    world.step(RULES.patience.gone_after_s)
    with pytest.raises(Refusal, match="another key"):
        world.host(owner="somebody else")
    world.host()
    world.step()
    assert world.room.host_presence(JOB) == "alive"


def test_of_two_processes_with_one_key_the_second_waits_until_the_first_is_away() -> None:
    world = World()
    world.host()
    first = world.volunteer("a", session="1")
    world.step()
    with pytest.raises(Refusal, match="is here already"):
        world.volunteer("a", session="2")
    world.room.volunteer_leaves(id_of("a"), first)
    again = world.volunteer("a", session="2")
    world.step()
    assert again.last(rooms.Matched).position == 1, "it has its place back"


def test_who_loses_the_socket_keeps_its_room_until_it_is_gone() -> None:
    world = World()
    host = world.host(maximum=1)
    first = world.volunteer("a")
    world.step()
    world.room.volunteer_leaves(id_of("a"), first)
    world.step(RULES.patience.suspect_after_s - 1)
    second = world.volunteer("b")
    world.step()
    assert second.last(rooms.StillWaiting).reason == "waiting: job “mnist-1” is full (1 of 1)"
    back = world.volunteer("a", working_for="mnist-1")
    world.step()
    assert back.last(rooms.Matched).reason == "you are back at your place"
    world.room.volunteer_leaves(id_of("a"), back)
    for _ in range(3):
        world.room.volunteer_says(id_of("b"), rooms.StillHere(), second)
        world.room.host_says(JOB, rooms.StillHere(), host)
        world.step(RULES.patience.gone_after_s / 3)
    world.step(1.0)
    assert second.last(rooms.Matched).position == 2


def test_who_says_that_it_leaves_makes_room_at_once() -> None:
    world = World()
    world.host(maximum=1)
    first, second = world.volunteer("a"), world.volunteer("b")
    world.step()
    world.room.volunteer_says(id_of("a"), rooms.Leaving(), first)
    world.step()
    assert second.last(rooms.Matched).position == 2


def test_a_service_that_starts_again_holds_everyones_place() -> None:
    world = World()
    world.host(maximum=2)
    for name in "abc":
        world.volunteer(name)
    world.step()
    world.begin()
    early = world.volunteer("d")
    host = world.host(maximum=2)
    world.step()
    assert early.last(rooms.StillWaiting).reason == "waiting: job “mnist-1” is full (2 of 2)"
    assert positions(host.last(rooms.RosterChanged)) == [(0, "own"), (1, "a"), (2, "b")]
    back = world.volunteer("b", working_for="mnist-1")
    waits = world.volunteer("c")
    world.step()
    assert back.last(rooms.Matched).position == 2
    for _ in range(3):
        for name, ear in (("b", back), ("c", waits), ("d", early)):
            world.room.volunteer_says(id_of(name), rooms.StillHere(), ear)
        world.room.host_says(JOB, rooms.StillHere(), host)
        world.step(RULES.patience.gone_after_s / 3)
    world.step(1.0)
    assert waits.last(rooms.Matched).position == 3, "c was in the queue before d"
    assert not early.all(rooms.Matched)


def test_who_works_for_a_job_that_is_not_known_waits_for_it_alone() -> None:
    world = World()
    world.host("other-1")
    guest = world.volunteer("a", working_for="mnist-1")
    world.step()
    reason = guest.last(rooms.StillWaiting).reason
    assert reason.startswith("waiting: nobody has published a job called mnist-1")
    world.host()
    world.step()
    assert guest.last(rooms.Matched).listing.offer.id == "mnist-1"


def test_what_an_earlier_life_still_says_is_out_of_date() -> None:
    world = World()
    old_host, old = world.host(), world.volunteer("a")
    world.step()
    again, host = world.volunteer("a"), world.host()
    # On the way for long, and here only now that both have died and begun anew.
    free = rooms.Free(avoid=("mnist-1",))
    world.room.volunteer_says(id_of("a"), free, old)
    world.room.host_says(JOB, rooms.StateChanged(state="stopped"), old_host)
    world.room.volunteer_leaves(id_of("a"), old)
    world.room.host_leaves(JOB, old_host)
    assert old.closed
    assert old_host.closed
    world.step()
    assert again.last(rooms.Matched).position == 1
    assert positions(host.last(rooms.RosterChanged)) == [(0, "own"), (1, "a")]


def test_a_new_address_is_told_to_the_members() -> None:
    world = World()
    world.host()
    guest = world.volunteer("a")
    world.step()
    world.host(maximum=5)
    world.step()
    again = guest.last(rooms.Matched)
    assert (again.listing.offer.maximum, again.position) == (5, 1)


def test_members_do_not_learn_who_else_is_invited() -> None:
    world = World()
    world.host(visibility="group", invited=(id_of("a"), id_of("b")))
    guest, stranger = world.volunteer("a"), world.volunteer("c")
    world.step()
    assert guest.last(rooms.Matched).listing.offer.invited == ()
    assert stranger.last(rooms.StillWaiting).reason == "waiting: no job is open"


def test_how_far_a_job_is_stands_in_its_summary() -> None:
    world = World()
    host = world.host()
    world.step()
    assert host.last(rooms.Welcome).hears_progress
    record = world.store.job(JOB)
    assert record is not None
    assert world.room.summary(record).progress is None
    world.room.host_says(JOB, rooms.Progressed(share=0.25), host)
    assert world.room.summary(record).progress == 0.25
    guest = world.volunteer("a")
    world.step()
    assert not guest.last(rooms.Welcome).hears_progress, "that is a host's to say"


def test_the_end_of_a_job_sends_its_members_to_the_next() -> None:
    world = World()
    host = world.host("one-1", maximum=1)
    guest = world.volunteer("a")
    world.step()
    world.host("two-1", minimum=0)
    assert guest.last(rooms.Matched).listing.offer.id == "one-1"
    world.room.host_says(JobId("one-1"), rooms.StateChanged(state="failed"), host)
    world.step()
    assert guest.last(rooms.JobEnded) == rooms.JobEnded(job="one-1", state="failed")
    assert guest.last(rooms.Matched).listing.offer.id == "two-1"
    assert positions(host.last(rooms.RosterChanged)) == [(0, "own")]


def test_what_is_over_is_forgotten_in_the_end() -> None:
    world = World()
    host = world.host()
    guest = world.volunteer("a")
    world.step()
    late = world.volunteer("b")
    world.room.host_leaves(JOB, host)
    world.room.volunteer_says(id_of("b"), rooms.Leaving(), late)
    assert world.store.count_volunteers() == 1, "who says good-bye is forgotten at once"
    world.room.volunteer_leaves(id_of("a"), guest)
    world.step(RULES.patience.gone_after_s)
    world.step(RULES.absent_s - 1)
    assert (world.store.count_jobs(), world.store.count_volunteers()) == (1, 1)
    world.step(1)
    assert (world.store.count_jobs(), world.store.count_volunteers()) == (1, 0)
    world.step(RULES.forget_after_s)
    assert world.store.count_jobs() == 0


def test_the_house_has_limits() -> None:
    world = World(Rules(max_jobs=2, max_jobs_of_one=1, max_volunteers=1))
    world.host()
    world.volunteer("a")
    with pytest.raises(Refusal, match="1 jobs of yours"):
        world.host("more-1")
    world.host("more-1", owner="another")
    with pytest.raises(Refusal, match="2 jobs") as jobs:
        world.host("most-1", owner="a third")
    with pytest.raises(Refusal, match="1 volunteers") as volunteers:
        world.volunteer("b")
    assert (jobs.value.status, volunteers.value.status) == (429, 429)
    assert jobs.value.retry_after_s > 0
    world.host()
    world.volunteer("a")


def test_in_a_large_group_the_others_hear_of_newcomers_now_and_then() -> None:
    world = World()
    host, first = world.host(maximum=1000), world.volunteer("first")
    others = [world.volunteer(f"v{n}") for n in range(99)]
    world.step()
    for number in range(5):
        late = world.volunteer(f"late{number}")
        world.step(0.1)
        assert len(host.last(rooms.RosterChanged).members) == 102 + number
        assert len(late.last(rooms.Matched).roster.members) == 102 + number
    assert not any(ear.all(rooms.RosterChanged) for ear in (first, *others))
    world.step(1.0)
    assert [len(ear.last(rooms.RosterChanged).members) for ear in others] == [106] * 99
    told = len(first.heard)
    world.step(1.0)
    assert len(first.heard) == told


def test_hours_begin() -> None:
    world = World()
    world.host()
    night = bodies.MachineBody(hours=bodies.HoursBody(start=60, end=120))
    guest = world.volunteer("a", machine=night)
    world.step()
    assert guest.last(rooms.StillWaiting).reason == "waiting: your hours begin at 01:00 UTC"
    world.wall = 3600.0
    world.step(1.0)
    assert guest.last(rooms.Matched).position == 1


def test_reasons_reach_everybody_a_few_at_a_time() -> None:
    world = World()
    ears = [world.volunteer(f"v{n}") for n in range(2 * TELL_AT_ONCE + 1)]
    world.step()
    world.host(requirements=bodies.RequirementsBody(gpu=True))
    for told in (TELL_AT_ONCE, 2 * TELL_AT_ONCE, 2 * TELL_AT_ONCE + 1):
        world.step()
        assert sum("GPU" in ear.last(rooms.StillWaiting).reason for ear in ears) == told
    assert not any(ear.all(rooms.Matched) for ear in ears)


def test_a_large_crowd_sits_down_in_several_passes_and_in_order() -> None:
    world = World()
    ears = [world.volunteer(f"v{n}") for n in range(SEATS_AT_ONCE + 5)]
    world.step()
    world.host(maximum=1000)
    world.step()
    assert [bool(ear.all(rooms.Matched)) for ear in ears] == [True] * SEATS_AT_ONCE + [False] * 5
    assert world.room.changed.is_set()
    world.step()
    assert [ear.last(rooms.Matched).position for ear in ears] == list(range(1, len(ears) + 1))


def gift(samples: int) -> bodies.GiftBody:
    return bodies.GiftBody(units=samples // 100, samples=samples, flop=1e6 * samples)


def signed(name: str, given: bodies.GiftBody, job: str = JOB) -> rooms.CreditSigned:
    text = credit_text(JobId(job), key_of("host").id, id_of(name), given.gift())
    return rooms.CreditSigned(job=job, gift=given, signature=key_of(name).sign_text(text).hex())


def test_credit_is_reported_offered_and_countersigned() -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    gifts = (
        rooms.Gave(volunteer=id_of("a"), gift=gift(500)),
        rooms.Gave(volunteer=id_of("stranger"), gift=gift(900)),
        rooms.Gave(volunteer="worker0", gift=gift(900)),
    )
    world.room.host_says(JOB, rooms.Credited(gifts=gifts), host)
    world.step()
    offer = guest.last(rooms.CreditOffered)
    assert (offer.job, offer.host, offer.gift) == (JOB, key_of("host").id, gift(500))
    assert world.store.count_credits() == 1, "only volunteers it was sent are credited"
    world.room.volunteer_says(id_of("a"), signed("a", gift(500)), guest)
    (credit,) = world.store.gave(id_of("a"))
    assert credit.agreed
    assert credit.signed == Gift(units=5, samples=500, flop=5e8)
    world.room.host_says(JOB, rooms.Credited(gifts=gifts), host)
    world.step()
    assert len(guest.all(rooms.CreditOffered)) == 1, "the same again is no news"


@pytest.mark.parametrize(
    "said",
    [
        signed("b", gift(500)),
        signed("a", gift(500), "other-1"),
        rooms.CreditSigned(job=JOB, gift=gift(900), signature=signed("a", gift(500)).signature),
    ],
)
def test_a_countersignature_that_is_none(said: rooms.CreditSigned) -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    given = rooms.Credited(gifts=(rooms.Gave(volunteer=id_of("a"), gift=gift(500)),))
    world.room.host_says(JOB, given, host)
    with pytest.raises(Refusal, match=r"not signed with your key|Nobody has reported"):
        world.room.volunteer_says(id_of("a"), said, guest)


def test_unsigned_credit_is_offered_to_who_comes_back() -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    world.room.volunteer_says(id_of("a"), rooms.Leaving(), guest)
    given = rooms.Credited(gifts=(rooms.Gave(volunteer=id_of("a"), gift=gift(300)),))
    world.room.host_says(JOB, given, host)
    back = world.volunteer("a", session="2")
    world.step()
    assert back.last(rooms.CreditOffered).gift == gift(300)


def test_only_those_we_sent_are_credited_and_once_a_report() -> None:
    world = World()
    victim = world.volunteer("victim", wants=bodies.WantsBody(job="nothing-1"))
    own = bodies.MemberBody(position=0, id="worker0", name="own")
    told = bodies.MemberBody(position=1, id=id_of("victim"), name="victim")
    body = bodies.OfferBody(id="mine-1", title="mine", address="h:1")
    host = Ear()
    publish = rooms.Publish(offer=body, members=(own, told), next_position=2)
    world.room.host_arrives(key_of("host").public.hex(), publish, host)
    gifts = tuple(rooms.Gave(volunteer=id_of("victim"), gift=gift(n)) for n in range(200))
    world.room.host_says(JobId("mine-1"), rooms.Credited(gifts=gifts), host)
    world.step()
    assert not victim.all(rooms.CreditOffered)
    assert world.store.count_credits() == 0


def test_another_host_with_the_same_job_id_cannot_touch_credit() -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    given = rooms.Credited(gifts=(rooms.Gave(volunteer=id_of("a"), gift=gift(500)),))
    world.room.host_says(JOB, given, host)
    world.room.volunteer_says(id_of("a"), signed("a", gift(500)), guest)
    world.room.withdraw(key_of("host").public.hex(), JOB)
    thief = world.host(owner="thief")
    world.step()
    assert guest.last(rooms.Matched).listing.offer.key == key_of("thief").id
    nothing = rooms.Credited(gifts=(rooms.Gave(volunteer=id_of("a"), gift=gift(0)),))
    world.room.host_says(JOB, nothing, thief)
    (credit,) = world.store.gave(id_of("a"))
    assert credit.agreed
    assert credit.reported.samples == 500


def test_who_gave_nothing_leaves_no_trace_when_the_job_is_forgotten() -> None:
    world = World()
    world.host()
    world.volunteer("a")
    world.step()
    assert world.store.count_credits() == 1
    world.room.withdraw(key_of("host").public.hex(), JOB)
    assert world.store.count_credits() == 0


def test_who_comes_back_to_a_job_that_is_over_hears_so() -> None:
    world = World()
    host = world.host()
    world.room.host_says(JOB, rooms.StateChanged(state="finished"), host)
    guest = world.volunteer("a", working_for=JOB)
    world.host("next-1")
    world.step()
    assert guest.last(rooms.JobEnded) == rooms.JobEnded(job=JOB, state="finished")
    assert guest.last(rooms.Matched).listing.offer.id == "next-1"


def test_a_volunteer_is_never_taken_for_the_hosts_own_worker() -> None:
    world = World()
    world.host(worker=id_of("a"))
    guest = world.volunteer("a")
    world.step()
    assert guest.last(rooms.Matched).position == 1
    world.host(worker="another")
    again = world.volunteer("a", working_for=JOB)
    world.step()
    assert again.last(rooms.Matched).position == 1


def test_who_is_absent_makes_room_for_who_comes() -> None:
    world = World(Rules(max_volunteers=2))
    for name in "ab":
        world.room.volunteer_leaves(id_of(name), world.volunteer(name))
    world.volunteer("c")
    assert {record.volunteer.name for record in world.store.volunteers()} == {"b", "c"}


def test_only_so_many_absent_ones_are_remembered() -> None:
    world = World(Rules(max_absent=1))
    for name in "abc":
        world.room.volunteer_leaves(id_of(name), world.volunteer(name))
    assert [record.volunteer.name for record in world.store.volunteers()] == ["c"]


class Troubled(MemoryStore):
    """Its disk is full, or it takes a while."""

    why = ""

    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()

    @property
    def trouble(self) -> str:
        return self.why

    async def kept(self) -> None:
        if self.why:
            raise CannotWrite(self.why)
        await self.ready.wait()


def test_nobody_is_let_in_whom_nothing_can_be_promised() -> None:
    store = Troubled()
    world = World(store=store)
    store.why = "the disk is full"
    for come in (world.host, lambda: world.volunteer("a")):
        with pytest.raises(Refusal, match="the disk is full") as refusal:
            come()
        assert (refusal.value.status, refusal.value.retry_after_s > 0) == (503, True)


def test_letters_wait_for_what_they_promise_and_for_nothing_else() -> None:
    async def scenario() -> None:
        store = Troubled()
        world = World(store=store)
        first = world.volunteer("a")
        world.room.step()
        delivering = asyncio.create_task(world.room.deliver())
        await asyncio.sleep(0)
        second = world.volunteer("b")
        world.room.step()
        assert not first.heard
        store.ready.set()
        await delivering
        assert first.last(rooms.Welcome)
        assert not second.heard, "what was written meanwhile is not kept yet"
        store.why = "the disk is full"
        with pytest.raises(CannotWrite):
            await world.room.deliver()
        assert not second.heard
        store.why = ""
        await world.room.deliver()
        assert [type(said) for said in second.heard] == [rooms.Welcome, rooms.StillWaiting]

    asyncio.run(scenario())


def test_a_withdrawn_job_frees_its_members() -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    with pytest.raises(Refusal, match="another key"):
        world.room.withdraw(key_of("a").public.hex(), JOB)
    world.room.withdraw(key_of("host").public.hex(), JOB)
    world.step()
    assert host.closed
    assert guest.last(rooms.JobEnded).state == "stopped"
    assert guest.last(rooms.StillWaiting).reason == "waiting: no job is open"
    assert world.store.jobs() == []


def test_who_is_forgotten_is_shown_out() -> None:
    world = World()
    host, guest = world.host(), world.volunteer("a")
    world.step()
    world.room.forget(key_of("a").public.hex())
    world.step()
    assert isinstance(guest.closed, Refusal)
    assert positions(host.last(rooms.RosterChanged)) == [(0, "own")]
    world.room.forget(key_of("host").public.hex())
    assert isinstance(host.closed, Refusal)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["come", "come", "go", "lose", "free", "job", "end", "away", "wait", "restart"]
            ),
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
            world.room.volunteer_says(id_of(name), rooms.Leaving(), guests.pop(name))
        elif what == "lose" and name in guests:
            world.room.volunteer_leaves(id_of(name), guests.pop(name))
        elif what == "free" and name in guests:
            world.room.volunteer_says(id_of(name), rooms.Free(), guests[name])
        elif what == "end" and job in hosts and not hosts[job].closed:
            world.room.host_says(JobId(job), rooms.StateChanged(state="stopped"), hosts[job])
        elif what == "away" and job in hosts:
            world.room.host_leaves(JobId(job), hosts.pop(job))
        elif what == "restart":
            world.begin()
            guests, hosts = {}, {}
        world.step()
        check(world, guests, places)


def check(world: World, guests: dict[str, Ear], places: dict[tuple[str, str], int]) -> None:
    rosters = {r.listing.id: world.room._rosters.of(r.listing.id) for r in world.store.jobs()}
    present = [m.id for roster in rosters.values() for m in roster.members if m.position > 0]
    assert len(present) == len(set(present))
    for of, roster in rosters.items():
        assert len(roster.members) <= 3
        for member in roster.members:
            assert places.setdefault((of, member.id), member.position) == member.position
    for of in rosters:
        given_to = [place for (owner, _), place in places.items() if owner == of]
        assert len(given_to) == len(set(given_to))
    for record in world.store.volunteers():
        assert (record.id in present) == (record.job is not None)
    for guest, ear in guests.items():
        if not ear.closed and id_of(guest) not in present:
            assert isinstance(ear.heard[-1], rooms.StillWaiting | rooms.StillHere)


# -- ways to the host -------------------------------------------------------------------------

WAYS = ("192.0.2.7:8701", "relay:relay.example.org:8702")


def ways(ear: Ear) -> tuple[str, tuple[str, ...]]:
    """Where a member believes its host to be."""
    offer = ear.last(rooms.Matched).listing.offer
    return offer.address, offer.routes


def test_members_are_told_the_ways_and_the_whole_key_and_nobody_else_is() -> None:
    world = World()
    world.host(routes=WAYS, public=key_of("host").public.hex())
    member = world.volunteer("a")
    world.step()
    offer = member.last(rooms.Matched).listing.offer
    assert offer.routes == WAYS
    assert offer.public == key_of("host").public.hex()
    record = world.store.job(JOB)
    assert record is not None
    shown = rooms.encode(world.room.summary(record)).decode()
    for hidden in (*WAYS, "h:1", offer.public):
        assert hidden not in shown


def test_a_job_that_names_another_key_is_refused() -> None:
    world = World()
    with pytest.raises(Refusal, match="another public key") as refused:
        world.host(public=key_of("somebody else").public.hex())
    assert refused.value.status == 400
    assert world.store.job(JOB) is None


def test_the_key_is_the_one_that_signed_though_the_host_does_not_say() -> None:
    world = World()
    world.host(key="0123456789abcdef")
    record = world.store.job(JOB)
    assert record is not None
    assert record.listing.offer.public == key_of("host").public.hex()
    assert record.listing.offer.key == key_of("host").id


def test_a_host_that_moves_is_found_by_its_members_at_once_and_by_who_comes_later() -> None:
    world = World()
    host, member = world.host(), world.volunteer("a")
    waiting = world.volunteer("b", wants=bodies.WantsBody(job="other-1"))
    world.step()
    before = member.last(rooms.Matched)
    world.room.host_says(JOB, rooms.Moved(address="h:2", routes=WAYS), host)
    assert world.room.changed.is_set(), "a pass is due"
    world.step()
    told = member.last(rooms.Matched)
    assert ways(member) == ("h:2", WAYS)
    assert told.reason == "the host has moved"
    assert (told.position, told.asked) == (before.position, before.asked)
    assert not waiting.all(rooms.Matched)
    late = world.volunteer("c")
    world.step()
    assert ways(late) == ("h:2", WAYS)
    assert len(late.all(rooms.Matched)) == 1


def test_a_host_that_moves_nowhere_is_no_news() -> None:
    world = World()
    host, member = world.host(), world.volunteer("a")
    world.step()
    world.room.host_says(JOB, rooms.Moved(address="h:1"), host)
    world.step()
    assert len(member.all(rooms.Matched)) == 1


def test_of_a_host_that_moves_often_the_newest_is_told_now_and_then() -> None:
    world = World()
    host, member = world.host(), world.volunteer("a")
    world.step()
    for port in range(2, 52):
        world.room.host_says(JOB, rooms.Moved(address=f"h:{port}"), host)
        world.step(0.5)
        world.room.volunteer_says(id_of("a"), rooms.StillHere(), member)
    heard = [told.listing.offer.address for told in member.all(rooms.Matched)]
    assert 5 <= len(heard) <= 2 + 25 / MOVED_S
    assert heard[:2] == ["h:1", "h:2"]
    world.step(MOVED_S)
    assert ways(member) == ("h:51", ())


def test_where_a_host_has_moved_is_remembered_and_nonsense_is_not() -> None:
    world = World()
    host, member = world.host(), world.volunteer("a")
    world.step()
    world.room.host_says(JOB, rooms.Moved(address="h:2", routes=WAYS), host)
    for nonsense in (rooms.Moved(address="h:0"), rooms.Moved(address="h:3", routes=("here",))):
        with pytest.raises(MessageError):
            world.room.host_says(JOB, nonsense, host)
    world.begin()
    back = world.volunteer("a", session="2", working_for=JOB)
    world.step()
    assert ways(back) == ("h:2", WAYS)
    assert member is not back


def test_who_was_away_while_the_host_moved_hears_it_on_coming_back() -> None:
    world = World()
    host, member = world.host(), world.volunteer("a")
    world.step()
    world.room.volunteer_leaves(id_of("a"), member)
    world.room.host_says(JOB, rooms.Moved(address="h:2"), host)
    world.step()
    back = world.volunteer("a", working_for=JOB)
    world.step()
    assert ways(back) == ("h:2", ())


def test_a_host_moves_and_its_job_is_withdrawn_in_the_same_breath() -> None:
    world = World()
    host = world.host()
    world.volunteer("a")
    world.step()
    world.room.host_says(JOB, rooms.Moved(address="h:2"), host)
    world.room.withdraw(key_of("host").public.hex(), JOB)
    world.step()
    assert world.store.job(JOB) is None
