"""Who goes where, example by example; places, presence and the rhythm of the beats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.job import MAX_ROSTER, Member
from crowdgrad.domain.matching import Hours, Machine, Requirements, VolunteerRecord
from crowdgrad.domain.work import VolunteerId
from crowdgrad.planner.matchmaking import (
    OVERDUE,
    Hall,
    Opening,
    Patience,
    match,
    place,
    presence,
    rhythm,
)
from tests.planner.matching_worlds import NOON, opening, waiting


def jobs_of(
    queue: list[VolunteerRecord], openings: list[Opening], **passed_over: int
) -> list[str | None]:
    return [d.job for d in match(queue, openings, now=NOON, passed_over=passed_over)]


def crowd(size: int) -> list[VolunteerRecord]:
    return [waiting(number) for number in range(size)]


def test_a_job_that_lacks_its_minimum_goes_before_an_older_one_with_room() -> None:
    jobs = [opening(0, members=2, minimum=2), opening(1, members=1, minimum=2)]
    assert jobs_of(crowd(2), jobs) == ["job-1", "job-0"]


def test_groups_fill_one_after_the_other() -> None:
    jobs = [opening(0, minimum=2, at=2.0), opening(1, minimum=3, at=1.0), opening(2, at=1.5)]
    assert jobs_of(crowd(6), jobs) == ["job-1"] * 3 + ["job-2"] + ["job-0"] * 2


def test_a_job_with_nobody_lacks_one() -> None:
    assert jobs_of(crowd(1), [opening(0, members=1, help=0.0), opening(1)]) == ["job-1"]


def test_the_host_with_the_least_help_goes_first_once_no_job_lacks_anybody() -> None:
    jobs = [opening(0, members=1, help=9.0), opening(1, members=3, help=3.0)]
    assert jobs_of(crowd(1), jobs) == ["job-1"], "three slow ones are less than a fast one"


def test_help_is_counted_over_all_jobs_of_a_host() -> None:
    jobs = [
        opening(0, members=1, help=2.0, key="big"),
        opening(1, members=8, help=8.0, key="big"),
        opening(2, members=1, help=5.0, key="small"),
    ]
    assert jobs_of(crowd(1), jobs) == ["job-2"]


def test_help_grows_with_the_speed_of_those_who_come() -> None:
    jobs = [opening(0, members=1, help=1.0), opening(1, members=1, help=2.0)]
    fast = Machine(gflops=5.0)
    assert jobs_of([waiting(0, machine=fast), waiting(1)], jobs) == ["job-0", "job-1"]
    assert jobs_of([waiting(0), waiting(1)], jobs) == ["job-0", "job-0"], "an unknown one counts 1"


def test_the_cause_one_likes_best_goes_before_everything_else() -> None:
    jobs = [
        opening(0, minimum=2),
        opening(1, members=5, cause="Climate "),
        opening(2, members=5, cause="medicine"),
    ]
    queue = [
        waiting(0, causes=("MEDICINE", "climate")),
        waiting(1, causes=("art", "climate")),
        waiting(2, causes=("art",)),
    ]
    assert jobs_of(queue, jobs) == ["job-2", "job-1", "job-0"]


def test_a_job_without_a_cause_is_nobodys_favourite() -> None:
    assert jobs_of([waiting(0, causes=(" ",), only_causes=True)], [opening(0)]) == [None]


def test_a_host_that_waited_long_goes_first() -> None:
    jobs = [opening(0, minimum=8, key="a"), opening(1, members=1, key="b")]
    assert jobs_of(crowd(1), jobs, b=OVERDUE - 1) == ["job-0"]
    assert jobs_of(crowd(2), jobs, b=OVERDUE) == ["job-1", "job-0"], "and then begins anew"


def test_of_those_who_waited_long_the_longest_goes_first() -> None:
    jobs = [opening(0, minimum=8, key="a"), opening(1, minimum=8, key="b"), opening(2, key="c")]
    assert jobs_of(crowd(1), jobs, a=OVERDUE, b=OVERDUE + 2, c=OVERDUE + 1) == ["job-1"]


def test_only_who_could_have_come_passes_a_host_over() -> None:
    jobs = [
        opening(0, key="taken"),
        opening(1, key="equal"),
        opening(2, key="full", members=8),
        opening(3, key="gpu", needs=Requirements(gpu=True)),
        opening(4, key="silent", host="suspect"),
        opening(5, key="hidden", visibility="link"),
        opening(6, key="taken"),
    ]
    hall = Hall(jobs, now=NOON, passed_over={"full": 3, "unknown": 9})
    assert hall.seat(waiting(0)) is not None
    assert hall.passed_over == {"equal": 1, "full": 3}
    assert hall.seat(waiting(1)) is not None
    assert hall.passed_over == {"taken": 1, "full": 3}, "somebody came"


def test_whoever_likes_another_job_better_passes_nobody_over() -> None:
    jobs = [opening(0, cause="art"), opening(1), opening(2, members=1, cause="art")]
    hall = Hall(jobs, now=NOON, passed_over={})
    assert hall.seat(waiting(0, causes=("art",))) is not None
    assert hall.passed_over == {"host-2": 1}
    assert hall.seat(waiting(1, job="job-0")) is not None
    assert hall.passed_over == {"host-2": 1}, "it had no choice"


ODD = Requirements(
    cores=4, memory_mb=8000, gpu=True, gpu_memory_mb=2000, gflops=1.5, download_mbps=10.0,
    data_mb=500, engines=frozenset({"torch", "onnxruntime"}), kinds=frozenset({"native"}),
)  # fmt: skip
FIT = {
    "gpu": "H200", "gpu_memory_mb": 2000, "gflops": 1.5, "download_mbps": 10.0,
    "most_download_mb": 500,
}  # fmt: skip


LACKS = [
    {"cores": 3}, {"memory_mb": 7999}, {"engine": "own"}, {"engine": ""}, {"gpu": ""},
    {"gpu_memory_mb": 1999}, {"gflops": 1.49}, {"gflops": 0.0}, {"download_mbps": 9.9},
    {"download_mbps": 0.0}, {"most_download_mb": 499}, {"most_download_mb": 1}, {"kind": "browser"},
]  # fmt: skip


def somebody(number: int, **changes: Any) -> VolunteerRecord:
    """One that has just what is needed, but for `changes`."""
    about = {k: v for k, v in changes.items() if k in ("cores", "memory_mb", "engine")}
    rest = {k: v for k, v in changes.items() if k not in about}
    return waiting(number, machine=Machine(**FIT | rest), **about)


@pytest.mark.parametrize("lack", LACKS, ids=str)
def test_every_requirement_counts(lack: dict[str, Any]) -> None:
    """… and nobody is taken for somebody else who has just been looked at."""
    job = opening(0, needs=ODD)
    queue = [somebody(0), somebody(1, **lack), somebody(2), somebody(3, most_download_mb=0)]
    assert jobs_of(queue, [job]) == ["job-0", None, "job-0", "job-0"]
    assert jobs_of(queue[1:], [job]) == [None, "job-0", "job-0"]


@pytest.mark.parametrize(
    "wish",
    [
        {"avoid": ("job-0",)}, {"hosts": frozenset({"else"})}, {"only_causes": True},
        {"causes": ("art",), "only_causes": True}, {"job": "nowhere"},
    ],
    ids=str,
)  # fmt: skip
def test_every_wish_counts(wish: dict[str, Any]) -> None:
    queue = [waiting(0, **wish), waiting(1), waiting(2, **wish)]
    assert jobs_of(queue, [opening(0)]) == [None, "job-0", None]


def test_outside_its_hours_nobody_is_sent_anywhere() -> None:
    night = waiting(0, machine=Machine(hours=Hours(start=22 * 60, end=6 * 60)), job="job-0")
    for hour, job in [(21.99, None), (22, "job-0"), (23, "job-0"), (5.99, "job-0"), (6, None)]:
        now = NOON + (hour - 12) * 3600
        assert match([night], [opening(0)], now=now)[0].job == job


def test_a_job_is_found_by_its_id_and_however_its_code_is_typed() -> None:
    for typed in ("job-0", "AAA-A22", "aaaa22", "aaa a22"):
        assert jobs_of([waiting(0, job=typed)], [opening(0)]) == ["job-0"]


def test_a_link_is_for_those_who_have_it() -> None:
    hidden = opening(0, visibility="link")
    assert jobs_of([waiting(0), waiting(1, job="AAA-A22"), waiting(2, job="job-0")], [hidden]) == [
        None,
        "job-0",
        "job-0",
    ]


def test_a_group_is_for_the_invited_who_need_not_name_it() -> None:
    group = opening(0, visibility="group", invited=frozenset({"v000", "v001"}))
    queue = [waiting(0), waiting(1, job="job-0"), waiting(2), waiting(3, job="job-0")]
    assert jobs_of(queue, [group]) == ["job-0", "job-0", None, None]


def test_hosts_can_be_named() -> None:
    queue = [waiting(0, hosts=frozenset({"host-1"})), waiting(1, hosts=frozenset())]
    assert jobs_of(queue, [opening(0), opening(1)]) == ["job-1", None]


def test_a_full_hall_has_no_room() -> None:
    jobs = [
        opening(0, members=8),
        opening(1, state="finished"),
        opening(2, host="gone"),
        opening(3, places=MAX_ROSTER),
    ]
    hall = Hall(jobs, now=NOON, passed_over={})
    assert not hall.room
    assert hall.seat(waiting(0, job="job-1")) is None
    hall = Hall([*jobs, opening(4, maximum=1)], now=NOON, passed_over={})
    assert hall.room
    assert hall.seat(waiting(0)) is not None
    assert not hall.room
    assert hall.seat(waiting(1)) is None


@given(st.lists(st.integers(0, 8), max_size=40))
def test_places_are_unique_and_stable(arrivals: list[int]) -> None:
    members: dict[VolunteerId, Member] = {}
    next_position = 1
    for number in arrivals:
        volunteer = VolunteerId(f"v{number}")
        member, reason = place(members.get(volunteer), next_position, volunteer, "name")
        assert reason
        assert members.setdefault(volunteer, member) == member, "a place stays its owner's"
        next_position = max(m.position for m in members.values()) + 1
    positions = [m.position for m in members.values()]
    assert sorted(positions) == list(range(1, len(members) + 1))


def test_silence_makes_suspect_then_gone() -> None:
    patience = Patience(suspect_after_s=3, gone_after_s=10)
    assert presence(0.0, True, patience)[0] == "alive"
    assert presence(0.0, False, patience)[0] == "suspect"
    assert presence(3.0, True, patience)[0] == "suspect"
    assert presence(10.0, True, patience) == ("gone", "silent for 10 s")
    assert presence(10.0, False, patience)[0] == "gone"
    with pytest.raises(ValueError, match="suspect after"):
        Patience(suspect_after_s=11, gone_after_s=10)


@given(st.floats(-1e10, -1e-9))
def test_whoever_was_heard_in_the_future_is_here(silent_s: float) -> None:
    """A clock that was set back takes nobody for gone, and brings nobody back who is not there."""
    assert presence(silent_s, True, Patience()) == ("alive", "heard a moment ago")
    assert presence(silent_s, False, Patience()) == ("suspect", "the connection was lost")


@pytest.mark.parametrize(
    ("people", "beat_s"),
    [(0, 4.0), (2000, 4.0), (4000, 8.0), (10_000, 20.0), (15_000, 30.0), (100_000, 30.0)],
)
def test_in_a_crowd_everybody_says_less_often_that_it_is_here(people: int, beat_s: float) -> None:
    found_s, patience = rhythm(people, 4.0, Patience(suspect_after_s=12, gone_after_s=30))
    assert found_s == beat_s
    assert (patience.suspect_after_s, patience.gone_after_s) == (3 * beat_s, 7.5 * beat_s)


@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(1, 1e5))
def test_beats_are_never_more_than_can_be_taken_unless_they_are_as_rare_as_can_be(
    people: int, heartbeat_s: float, most_per_s: float
) -> None:
    found_s, _ = rhythm(people, heartbeat_s, Patience(), most_per_s)
    assert heartbeat_s <= found_s <= max(30.0, heartbeat_s)
    assert people / found_s <= most_per_s * (1 + 1e-9) or found_s >= 30.0
