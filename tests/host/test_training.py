"""What becomes of updates, when evaluations happen, and how a job ends."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import numpy as np
import pytest

from crowdgrad.domain.work import Version
from crowdgrad.host.course import EVALUATE_SHARE, MAX_HISTORY
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.members.accounts import MAX_FAILURES_IN_A_ROW, PAUSE_S
from crowdgrad.host.members.departures import STAYED
from crowdgrad.host.members.ledger import MAX_STRANGERS
from crowdgrad.host.setbacks import MAX_TRIES
from tests.host import small
from tests.host.people import ONES, SAMPLES, asynchronous, evaluate, leased, train_one, updated


@asynchronous
async def test_an_accepted_update_changes_the_parameters_once() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(training, ada)
    assert await training.take(1.0, ada, updated(unit, base), ONES.copy()) == "accepted"
    assert await training.take(1.0, ada, updated(unit, base), ONES.copy()) == "already_done"
    vector, version = await training.parameters.copy()
    assert vector.tolist() == [-0.5] * small.SIZE
    assert version.count == 1
    assert (ada.units, ada.samples) == (1, SAMPLES[unit.first_batch])
    assert (ada.refused, ada.ignored_for) == ({}, {"already_done": 1}), "nobody is to blame"
    assert ada.credit == 10.0 * ada.samples


@pytest.mark.parametrize(
    ("changes", "vector", "verdict"),
    [
        ({}, np.array([1, np.nan, 1], np.float32), "not_finite"),
        ({}, np.array([1, np.inf, 1], np.float32), "not_finite"),
        ({"loss": math.nan}, ONES, "not_finite"),
        ({"samples": 3}, ONES, "wrong_samples"),
        ({"base": Version(incarnation=0, count=3)}, ONES, "wrong_base"),
        ({"base": Version(incarnation=1, count=0)}, ONES, "other_incarnation"),
        ({}, None, "no_vector"),
    ],
)
def test_what_cannot_be_used_is_refused_and_changes_nothing(
    changes: dict[str, Any], vector: np.ndarray | None, verdict: str
) -> None:
    async def scenario() -> None:
        training = small.training()
        eve = training.join(0.0, small.volunteer("eve"), own=False)
        unit, base = leased(training, eve)
        update = updated(unit, changes.pop("base", base), **changes)
        assert (await training.take(1.0, eve, update, vector)).startswith(verdict)
        assert training.parameters.version.count == 0
        assert (await training.parameters.copy())[0].tolist() == [0.0] * small.SIZE
        assert sum(eve.refused.values()) + eve.ignored == 1
        assert eve.ignored == (verdict == "other_incarnation")
        assert training.course.phase == "training"

    asyncio.run(scenario())


@asynchronous
async def test_a_refused_unit_goes_to_another() -> None:
    training = small.training()
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(training, eve)
    await training.take(1.0, eve, updated(unit, base), np.full(3, np.nan, np.float32))
    again, base = leased(training, ada)
    assert again == unit
    assert await training.take(1.0, ada, updated(unit, base), ONES.copy()) == "accepted"


@asynchronous
async def test_staleness_is_the_number_of_changes_since_the_pull() -> None:
    training = small.training(the_job=small.job(overlap=2))
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    pulled = [leased(training, ada) for _ in range(3)]
    for unit, base in pulled:
        await training.take(1.0, ada, updated(unit, base), ONES.copy())
    assert dict(training.state.staleness) == {0: 1, 1: 1, 2: 1}


@asynchronous
async def test_the_best_parameters_are_kept_and_tested_once() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("own"), own=True)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    await train_one(training, ada, 1.0)
    await evaluate(training, own, 0.9, 2.0)
    best, _ = await training.parameters.copy()
    for _ in range(9):
        await train_one(training, ada, 3.0)
    await training.tick(4.0)
    assert training.course.phase == "validating"
    await evaluate(training, own, 0.5, 4.0)
    assert training.course.phase == "testing"
    tested = await evaluate(training, own, 0.8, 5.0)
    assert tested.kind == "test"
    assert training.course.phase == "over"
    assert training.course.ending is not None
    assert training.course.ending.state == "finished"
    assert (await training.result()).tolist() == best.tolist()
    assert training.course.tested is not None
    assert training.course.tested.metrics == pytest.approx({"accuracy": 0.8})
    assert [s.metrics["accuracy"] for s in training.course.history] == pytest.approx([0.9, 0.5])


@asynchronous
async def test_only_the_hosts_own_worker_evaluates() -> None:
    training = small.training()
    training.join(0.0, small.volunteer("own"), own=True)
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    await train_one(training, eve, 1.0)
    await training.tick(2.0)
    granted, _ = training.lease(2.0, eve, (), training.parameters.version)
    assert granted is not None
    assert granted.unit.kind == "train"
    round_ = training.course.evaluation.round
    assert round_ is not None
    lie = round_.book.lease(2.0, eve.volunteer.id, round_.version)[0]
    assert lie is not None
    update = updated(lie, round_.version, samples=12, metrics={"accuracy": 1.0})
    assert await training.take(2.0, eve, update, None) == "not_yours"


@asynchronous
async def test_evaluations_that_take_long_come_seldom() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("own"), own=True)
    await train_one(training, own, 0.0)
    await evaluate(training, own, accuracy=0.5, now=1.0, compute_s=0.001)
    await train_one(training, own, 1.1)
    await evaluate(training, own, accuracy=0.5, now=2.0, compute_s=3.0)
    await train_one(training, own, 5.0)
    await training.tick(2.0 + 3.0 / EVALUATE_SHARE - 1.0)
    assert training.course.evaluation.round is None
    await training.tick(2.0 + 3.0 / EVALUATE_SHARE + 1.0)
    assert training.course.evaluation.round is not None


@asynchronous
async def test_the_target_ends_training_early_and_late_updates_are_nobodys_fault() -> None:
    training = small.training(the_job=small.job(epochs=100, target=0.9))
    own = training.join(0.0, small.volunteer("own"), own=True)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    await train_one(training, ada, 1.0)
    unit, base = leased(training, ada, 1.0)
    await evaluate(training, own, 0.95, 2.0)
    assert training.course.phase == "testing"
    assert await training.take(2.0, ada, updated(unit, base), ONES.copy()) == "over"
    assert ada.refused == {}
    assert training.course.ending is not None
    assert "target of 0.9" in training.course.ending.reason


@asynchronous
async def test_time_ends_training() -> None:
    training = small.training(the_job=small.job(epochs=100, minutes=1))
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    await train_one(training, ada, 10.0)
    await training.tick(69.0)
    assert training.course.phase == "training"
    await training.tick(70.0)
    assert training.course.ending is not None
    assert training.course.ending.reason == "60 seconds have passed"


@asynchronous
async def test_divergence_goes_back_to_the_last_good_checkpoint_and_blames_nobody() -> None:
    training = small.training(the_job=small.job(epochs=9))
    own = training.join(0.0, small.volunteer("own"), own=True)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    for _ in range(2):
        await train_one(training, ada, 1.0)
    await evaluate(training, own, 0.7, 2.0)
    good, _ = await training.parameters.copy()
    for _ in range(3):
        await train_one(training, ada, 3.0)
    working, old = leased(training, ada, 3.0)
    unit, base = leased(training, own, 3.0)
    rate = training.state.rate
    await training.take(3.0, own, updated(unit, base, loss=math.inf), ONES.copy())

    assert training.course.phase == "training"
    vector, version = await training.parameters.copy()
    assert vector.tolist() == good.tolist()
    assert version == Version(incarnation=1, count=2)
    assert training.state.rate == rate / 2
    assert "went back from version 0.5 to 0.2" in training.state.notice
    assert "smaller learning rate" in training.state.notice
    assert (own.refused, ada.refused, ada.units) == ({}, {}, 5)
    assert training.book.done_units == 2, "what came after the checkpoint is trained on again"
    late = updated(working, old)
    assert await training.take(4.0, ada, late, ONES.copy()) == "other_incarnation"
    assert (ada.ignored, ada.refused) == (1, {})
    fresh, base = leased(training, ada, 4.0)
    assert base == version
    assert await training.take(4.0, ada, updated(fresh, base), ONES.copy()) == "accepted"


@asynchronous
async def test_a_stranger_s_nan_alone_is_no_divergence_but_our_own_parameters_are() -> None:
    training = small.training(the_job=small.job(epochs=9))
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    unit, base = leased(training, eve)
    nan = np.full(3, np.nan, np.float32)
    assert await training.take(1.0, eve, updated(unit, base), nan.copy()) == "not_finite"
    assert training.state.setbacks == 0
    unit, base = leased(training, eve)
    huge = np.full(3, 3e38, np.float32)
    for _ in range(3):
        await training.take(1.0, eve, updated(unit, base), huge.copy())
        unit, base = leased(training, eve)
    assert not await training.parameters.sound()
    assert await training.take(2.0, eve, updated(unit, base), nan.copy()) == "other_incarnation"
    assert training.state.setbacks == 1
    assert await training.parameters.sound()
    assert eve.refused == {}, "it computed what it was given"


@asynchronous
async def test_who_diverges_again_and_again_has_failed_and_keeps_the_best() -> None:
    training = small.training(the_job=small.job(epochs=9))
    own = training.join(0.0, small.volunteer("own"), own=True)
    await train_one(training, own, 1.0)
    await evaluate(training, own, 0.7, 2.0)
    best, _ = await training.parameters.copy()
    for _ in range(MAX_TRIES + 1):
        assert training.course.ending is None
        unit, base = leased(training, own, 3.0)
        await training.take(3.0, own, updated(unit, base, loss=math.inf), ONES.copy())
    assert training.course.ending is not None
    assert training.course.ending.state == "failed"
    assert "learning rate" in training.course.ending.reason
    assert (await training.result()).tolist() == best.tolist()


@asynchronous
async def test_another_host_goes_on_from_a_checkpoint() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    for _ in range(3):
        await train_one(training, ada, 1.0)
    kept = await training.checkpoint(0.0)
    await train_one(training, ada, 2.0)
    later = small.training()
    await later.resume(0.0, kept, incarnation=1)
    assert later.parameters.version == Version(incarnation=1, count=3)
    assert (await later.parameters.copy())[0].tolist() == [-1.5] * small.SIZE
    back = later.join(0.0, small.volunteer("ada"), own=False)
    assert (back.units, later.ledger.total_updates, later.book.done_units) == (3, 3, 3)
    unit, base = leased(later, back)
    assert await later.take(1.0, back, updated(unit, base), ONES.copy()) == "accepted"


@asynchronous
async def test_without_validation_and_test_splits_the_last_parameters_are_the_result() -> None:
    data, _ = small.manifest(validation=False, test=False)
    training = small.training(data=data, the_job=small.job(epochs=1, of=data))
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    for _ in range(small.TRAIN_BATCHES):
        await train_one(training, ada, 1.0)
    await training.tick(2.0)
    assert training.course.phase == "over"
    assert (await training.result()).tolist() == [-2.5] * small.SIZE


@asynchronous
async def test_stopping_keeps_what_there_is() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    await train_one(training, ada, 1.0)
    training.stop("Ctrl-C")
    assert training.course.phase == "over"
    assert training.course.ending is not None
    assert training.course.ending.state == "stopped"
    assert (await training.result()).tolist() == [-0.5] * small.SIZE


@asynchronous
async def test_who_is_here_at_the_end_has_stayed_whatever_it_asks_for_then() -> None:
    training = small.training()
    own = training.join(0.0, small.volunteer("zero"), own=True)
    await train_one(training, own, 1.0)
    await training.tick(10.0)
    assert training.course.evaluation.round is not None, "there is something to evaluate"
    training.stop("stopped")
    base = training.parameters.version
    assert training.lease(10.0, own, {0, 1}, base) == (None, "training is over")
    training.attendance.look(99.0, own, heard_at=10.0, worked_at=10.0, silence_s=3.0)
    training.leave(own.volunteer.id, "the other side closed the connection", 99.0)
    assert own.state == STAYED


@asynchronous
async def test_nobody_holds_more_units_than_it_has_lanes() -> None:
    training = small.training(the_job=small.job(overlap=1))
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    leased(training, eve)
    leased(training, eve)
    assert training.lease(0.0, eve, (), training.parameters.version) == (
        None,
        "you have 2 units already",
    )
    leased(training, ada)


@asynchronous
async def test_whoever_fails_again_and_again_is_left_in_peace() -> None:
    training = small.training(the_job=small.job(epochs=50))
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    for _ in range(MAX_FAILURES_IN_A_ROW):
        unit, _ = leased(training, eve, 1.0)
        training.give_back(1.0, eve, unit.id, "the trainer died")
    assert training.lease(2.0, eve, (), training.parameters.version)[0] is None
    leased(training, eve, 1.0 + PAUSE_S)


@asynchronous
async def test_whoever_pauses_is_not_blamed_and_nobody_waits_for_it() -> None:
    training = small.training(the_job=small.job(epochs=50))
    eve = training.join(0.0, small.volunteer("eve"), own=False)
    for _ in range(2 * MAX_FAILURES_IN_A_ROW):
        unit, _ = leased(training, eve, 1.0)
        training.give_back(1.0, eve, unit.id, "the volunteer pauses", rests=True)
        assert (eve.asked, eve.state) == (False, "pausing")
    assert eve.failures == 0
    again, _ = leased(training, eve, 2.0)
    assert again.id == unit.id, "it is the same one, and it is not set aside"
    assert eve.asked


@asynchronous
async def test_a_job_whose_every_unit_fails_has_failed() -> None:
    data, _ = small.manifest(validation=False, test=False)
    training = small.training(data=data, the_job=small.job(epochs=1, of=data))
    people = [training.join(0.0, small.volunteer(f"v{n}"), own=False) for n in range(3)]
    for _ in range(small.TRAIN_BATCHES):
        for person in people:
            person.paused_until = 0.0
            unit, _ = leased(training, person)
            training.give_back(0.0, person, unit.id, "label 12 of 10 classes")
    await training.tick(1.0)
    assert training.course.ending is not None
    assert training.course.ending.state == "failed"
    assert "label 12" in training.course.ending.reason


@asynchronous
async def test_a_host_whose_own_worker_computes_nothing_says_why_at_once() -> None:
    training = small.training(the_job=small.job(epochs=50))
    own = training.join(0.0, small.volunteer("own"), own=True)
    for _ in range(MAX_FAILURES_IN_A_ROW):
        unit, _ = leased(training, own)
        training.give_back(0.0, own, unit.id, "label 12 of 10 classes")
    assert training.course.ending is not None
    assert training.course.ending.state == "failed"
    assert "label 12 of 10 classes" in training.course.ending.reason


@asynchronous
async def test_one_bad_unit_is_set_aside_although_nobody_else_is_here() -> None:
    data, _ = small.manifest(validation=False, test=False)
    training = small.training(data=data, the_job=small.job(epochs=1, of=data))
    own = training.join(0.0, small.volunteer("own"), own=True)
    while training.course.phase == "training":
        unit, base = leased(training, own)
        if unit.first_batch == 2:
            training.give_back(0.0, own, unit.id, "a label out of range")
        else:
            await training.take(0.0, own, updated(unit, base), ONES.copy())
        await training.tick(1.0)
    assert training.course.ending is not None
    assert (
        training.course.ending.reason
        == "the epoch is done; set aside because it failed: 1 of the units"
    )
    assert training.book.done_units == small.TRAIN_BATCHES - 1


@asynchronous
async def test_a_metric_that_is_no_number_is_never_best_and_ends_nothing() -> None:
    training = small.training(the_job=small.job(epochs=50))
    own = training.join(0.0, small.volunteer("own"), own=True)
    await train_one(training, own, 1.0)
    await evaluate(training, own, 0.5, 2.0)
    await train_one(training, own, 3.0)
    await evaluate(training, own, math.nan, 9.0)
    assert training.course.phase == "training"
    assert training.course.best is not None
    assert training.course.best.metrics == pytest.approx({"accuracy": 0.5})


@asynchronous
async def test_a_slow_volunteer_gets_longer_leases() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    unit, base = leased(training, ada, 0.0)
    await training.take(100.0, ada, updated(unit, base), ONES.copy())
    assert ada.lease_s(small.LEASE_S) == 500.0


@asynchronous
async def test_accounts_of_those_who_gave_nothing_do_not_pile_up() -> None:
    training = small.training()
    ada = training.join(0.0, small.volunteer("ada"), own=False)
    await train_one(training, ada, 0.0)
    for number in range(MAX_STRANGERS + 50):
        name = f"guest{number}"
        training.join(1.0, small.volunteer(name), own=False)
        training.leave(small.volunteer(name).id, "bored")
    training.leave(ada.volunteer.id, "done")
    assert len(training.ledger.everyone()) == MAX_STRANGERS + 1
    assert training.ledger[ada.volunteer.id] is ada


@asynchronous
async def test_a_place_in_the_roster_stays_its_owners() -> None:
    training = small.training()
    training.join(0.0, small.volunteer("own"), own=True)
    training.join(0.0, small.volunteer("ada"), own=False, hint=4)
    training.join(0.0, small.volunteer("ben"), own=False, hint=4)
    training.leave(small.volunteer("ada").id, "gone")
    assert [(m.position, m.name) for m in training.roster().members] == [(0, "own"), (5, "ben")]
    assert training.join(9.0, small.volunteer("ada"), own=False).position == 4


@asynchronous
async def test_nobody_goes_back_to_where_it_was_already_exploding() -> None:
    training = small.training(the_job=small.job(epochs=50))
    own = training.join(0.0, small.volunteer("own"), own=True)
    await train_one(training, own, 1.0)
    await evaluate(training, own, 0.5, 2.0, loss=1.0)
    good, _ = await training.parameters.copy()
    await train_one(training, own, 3.0)
    await evaluate(training, own, 0.5, 9.0, loss=1e9)
    unit, base = leased(training, own, 10.0)
    await training.take(10.0, own, updated(unit, base, loss=math.nan), ONES.copy())
    assert (await training.parameters.copy())[0].tolist() == good.tolist()


@asynchronous
async def test_a_long_history_loses_detail_but_neither_end() -> None:
    training = small.training(the_job=small.job(epochs=1000))
    course = training.course
    for number in range(3 * MAX_HISTORY):
        scores = Scores(
            kind="validate", version=Version(incarnation=0, count=number), epoch=0.0,
            at_s=float(number), loss=1.0, metrics={"accuracy": 0.5},
        )  # fmt: skip
        course.evaluation.take_scores = lambda *_, found=scores: (found, ONES)  # type: ignore[method-assign]
        course.close_round(0.0, None)
    assert len(course.history) <= MAX_HISTORY
    times = [scores.at_s for scores in course.history]
    assert times == sorted(set(times))
    assert (times[0], times[-1]) == (0.0, 3 * MAX_HISTORY - 1)
    assert max(later - before for before, later in itertools.pairwise(times)) <= 8
