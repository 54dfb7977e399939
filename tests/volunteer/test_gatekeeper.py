"""What is settled before a stranger's job computes here, and what its host hears of our trouble."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.errors import (
    CannotWrite,
    ChildDied,
    ComputeError,
    CrowdgradError,
    NotAgreed,
    RefusedHere,
    SettingError,
    WallsMissing,
)
from crowdgrad.net.messages import MAX_WORDS
from crowdgrad.volunteer.consent import Request
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.gatekeeper import Gatekeeper, for_the_host
from crowdgrad.volunteer.hosts import Refusals
from tests.host import small

JOB = small.job()
REQUEST = Request(
    host="00112233445566aa", host_name="Ada", address="192.0.2.7:8701", job=JOB.id, title=JOB.title,
    cause="", program=JOB.program, memory_bytes=1, traffic_bytes=1, exchange_bytes=1, disk_bytes=1,
    walls=(),
)  # fmt: skip
MISSING = replace(REQUEST, walls=("network (seccomp: not here)",))
TAKEN_OVER = ChildDied(
    "The trainer (process 7) was ended: /home/ada", story="was ended by the system"
)


async def never(request: Request) -> tuple[bool, str]:
    return False, "you said no"


def test_what_the_owner_says_is_noted_and_counts() -> None:
    seen: list[Event] = []
    asyncio.run(Gatekeeper(watch=seen.append).ask(REQUEST))
    with pytest.raises(NotAgreed, match=f"you said no.*hosts trust {REQUEST.host}"):
        asyncio.run(Gatekeeper(watch=seen.append, consent=never).ask(REQUEST))
    with pytest.raises(NotAgreed, match="say --yes"):  # no key, so no list to put it on
        asyncio.run(Gatekeeper(watch=lambda _: None, consent=never).ask(replace(REQUEST, host="")))
    assert [event.text[:6] for event in seen] == ["Agreed", "Not ag"]
    assert all(event.kind == "note" and REQUEST.host in event.text for event in seen)
    assert seen[0].data["program"] == JOB.program


@pytest.mark.parametrize(("request_", "all_walls", "works"), [
    (REQUEST, True, True), (MISSING, False, True), (MISSING, True, False),
])  # fmt: skip
def test_all_walls_must_hold_only_where_that_is_asked_for(
    request_: Request, all_walls: bool, works: bool
) -> None:
    asking = Gatekeeper(watch=lambda event: None, all_walls=all_walls).ask(request_)
    if works:
        return asyncio.run(asking)
    with pytest.raises(WallsMissing, match=r"seccomp: not here.*crowdgrad doctor"):
        asyncio.run(asking)


def test_a_job_that_went_wrong_is_refused_until_it_is_forgiven(tmp_path: Path) -> None:
    seen: list[Event] = []
    keeper = Gatekeeper(watch=seen.append, refusals=Refusals(tmp_path), clock=lambda: 1e9)
    keeper.let_pass(JOB)
    keeper.refuse_from_now(JOB, TAKEN_OVER)
    assert "refused on this machine from now on" in seen[-1].text
    again = Gatekeeper(watch=seen.append, refusals=Refusals(tmp_path))
    with pytest.raises(RefusedHere, match=f"was ended by the system.*forgive {JOB.program[:12]}"):
        again.let_pass(JOB)
    again.let_pass(replace(JOB, program=JOB.manifest))
    Refusals(tmp_path).forget(JOB.program[:12])
    again.let_pass(JOB)


def test_our_own_faults_and_our_own_jobs_are_not_held_against_a_job(tmp_path: Path) -> None:
    keeper = Gatekeeper(watch=lambda event: None, refusals=Refusals(tmp_path))
    keeper.refuse_from_now(JOB, ChildDied("ImportError", story="ended with code 1", local=True))
    keeper.let_pass(JOB)
    own = Gatekeeper(watch=lambda event: None)
    own.refuse_from_now(JOB, TAKEN_OVER)
    own.let_pass(JOB)


@pytest.mark.parametrize("error", [
    TAKEN_OVER,
    ChildDied("/home/ada/x ended"),
    CannotWrite("/home/ada/.crowdgrad/chunks cannot be written"),
    SettingError("The key /home/ada/.crowdgrad/key cannot be read"),
    NotAgreed("Ada said no"),
    RefusedHere("/home/ada"),
])  # fmt: skip
def test_a_host_hears_nothing_of_this_machine(error: CrowdgradError) -> None:
    said = for_the_host(error)
    assert said
    assert "ada" not in said.lower()


def test_a_host_hears_what_its_own_job_did() -> None:
    assert "label 12" in for_the_host(ComputeError("label 12\nof 10 classes"))
    assert "was ended by the system" in for_the_host(TAKEN_OVER)
    said = for_the_host(ComputeError("x" * 10_000 + "\x1b[2J"))
    assert len(said) <= MAX_WORDS
    assert said.isprintable()
