"""Hosts' words on what we gave: signed where our own count allows it, told once, else with why."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.volunteer.countersigning import MAX_REMEMBERED, SETTLE_S, Countersigning
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.tally import Tally
from tests.virtual_time import run_virtual

JOB = JobId("digits-1")


class Desk:
    """A countersigner, what it counted, and what it says."""

    def __init__(self, counted: int = 3) -> None:
        self.tally = Tally(None, lambda: 0.0)
        self.lines: list[tuple[str, str]] = []
        self.events: list[Event] = []
        self.signing = Countersigning(
            self.tally, lambda what, words: self.lines.append((what, words)), self.events.append
        )
        self.work(counted)

    def work(self, counted: int, job: JobId = JOB) -> None:
        self.tally.begin(job, "Digits", work=2.0)
        for _ in range(counted):
            self.tally.computed(10)
            self.tally.answered(10, accepted=True)

    def offer(self, units: int, job: JobId = JOB) -> bool:
        gift = Gift(units=units, samples=10 * units, flop=20.0 * units)
        return self.signing.offered(job, gift)


def test_while_a_job_runs_its_offers_are_signed_and_told_at_its_end() -> None:
    desk = Desk()
    desk.signing.begin(JOB)
    assert [desk.offer(units) for units in (1, 2, 3)] == [True] * 3
    assert desk.lines == []
    desk.signing.end()
    desk.signing.end()
    assert desk.lines == [("credit", "You gave 30 samples to “Digits”, countersigned.")]
    assert desk.events == []


def test_an_offer_that_comes_later_is_told_when_it_comes_and_once() -> None:
    desk = Desk()
    desk.signing.begin(JobId("digits-2"))
    assert desk.offer(3)
    assert desk.offer(3)
    assert len(desk.lines) == 1


def test_what_is_not_signed_is_said_once_with_why() -> None:
    desk = Desk()
    desk.signing.begin(JOB)
    assert not desk.offer(4)
    assert not desk.offer(5)
    (event,) = desk.events
    assert event.kind == "trouble"
    assert event.text.startswith("Its host says you gave 40 samples to “Digits”. Not countersigned")
    assert "counted 3 with 30" in event.text
    desk.signing.end()
    assert desk.lines == []
    assert not desk.offer(1, JobId("unheard-of"))
    assert "job unheard-of. Not countersigned: nothing is known here" in desk.events[1].text


def test_it_remembers_a_bounded_number_of_jobs() -> None:
    desk = Desk()
    for number in range(3 * MAX_REMEMBERED):
        desk.offer(1, JobId(f"job-{number}"))
    assert len(desk.signing._refused) == MAX_REMEMBERED


@pytest.mark.parametrize(
    ("offers", "waited_s"),
    [({0.2: 1, 0.4: 3}, 0.4), ({0.2: 1}, SETTLE_S), ({0.3: 9}, SETTLE_S), ({}, SETTLE_S)],
)
def test_the_last_word_is_waited_for(offers: dict[float, int], waited_s: float) -> None:
    async def main() -> None:
        desk, loop = Desk(), asyncio.get_running_loop()
        began = loop.time()
        await desk.signing.settle(30)  # there is no job
        desk.signing.begin(JOB)
        await desk.signing.settle(0)  # nothing was given
        assert loop.time() == began
        for at_s, units in offers.items():
            loop.call_later(at_s, desk.offer, units)
        await desk.signing.settle(30)
        assert loop.time() - began == pytest.approx(waited_s)

    run_virtual(main())
