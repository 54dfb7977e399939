"""Our own count of what we gave: what is open, what a crash forgets, what is signed by it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.volunteer.tally import KEEP_S, MAX_FILE_BYTES, MAX_JOBS, Given, Tally, judge

JOB, OTHER = JobId("digits-1"), JobId("digits-2")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "given.json"


def gift(units: int, samples: int, flop: float = 0.0) -> Gift:
    return Gift(units=units, samples=samples, flop=flop)


def of(tally: Tally, job: JobId = JOB) -> Given:
    found = tally.of(job)
    assert found is not None
    return found


def test_an_update_is_open_until_it_is_answered(clock: Clock) -> None:
    tally = Tally(None, clock)
    tally.begin(JOB, "Digits", work=3.0)
    for _ in range(3):
        tally.computed(10)
    assert (of(tally).units, of(tally).open_units, of(tally).open_samples) == (0, 3, 30)
    tally.answered(10, accepted=True)
    tally.answered(10, accepted=False)
    found = of(tally)
    assert (found.units, found.samples, found.open_units, found.open_samples) == (1, 10, 1, 10)


@pytest.mark.parametrize(
    ("offered", "signed", "why"),
    [
        (gift(2, 20, 60.0), True, ""),
        (gift(3, 30, 90.0), True, ""),
        (gift(0, 0), True, ""),
        (gift(1, 5, 0.0), True, ""),
        (gift(4, 30, 90.0), False, "4 updates with 30 samples, but here were counted 2 with 20"),
        (gift(3, 31, 90.0), False, "31 samples"),
        (gift(2, 20, 60.1), False, "more work for each sample"),
        (gift(0, 0, 1.0), False, "more work for each sample"),
    ],
)
def test_what_is_signed(offered: Gift, signed: bool, why: str) -> None:
    """Two were accepted, of a third nothing is known yet."""
    given = Given(job=JOB, work=3.0, units=2, samples=20, open_units=1, open_samples=10)
    agreed, said = judge(given, offered)
    assert agreed is signed
    assert why in said
    assert bool(said) != signed


def test_a_job_nobody_here_knows_is_not_signed() -> None:
    assert judge(None, gift(0, 0)) == (False, "nothing is known here of work for it")


def test_it_is_there_again(file: Path, clock: Clock) -> None:
    tally = Tally(file, clock)
    tally.begin(JOB, "Digits\x1b[2J", work=3.0)
    tally.computed(10)
    tally.answered(10, accepted=True)
    tally.computed(10)
    tally.keep()
    again = Tally(file, clock)
    assert of(again) == of(tally)
    assert of(again).title == "Digits [2J"
    again.begin(OTHER, "Other", work=1.0)
    again.begin(JOB, "Digits", work=3.0)
    again.computed(10)
    assert (of(again).units, of(again).open_units) == (1, 2), "it goes on counting"
    assert file.stat().st_mode & 0o077 == 0


def test_what_a_crash_forgets_may_still_be_signed(file: Path, clock: Clock) -> None:
    """Whenever it comes, from the first update on; and that is not much."""
    tally = Tally(file, clock)
    tally.begin(JOB, "Digits", work=1.0)
    for number in range(200):
        clock.now += KEEP_S / 10
        tally.computed(10)
        crashed = of(Tally(file, clock))
        assert judge(crashed, gift(of(tally).units + 1, of(tally).samples + 10))[0]
        assert crashed.samples + crashed.open_samples <= of(tally).samples + 10 + 2 * 11 * 10
        tally.answered(10, accepted=number % 3 > 0)
    tally.keep()
    assert of(Tally(file, clock)) == of(tally), "a proper end forgets nothing"


def test_two_processes_do_not_forget_each_others_jobs(file: Path, clock: Clock) -> None:
    one, two = Tally(file, clock), Tally(file, clock)
    one.begin(JOB, "Digits", work=1.0)
    two.begin(OTHER, "Others", work=1.0)
    one.computed(10)
    one.keep()
    both = Tally(file, clock)
    assert of(both).open_samples == 10
    assert of(both, OTHER).title == "Others"


def test_it_stays_small(file: Path, clock: Clock) -> None:
    tally = Tally(file, clock)
    for number in range(MAX_JOBS + 5):
        tally.begin(JobId(f"job-{number}"), "t" * 500, work=1.0)
    assert len(json.loads(file.read_bytes())) == MAX_JOBS
    assert file.stat().st_size < MAX_FILE_BYTES / 2
    assert Tally(file, clock).of(JobId("job-4")) is None
    assert Tally(file, clock).of(JobId("job-5")) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 100_000,
        '[{"job": ""}]',
        '[{"job": "a", "units": -1}]',
        '[{"job": "a", "samples": 1e30}]',
        '[{"job": "a", "work": -1}]',
        "[]" + " " * MAX_FILE_BYTES,
    ],
)
def test_a_file_that_makes_no_sense_is_passed_over(
    file: Path, clock: Clock, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        tally = Tally(file, clock)
    assert tally.of(JOB) is None
    assert "cannot be read" in caplog.text
    tally.begin(JOB, "Digits", work=1.0)
    assert Tally(file, clock).of(JOB) is not None


def test_a_disk_that_takes_nothing_stops_nothing(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").touch()
    tally = Tally(tmp_path / "file" / "given.json", clock)
    tally.begin(JOB, "Digits", work=1.0)
    tally.computed(10)
    tally.keep()
    assert of(tally).open_samples == 10


@given(st.lists(st.tuples(st.integers(1, 100), st.sampled_from(["yes", "no", "lost"]))))
def test_a_host_that_counts_right_is_always_signed(life: list[tuple[int, str]]) -> None:
    """Whatever is lost: it counts when an update comes, we when we hear of it."""
    tally, units, samples = Tally(None, Clock()), 0, 0
    tally.begin(JOB, "Digits", work=2.0)
    for size, end in life:
        tally.computed(size)
        if end != "no":
            units, samples = units + 1, samples + size
        offered = gift(units, samples, 2.0 * samples)
        assert judge(of(tally), offered)[0]
        if end != "lost":
            tally.answered(size, accepted=end == "yes")
        assert judge(of(tally), offered)[0]
    assert not judge(of(tally), gift(units + len(life) + 1, samples))[0]
