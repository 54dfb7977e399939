"""Every match and every wait has a reason that a person can read, and that tells no secrets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import MAX_ROSTER
from crowdgrad.domain.matching import Hours, Machine, Requirements, VolunteerRecord
from crowdgrad.planner import survey
from crowdgrad.planner.matchmaking import OVERDUE, Hall, Opening, match
from tests.planner.matching_worlds import (
    NOON,
    World,
    may_know,
    opening,
    waiting,
    worlds_st,
)


def reason(volunteer: VolunteerRecord, *jobs: Opening, **passed_over: int) -> str:
    (decision,) = match([volunteer], jobs, now=NOON, passed_over=passed_over)
    assert (decision.job is None) == decision.reason.startswith("waiting: ")
    return decision.reason.removeprefix("waiting: ")


def needing(number: int = 0, **needs: Any) -> Opening:
    return opening(number, needs=Requirements(**needs))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (opening(1, minimum=2, members=1), "job “j1” needs 2 volunteers and had 1"),
        (opening(1, minimum=2), "job “j1” needs 2 volunteers and had none"),
        (opening(1, minimum=1), "job “j1” needs 1 volunteer and had none"),
        (opening(1), "job “j1” had no volunteer yet"),
        (opening(1, members=2), "job “j1” has room (2 of 8)"),
    ],
)
def test_why_somebody_comes(job: Opening, why: str) -> None:
    assert reason(waiting(), job) == why
    assert reason(waiting(job="job-1"), job) == f"{why}; you asked for it"


def test_why_this_job() -> None:
    job = opening(0, members=1, cause=" Medicine", key="k")
    assert reason(waiting(causes=("art", "medicine")), job) == (
        "job “j0” has room (1 of 8); you like Medicine"
    )
    assert (
        reason(waiting(), job, k=OVERDUE) == "job “j0” has room (1 of 8); its host had waited long"
    )
    assert reason(waiting(), job, k=OVERDUE - 1) == "job “j0” has room (1 of 8)"


FULL = opening(0, members=8)
SILENT = "the host of 1 open job does not answer"


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ([], "no job is open"),
        ([opening(0, state="finished"), opening(1, visibility="link")], "no job is open"),
        ([opening(0, state="finished", host="gone")], "no job is open"),
        ([opening(0, host="gone"), opening(1, state="stopped")], SILENT),
        ([opening(0, host="suspect", members=8, needs=Requirements(gpu=True))], SILENT),
        (
            [opening(n, host="gone") for n in range(3)],
            "the hosts of 3 open jobs do not answer",
        ),
        ([opening(0, host="gone"), opening(1, members=8)], "job “j1” is full (8 of 8)"),
        ([opening(0, host="gone", visibility="link")], "no job is open"),
        ([opening(0, host="gone", visibility="group")], "no job is open"),
        ([FULL], "job “j0” is full (8 of 8)"),
        ([opening(0, places=MAX_ROSTER)], "job “j0” has given away all its 100,000 places"),
        ([FULL, opening(1, members=9), opening(2, members=8)], "all 3 open jobs are full"),
        ([needing(gpu=True)], "job “j0” needs a GPU and this machine has none"),
        (
            [needing(n, gpu=True) for n in range(3)],
            "3 jobs need a GPU and this machine has none",
        ),
        (
            [FULL, opening(1, members=8), *(needing(n, gpu=True) for n in (2, 3, 4))],
            "3 jobs need a GPU and this machine has none, 2 are full",
        ),
        (
            [FULL, opening(1, members=8), needing(2, cores=5)],
            "2 jobs are full, 1 needs 5 cores and this machine has 4",
        ),
        (
            [needing(memory_mb=16_000)],
            "job “j0” needs 16,000 MB of memory and this machine has 8,000",
        ),
        (
            [needing(0, memory_mb=16_000), needing(1, memory_mb=9000)],
            "2 jobs need more than this machine's 8,000 MB of memory",
        ),
        (
            [needing(gflops=2.5)],
            "job “j0” needs 2.5 GFLOPS and this machine does not say what it has",
        ),
        (
            [needing(0, download_mbps=5), needing(1, download_mbps=9)],
            "2 jobs ask for a fast download and this machine does not say what it has",
        ),
        ([needing(kinds=frozenset({"browser"}))], "job “j0” takes no volunteers outside a browser"),
        (
            [needing(engines=frozenset({"torch", "jax"}))],
            "job “j0” needs the engine jax or torch and this machine has onnxruntime",
        ),
        (
            [needing(n, engines=frozenset({"torch"})) for n in range(2)],
            "2 jobs need another engine and this machine has onnxruntime",
        ),
        (
            [FULL, needing(1, gpu=True), needing(2, cores=9), needing(3, memory_mb=9000)],
            "1 job is full, 1 needs a GPU and this machine has none, "
            "1 needs 9 cores and this machine has 4",
        ),
        ([opening(0, members=8, needs=Requirements(gpu=True))], "job “j0” needs a GPU and this "
         "machine has none"),
    ],
)  # fmt: skip
def test_why_somebody_waits(jobs: list[Opening], why: str) -> None:
    assert reason(waiting(), *jobs) == why


GPU = Machine(gpu="H200", gpu_memory_mb=1000, gflops=3.25, download_mbps=8, most_download_mb=1500)


@pytest.mark.parametrize(
    ("needs", "one", "many"),
    [
        (
            {"gpu_memory_mb": 2000},
            "job “j0” needs 2,000 MB of GPU memory and this machine has 1,000",
            "2 jobs need more than this machine's 1,000 MB of GPU memory",
        ),
        (
            {"gflops": 1000.0},
            "job “j0” needs 1,000 GFLOPS and this machine has 3.25",
            "2 jobs need more than this machine's 3.25 GFLOPS",
        ),
        (
            {"download_mbps": 50.0},
            "job “j0” needs 50 Mbit/s of download and this machine has 8",
            "2 jobs need more than this machine's 8 Mbit/s of download",
        ),
        (
            {"data_mb": 2000},
            "job “j0” has 2,000 MB to fetch and you allow 1,500",
            "2 jobs have more to fetch than the 1,500 MB you allow",
        ),
    ],
)
def test_amounts_are_named(needs: dict[str, Any], one: str, many: str) -> None:
    assert reason(waiting(machine=GPU), needing(**needs)) == one
    assert reason(waiting(machine=GPU), needing(0, **needs), needing(1, **needs)) == many


def test_wishes_are_named() -> None:
    jobs = [opening(n, cause="art") for n in range(5)]
    medical = waiting(causes=("medicine", "climate"), only_causes=True)
    none = "is for a cause you named (medicine, climate)"
    assert reason(medical, *jobs) == f"none of the 5 open jobs {none}"
    assert reason(medical, jobs[0]) == ("job “j0” is not for a cause you named (medicine, climate)")
    full = [opening(n, cause="climate", members=8) for n in (7, 8)]
    assert reason(medical, *full, *jobs) == (
        "5 jobs are not for a cause you named (medicine, climate), 2 are full"
    )
    assert "(you named none)" in reason(waiting(only_causes=True), *jobs)


def test_named_hosts_are_named() -> None:
    theirs = waiting(hosts=frozenset({"host-1", "host-2"}))
    assert reason(theirs, opening(0), opening(3)) == "the hosts you named or trust have no open job"
    assert reason(theirs, opening(0), opening(1, members=8), opening(2, members=8)) == (
        "all 2 open jobs of the hosts you named or trust are full"
    )
    assert reason(theirs, opening(0), needing(1, gpu=True), needing(2, cores=9)) == (
        "1 job of the hosts you named or trust needs a GPU and this machine has none, "
        "1 needs 9 cores and this machine has 4"
    )


def test_what_was_left_is_named() -> None:
    left = waiting(avoid=("job-0",))
    assert (
        reason(left, opening(0), FULL) == "no job has room besides 1 that you left or will not do"
    )
    assert reason(left, opening(0), needing(1, gpu=True)) == (
        "you left or will not do 1 job, 1 needs a GPU and this machine has none"
    )


EVENING = Machine(hours=Hours(start=22 * 60 + 5, end=60))


@pytest.mark.parametrize(
    ("volunteer", "why"),
    [
        (waiting(job="x"), "nobody has published a job called x; a code looks like K7Q-2MP"),
        (
            waiting(job="a\nb\x1b"),
            "nobody has published a job called a?b?; a code looks like K7Q-2MP",
        ),
        (waiting(job="job-1"), "job “j1” is over (stopped)"),
        (waiting(job="AAA-A24"), "the host of job “j2” does not answer"),
        (waiting(job="job-3"), "job “j3” is full (8 of 8)"),
        (waiting(job="job-4"), "job “j4” needs a GPU and this machine has none"),
        (waiting(job="job-5", avoid=("job-5",)), "you left or will not do job “j5”"),
        (
            waiting(job="job-5", hosts=frozenset({"else"})),
            "job “j5” is not of a host you named or trust",
        ),
        (
            waiting(job="job-6"),
            "nobody has published a job called job-6; a code looks like K7Q-2MP",
        ),
        (waiting(job="AAA-A28"), "nobody has published a job called AAA-A28"),
        (waiting(job="job-7"), "job “j7” is full (8 of 8)"),
        (waiting(job="job-5", machine=EVENING), "your hours begin at 22:05 UTC"),
        (waiting(job="job-1", machine=EVENING), "job “j1” is over (stopped)"),
        (waiting(machine=EVENING), "your hours begin at 22:05 UTC"),
    ],
)
def test_why_somebody_waits_who_named_a_job(volunteer: VolunteerRecord, why: str) -> None:
    jobs = [
        opening(1, state="stopped"),
        opening(2, host="suspect"),
        opening(3, members=8),
        needing(4, gpu=True),
        opening(5),
        opening(6, visibility="group", invited=frozenset({"v001"})),
        opening(7, visibility="link", members=8),
    ]
    assert reason(volunteer, *jobs) == why


def test_who_asks_before_the_seat_is_taken_is_told_that_there_is_one() -> None:
    hall = Hall([opening(0, members=7)], now=NOON, passed_over={})
    for volunteer in (waiting(), waiting(job="job-0")):
        assert hall.why(volunteer) == "waiting: job “j0” has room, in a moment it is your turn"
    assert hall.seat(waiting()) is not None
    assert hall.why(waiting()) == "waiting: job “j0” is full (8 of 8)"


long_st = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_reason_is_one_short_line_whatever_strangers_write(data: st.DataObject) -> None:
    jobs = [
        opening(
            number, title=data.draw(long_st), cause=data.draw(long_st),
            minimum=data.draw(st.sampled_from([0, 1000])), maximum=1000,
            members=data.draw(st.sampled_from([0, 999, 1000])),
            needs=data.draw(st.sampled_from([
                Requirements(), Requirements(memory_mb=10**12 - 1),
                Requirements(engines=frozenset(f"{n}" * 64 for n in range(8))),
            ])),
        )
        for number in range(data.draw(st.integers(0, 3)))
    ]  # fmt: skip
    causes = tuple(data.draw(st.lists(long_st, max_size=16)))
    volunteer = waiting(
        causes=causes, only_causes=data.draw(st.booleans()), engine="e" * 64,
        job=data.draw(st.none() | st.just("job-0") | long_st.map(lambda text: text[:64])),
    )  # fmt: skip
    said = match([volunteer], jobs, now=NOON, passed_over={"host-0": 99})[0].reason
    assert 0 < len(said) <= 300
    assert said.isprintable()


def test_a_sentence_that_would_be_too_long_is_cut() -> None:
    """All that can be long at once: an engine's name, causes, hosts, and three obstacles."""
    wants = {"causes": ("c" * 120, "d" * 120, "e" * 120, "f"), "only_causes": True}
    volunteer = waiting(
        engine="x" * 64, hosts=frozenset({"k"}), machine=Machine(most_download_mb=10**11), **wants
    )
    needs = [Requirements(engines=frozenset({"y"}))] * 3 + [Requirements(data_mb=10**11 + 1)] * 3
    jobs = [opening(n, key="k", cause="f", needs=need) for n, need in enumerate(needs)]
    jobs += [opening(n, key="k", cause="g") for n in (6, 7, 8)]
    said = match([volunteer], jobs, now=NOON)[0].reason
    assert said.startswith("waiting: 3 jobs of the hosts you named or trust need another engine")
    assert len(said) == 300
    assert said.endswith("…")


@settings(max_examples=100, deadline=None)
@given(worlds_st)
def test_hidden_jobs_do_not_exist_for_others(world: World) -> None:
    """Not in what is decided, not in what is said, not in any number."""
    queue, openings, passed_over = world.queue, world.openings, world.passed_over
    hidden = [one for one in openings if one.listing.offer.visibility != "public"]
    outside = [v for v in queue if not any(may_know(v, one) for one in hidden)]
    # A host's help is counted over all its jobs, and says nothing about which.
    hidden = [opening(n + 20, **_like(one)) for n, one in enumerate(hidden)]
    public = [one for one in openings if one.listing.offer.visibility == "public"]
    alone = match(outside, public, now=NOON, passed_over=passed_over)
    assert match(outside, [*public, *hidden], now=NOON, passed_over=passed_over) == alone


def _like(one: Opening) -> dict[str, Any]:
    offer = one.listing.offer
    return {
        "members": one.members, "state": one.listing.state, "host": one.presence, "at": 0.0,
        "visibility": offer.visibility, "invited": offer.invited, "cause": offer.cause,
        "needs": offer.requirements, "key": "hidden",
    }  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(worlds_st)
def test_what_one_is_told_does_not_depend_on_who_asked_before(world: World) -> None:
    shared = Hall(world.openings, now=NOON, passed_over={})
    for volunteer in world.queue:
        own = Hall(world.openings, now=NOON, passed_over={})
        assert shared.why(volunteer) == own.why(volunteer)


def test_a_crowd_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand measured machines, none like the other, of which no job can tell two apart."""
    looks = 0
    real = survey.obstacle

    def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return real(*args)

    monkeypatch.setattr(survey, "obstacle", counted)
    jobs = [opening(n, members=8) for n in range(25)]
    jobs += [needing(25, gflops=2.0), needing(26, memory_mb=64_000)]
    jobs += [opening(27, visibility="group", invited=frozenset({"v007"}), members=8)]
    hall = Hall(jobs, now=NOON, passed_over={})
    told = set()
    for number in range(1000):
        machine = Machine(gflops=number / 1000, download_mbps=number, gpu=f"{number}")
        somebody = waiting(
            number, memory_mb=number, engine=f"{number}", machine=machine,
            causes=(f"{number}",), avoid=(f"{number}",), cores=1 + number,
        )  # fmt: skip
        assert hall.seat(somebody) is None
        told.add(hall.why(somebody))
    assert looks <= 2 * 3 * len(jobs), "the invited one, the one that does not know, all the others"
    assert len(told) == 1000, "each is told what it has itself"
