"""Accounts, departures, and what a checkpoint keeps of both."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import UnitId
from crowdgrad.host.members.accounts import Credited
from crowdgrad.host.members.departures import HOST_STOPPED, MAX_KEPT, MAX_REASON, STAYED, kind_of
from crowdgrad.host.members.ledger import MAX_STRANGERS, Ledger, LedgerState
from tests.host import small
from tests.host.people import ONES, asynchronous, evaluate, leased, train_one, updated


def a_ledger() -> Ledger:
    """Three who did all kinds of things, and a crowd that did nothing."""
    ledger = Ledger(10.0)
    ada = ledger.join(0.0, small.volunteer("ada"), own=False)
    ben = ledger.join(0.0, small.volunteer("ben"), own=True)
    for staleness in (0, 3, 1):
        ada.times.begin(1.0, UnitId(staleness))
        ada.times.end(2.0, UnitId(staleness), 0.5)
        ledger.accept(2.0, ada.volunteer.id, samples=8, staleness=staleness)
    ledger.accept(2.0, ben.volunteer.id, samples=4, staleness=2)
    ledger.refuse(ada.volunteer.id, "wrong_samples (3 for 8)")
    ledger.ignore(ben.volunteer.id, "too_old")
    ledger.ignore(ben.volunteer.id, "other_incarnation")
    ada.carried(received=100, sent=1000)
    for number in range(MAX_STRANGERS + 5):
        guest = ledger.join(3.0, small.volunteer(f"guest{number}"), own=False)
        guest.carried(received=1, sent=2)
        ledger.refuse(guest.volunteer.id, "not_yours")
        ledger.leave(guest.volunteer.id, "left: bored", 4.0, at_s=1.0)
    return ledger


def totals(ledger: Ledger) -> tuple[object, ...]:
    return (
        ledger.total_updates, ledger.total_samples, ledger.total_refused, ledger.total_ignored,
        dict(ledger.refused), dict(ledger.ignored), ledger.bytes_received, ledger.bytes_sent,
        ledger.departures.arrivals, ledger.departures.last(MAX_KEPT),
    )  # fmt: skip


def test_what_strangers_did_counts_also_when_they_are_forgotten() -> None:
    ledger = a_ledger()
    assert ledger.refused == {"wrong_samples": 1, "not_yours": MAX_STRANGERS + 5}
    assert (ledger.bytes_received, ledger.bytes_sent) == (100 + 205, 1000 + 410)
    assert len(ledger.everyone()) == MAX_STRANGERS + 2


def test_a_checkpoint_keeps_all_of_it() -> None:
    before = a_ledger()
    # Through bytes, as on the disk.
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(before.snapshot()), type=LedgerState)
    assert kept == before.snapshot()
    after = Ledger(10.0)
    after.restore(kept)
    assert totals(after) == totals(before)
    assert after.connected() == []
    old, new = before[small.volunteer("ada").id], after[small.volunteer("ada").id]
    for name in ("units", "samples", "credit", "refused", "ignored_for", "staleness_sum",
                 "staleness_max", "bytes_received", "bytes_sent", "position", "own"):  # fmt: skip
        assert getattr(new, name) == getattr(old, name), name
    assert (new.times.compute_s, new.times.work_s, new.times.wait_s) == (
        old.times.compute_s, old.times.work_s, old.times.wait_s)  # fmt: skip
    assert old.times.compute_s == 1.5
    assert (new.staleness_sum, new.staleness_max) == (4, 3)


def test_who_was_here_when_the_host_stopped_is_gone_for_that_reason() -> None:
    before = a_ledger()
    after = Ledger(10.0)
    after.restore(before.snapshot())
    assert after[small.volunteer("ada").id].state == HOST_STOPPED
    assert after[small.volunteer("guest7").id].state == "left: bored"
    gone = before.departures.kinds
    assert after.departures.kinds == {**gone, "host": 2}


def test_restoring_leaves_no_more_strangers_than_there_may_be() -> None:
    ledger = Ledger(10.0)
    ledger.restore(a_ledger().snapshot())
    for number in range(20):
        who = small.volunteer(f"late{number}")
        ledger.join(5.0, who, own=False)
        ledger.leave(who.id, "left", 5.0)
    assert sum(a.gave_nothing for a in ledger.everyone()) == MAX_STRANGERS


def test_worker_zero_is_not_forgotten_under_any_of_its_names() -> None:
    ledger = Ledger(10.0)
    for name in ("first", "first", "second"):
        ledger.join(0.0, small.volunteer(name), own=True).carried(received=1, sent=1)
        ledger.leave(small.volunteer(name).id, "lost", 1.0)
    for number in range(MAX_STRANGERS + 5):
        ledger.join(2.0, small.volunteer(f"guest{number}"), own=False)
        ledger.leave(small.volunteer(f"guest{number}").id, "left: bored", 3.0)
    assert [account.own for account in ledger.everyone()].count(True) == 1
    assert ledger.bytes_received == 3


def test_restoring_nothing_is_an_empty_ledger() -> None:
    ledger = Ledger(10.0)
    ledger.restore(LedgerState())
    assert ledger.join(0.0, small.volunteer("ada"), own=False).position == 1
    assert ledger.total_updates == 0


def test_a_departure_tells_who_when_why_and_what_it_gave() -> None:
    ledger = Ledger(10.0)
    who = small.volunteer("ada").id
    ledger.join(10.0, small.volunteer("ada"), own=False)
    ledger.accept(12.0, who, samples=8, staleness=0)
    ledger.leave(who, "fell silent: nothing heard for 10 s", 25.0, at_s=7.5)
    (gone,) = ledger.departures.last(5)
    assert (gone.who, gone.name, gone.stayed_s, gone.at_s, gone.samples) == (
        who, "ada", 15.0, 7.5, 8)  # fmt: skip
    assert gone.reason == "fell silent: nothing heard for 10 s"


def test_who_stayed_to_the_end_is_not_said_to_have_hung_up() -> None:
    ledger = Ledger(10.0)
    account = ledger.join(0.0, small.volunteer("ada"), own=False)
    account.state = STAYED
    ledger.leave(account.volunteer.id, "We closed the connection", 5.0)
    assert ledger.departures.last(1)[0].reason == STAYED
    assert ledger.departures.kinds == {"stayed": 1}


def test_departures_are_bounded_and_still_counted() -> None:
    ledger = Ledger(10.0)
    for _ in range(3 * MAX_KEPT):
        ledger.join(0.0, small.volunteer("ada"), own=False)
        ledger.leave(small.volunteer("ada").id, "x" * 10_000, 1.0)
    assert len(ledger.departures.last(10**6)) == MAX_KEPT
    assert len(ledger.departures.last(1)[0].reason) == MAX_REASON
    assert ledger.departures.total == ledger.departures.arrivals == 3 * MAX_KEPT


def test_how_fast_somebody_was_is_still_told_at_the_end_but_not_after_leaving_early() -> None:
    ledger = Ledger(10.0)
    for name in ("ada", "ben"):
        account = ledger.join(0.0, small.volunteer(name), own=False)
        ledger.accept(1.0, account.volunteer.id, samples=100, staleness=0)
    ledger[small.volunteer("ada").id].state = STAYED
    for name in ("ada", "ben"):
        ledger.leave(small.volunteer(name).id, "left: dinner", 1.5)
    speeds = [account.speed.rate(1.5) for account in ledger.everyone()]
    assert speeds == [200.0, 0.0]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("left: the connection was bad and I was silent", "left"),
        ("came back on another connection from 192.0.2.7", "came_back"),
        ("192.0.2.7:1 fell silent: nothing heard for 10 s.", "silent"),
        ("fell silent: nothing heard for 10 s", "silent"),
        ("The other side closed the connection (192.0.2.7:1).", "lost"),
        ("connection reset", "lost"),
        ("turned away: somebody joined with the same key", "turned_away"),
        ("too slow: 40 kB in 10 s", "slow"),
        ("an error on the host", "host"),
        (STAYED, "stayed"),
        ("A volunteer does not say Grant.", "other"),
    ],
)
def test_reasons_have_kinds(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


@asynchronous
async def test_training_tells_the_ledger_where_time_goes() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(training, ada, now=2.0)
    update = updated(unit, base, compute_s=3.0)
    assert await training.take(6.0, ada, update, ONES.copy()) == "accepted"
    assert (ada.times.compute_s, ada.times.exchange_s, ada.times.wait_s) == (3.0, 1.0, 2.0)
    training.pause(6.0)
    assert training.lease(6.0, ada, (), base)[0] is None
    assert ada.times.waited_s(16.0) == 12.0
    training.go_on(16.0)
    unit, base = leased(training, ada, now=16.0)
    training.give_back(17.0, ada, unit.id, "no memory")
    assert (ada.times.compute_s, ada.times.exchange_s, ada.times.wait_s) == (3.0, 2.0, 12.0)
    training.leave(ada.volunteer.id, "left: done", 18.0)
    (gone,) = training.ledger.departures.last(1)
    # The pause is no training: it began at 2 and was paused for 10 seconds.
    assert (gone.at_s, gone.stayed_s, gone.samples) == (6.0, 18.0, ada.samples)


@asynchronous
async def test_evaluating_is_work_too_also_while_the_other_lane_waits() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("own"), own=True)
    await train_one(training, own, 0.0)
    await training.tick(10.0)
    granted, reason = training.lease(10.0, own, (), training.parameters.version)
    assert reason == "evaluation"
    assert granted is not None
    training.pause(10.0)
    assert training.lease(11.0, own, (), training.parameters.version)[0] is None
    assert own.times.waited_s(12.0) == 10.0, "it is evaluating"


@asynchronous
async def test_ignored_updates_are_counted_by_reason_and_blame_nobody() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("own"), own=True)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(training, ada)
    mine, mine_base = leased(training, own)
    await training.take(0.0, own, updated(mine, mine_base, loss=float("nan")), ONES.copy())
    assert await training.take(0.0, ada, updated(unit, base), ONES.copy()) == "other_incarnation"
    assert ada.ignored_for == {"other_incarnation": 1}
    assert training.ledger.ignored["other_incarnation"] == training.ledger.total_ignored == 2
    assert training.ledger.total_refused == 0


@asynchronous
async def test_a_resumed_training_has_the_totals_it_had() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("own"), own=True)
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    await train_one(training, own, 0.0)
    await evaluate(training, own, 0.5, 10.0)
    unit, base = leased(training, eve, 10.0)
    await training.take(11.0, eve, updated(unit, base, samples=1), ONES.copy())
    unit, base = leased(training, eve, 11.0)
    nan = np.full(small.SIZE, np.nan, np.float32)
    assert await training.take(11.0, eve, updated(unit, base), nan) == "not_finite"
    training.leave(eve.volunteer.id, "left: home", 12.0)
    kept = await training.checkpoint(12.0)
    again = small.training()
    await again.resume(0.0, kept, incarnation=1)
    assert totals(again.ledger) == totals(training.ledger)
    assert again.ledger.refused == {"wrong_samples": 1, "not_finite": 1}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["join", "leave", "accept", "refuse", "ignore", "carried", "said", "forgive"]
            ),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_what_is_remembered_of_those_who_have_gone_is_what_they_are(
    steps: list[tuple[str, int]],
) -> None:
    """An update may still be on its way, and bytes may still be counted, when somebody has gone."""
    ledger = Ledger(10.0)
    people = [small.volunteer(f"v{number}") for number in range(4)]
    for person in people:
        ledger.join(0.0, person, own=False)
    for now, (what, number) in enumerate(steps):
        who = people[number].id
        account = ledger[who]
        if what == "join" and not account.connected:
            ledger.join(now, people[number], own=False)
        elif what == "leave" and account.connected:
            ledger.leave(who, f"left: {now}", now)
        elif what == "accept":
            ledger.accept(now, who, samples=8, staleness=now)
        elif what == "refuse":
            ledger.refuse(who, "not_finite" if now % 2 else "wrong_base")
        elif what == "ignore":
            ledger.ignore(who, "too_old")
        elif what == "carried":
            account.carried(received=1, sent=2)
        elif what == "said":
            account.state = f"waiting: {now}"
        elif what == "forgive":
            ledger.forgive()
        everyone = ledger.everyone()
        assert ledger.snapshot().accounts == tuple(Credited.of(a) for a in everyone)
        assert ledger.bytes_received == sum(a.bytes_received for a in everyone)
        assert ledger.connected() == [a for a in everyone if a.connected]


def test_who_has_gone_costs_a_checkpoint_nothing() -> None:
    ledger = a_ledger()
    first, second = ledger.snapshot().accounts, ledger.snapshot().accounts
    same = [before is after for before, after in zip(first, second, strict=True)]
    assert same.count(False) == len(ledger.connected())
