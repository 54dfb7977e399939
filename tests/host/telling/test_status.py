"""One status for all who watch: everything in it, nothing that JSON cannot say."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import Version
from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.telling.status import Others, Status, as_json
from crowdgrad.host.telling.taking import (
    SHOWN_MEMBERS,
    buckets,
    checkpoint_status,
    take_status,
)
from crowdgrad.host.training import Training
from tests.host import small
from tests.host.people import ONES, asynchronous, leased, train_one, updated


@asynchronous
async def test_it_tells_everything_about_a_member_and_adds_it_up() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    ada.carried(received=100, sent=200)
    eve.carried(received=1, sent=2)
    unit, base = leased(training, ada, 1.0)
    await training.take(5.0, ada, updated(unit, base, compute_s=3.0), ONES.copy())
    unit, base = leased(training, eve, 1.0)
    await training.take(5.0, eve, updated(unit, base, samples=1), ONES.copy())
    training.leave(eve.volunteer.id, "left: home", 6.0)
    status = take_status(training, 6.0)
    first, second = status.members
    assert (first.times.compute_s, first.times.exchange_s, first.times.wait_s) == (3.0, 1.0, 2.0)
    assert (first.times.compute_share, first.times.wait_share) == (0.5, 2 / 6)
    assert (second.refused_by_reason, status.refused_by_reason) == ({"wrong_samples": 1},) * 2
    assert (status.bytes_received, status.bytes_sent) == (101, 202)
    assert status.times.compute_s == first.times.compute_s + second.times.compute_s
    assert (status.arrivals, status.departures_by_kind) == (2, {"left": 1})
    assert [gone.reason for gone in status.departures] == ["left: home"]
    assert [(b.least, b.updates) for b in status.staleness] == [(0, 1)]
    assert (status.resumed, status.checkpoint, status.paused) == (0, None, False)


@asynchronous
async def test_it_says_how_fast_bytes_come_and_go() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    for second in range(10):
        status = take_status(training, float(second))
        ada.carried(received=1000, sent=5000)
    assert (status.bytes_received_per_s, status.bytes_sent_per_s) == (1000.0, 5000.0)


@asynchronous
async def test_whatever_the_numbers_are_it_is_json() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("own"), own=True)
    await train_one(training, own, 0.0)
    training.state.train_loss = math.nan
    told = checkpoint_status(Health(), 1.0)
    found = json.loads(as_json(take_status(training, 1.0, told)), parse_constant=_refuse)
    assert found["train_loss"] is None
    assert found["checkpoint"] == {
        "version": None, "age_s": None, "bytes": 0, "written": 0, "trouble": "",
    }  # fmt: skip
    assert found["members"][0]["times"]["compute_share"] >= 0


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def a_crowd(size: int, here: int) -> Training:
    """The first of them are here; who came later gave more."""
    training = small.training()
    for number in range(size):
        account = training.join(0.0, small.volunteer(f"v{number}"), own=False)
        training.ledger.accept(1.0, account.volunteer.id, samples=number + 1, staleness=number)
        account.carried(received=1, sent=2)
    for account in training.ledger.everyone()[here:]:
        training.leave(account.volunteer.id, "left: home", 2.0)
    return training


@pytest.mark.parametrize("here", [0, 7, SHOWN_MEMBERS, 2 * SHOWN_MEMBERS])
def test_of_a_crowd_who_is_here_is_named_then_the_busiest_and_the_rest_added_up(
    here: int,
) -> None:
    size = 5 * SHOWN_MEMBERS

    async def look() -> tuple[Status, Status]:
        training = a_crowd(size, here)
        return take_status(training, 3.0), take_status(training, 3.0, most=None)

    status, whole = asyncio.run(look())
    named = [member.position for member in status.members]
    assert len(named) == SHOWN_MEMBERS
    assert named == sorted(named)
    first = here if here <= SHOWN_MEMBERS else 0
    busiest_here = range(here - SHOWN_MEMBERS + 1, here + 1)
    busiest_gone = range(size - SHOWN_MEMBERS + first + 1, size + 1)
    wanted = [*range(1, first + 1), *busiest_gone] if here <= SHOWN_MEMBERS else [*busiest_here]
    assert named == wanted
    assert whole.others == Others()
    assert replace(status, members=[], others=Others()) == replace(whole, members=[])
    unnamed = [member for member in whole.members if member.position not in named]
    assert status.others == Others(
        members=len(unnamed),
        connected=sum(member.connected for member in unnamed),
        units=sum(member.units for member in unnamed),
        samples=sum(member.samples for member in unnamed),
        share=pytest.approx(sum(member.share for member in unnamed)),
        credit=sum(member.credit for member in unnamed),
    )
    assert (status.took_part, status.here) == (whole.took_part, whole.here) == (size, here)


@asynchronous
async def test_the_times_of_all_are_those_of_each() -> None:
    whole = take_status(a_crowd(50, 20), 3.0, most=None)
    waited_s = sum(member.times.wait_s for member in whole.members)
    assert whole.times.wait_s == pytest.approx(waited_s)
    assert waited_s == pytest.approx(20 * 3.0 + 30 * 2.0)


@asynchronous
async def test_a_resumed_run_says_how_often() -> None:
    training = small.training()
    again = small.training()
    await again.resume(0.0, await training.checkpoint(0.0), incarnation=1)
    assert take_status(again, 0.0).resumed == 1


def test_the_last_checkpoint_grows_old() -> None:
    version = Version(incarnation=1, count=7)
    health = Health(written=3, version=version, at=10.0, bytes=99, trouble="full")
    told = checkpoint_status(health, 12.5)
    assert (told.version, told.age_s, told.bytes, told.written, told.trouble) == (
        "1.7", 2.5, 99, 3, "full")  # fmt: skip


@given(st.dictionaries(st.integers(0, 3000), st.integers(1, 50), max_size=20))
def test_buckets_hold_every_update_once_without_gaps(staleness: dict[int, int]) -> None:
    found = buckets(Counter(staleness))
    assert sum(bucket.updates for bucket in found) == sum(staleness.values())
    assert [b.least for b in found[1:]] == [b.most + 1 for b in found[:-1]]
    assert [b.most for b in found[:6]] == [0, 1, 2, 4, 8, 16][: len(found)]
    for bucket in found:
        inside = [n for value, n in staleness.items() if bucket.least <= value <= bucket.most]
        assert bucket.updates == sum(inside)
    assert not found or found[-1].updates
