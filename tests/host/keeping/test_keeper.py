"""The keeper of checkpoints: when it writes, when it waits, and that training never does."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import CannotWrite
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_checks import misfit
from crowdgrad.host.keeping.checkpoint_files import Best, CheckpointFiles
from crowdgrad.host.keeping.keeper import (
    LEAD_S,
    MAX_PATIENCE_S,
    NOT_FINITE,
    Keeper,
    Pace,
    due,
    patience_s,
)
from crowdgrad.host.training import Training
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small
from tests.host.people import ONES, asynchronous, evaluate, leased, train_one, updated

FULL = OSError(errno.ENOSPC, "No space left on device")
EVERY_S = 5.0


class Notes:
    """Files that only note what they are asked to write."""

    folder = Path("place")

    def __init__(self) -> None:
        self.kept: list[tuple[str, float | None]] = []
        self.refuse: BaseException | None = None
        self.calls = 0

    def write(self, checkpoint: Checkpoint, best: Best | None) -> int:
        self.calls += 1
        if self.refuse is not None:
            raise self.refuse
        accuracy = best.scores.metrics["accuracy"] if best is not None else None
        self.kept.append((str(checkpoint.saved.version), accuracy))
        return 1000 + len(self.kept)


class Stage:
    """A small training with a keeper; `hold` makes writes take until `let_go`."""

    def __init__(self, *, every_s: float = EVERY_S) -> None:
        self.training: Training = small.training(the_job=small.job(epochs=200))
        self.own = self.training.join(0.0, small.volunteer("host"), own=True)
        self.ada = self.training.join(0.0, small.volunteer("ada"), own=False)
        self.files = Notes()
        self.gate = asyncio.Event()
        self.gate.set()
        self.keeper = Keeper(self.training, self.files, every_s=every_s, in_thread=self.in_thread)

    async def in_thread(self, write: Callable[..., int], *args: Any) -> int:
        await self.gate.wait()
        return write(*args)

    async def tick(self, now: float) -> None:
        """Twice, as there are many in a second: the other sees what became of the first."""
        for _ in range(2):
            await self.keeper.tick(now)
            for _ in range(10):
                await asyncio.sleep(0)

    async def train(self, now: float = 0.0) -> None:
        await train_one(self.training, self.ada, now)


# -- when -------------------------------------------------------------------------------------


def test_when_one_is_due() -> None:
    assert due(0.0, Pace(), 5.0)[0]
    done = Pace(began_at=100.0, ended_at=100.125)
    assert not due(104.6, done, 5.0)[0]
    assert due(104.7, done, 5.0)[0], "it is on the disk when the interval is over"
    assert due(50.0, done, 5.0)[0], "a clock that went back must not stop it for hours"
    busy = Pace(began_at=100.0, ended_at=None)
    assert not due(1e9, busy, 5.0)[0]


def test_a_slow_disk_rests_as_long_as_it_worked_but_no_longer_than_a_minute() -> None:
    assert not due(115.9, Pace(began_at=100.0, ended_at=108.0), 5.0)[0]
    assert due(116.0, Pace(began_at=100.0, ended_at=108.0), 5.0)[0]
    slept = Pace(began_at=100.0, ended_at=30_000.0)  # the laptop was closed meanwhile
    assert not due(30_059.0, slept, 5.0)[0]
    assert due(30_060.0, slept, 5.0)[0]


@given(every_s=st.floats(0.01, 1000.0), took_s=st.floats(0.0, 1000.0))
def test_one_begins_early_enough_to_be_there_after_an_interval(
    every_s: float, took_s: float
) -> None:
    begins_s = patience_s(every_s, 0, took_s)
    assert every_s / 2 <= begins_s <= every_s
    assert begins_s + took_s < every_s or begins_s == every_s / 2


@given(every_s=st.floats(0.01, 1000.0), failures=st.integers(0, 10_000))
def test_patience_grows_up_to_a_minute(every_s: float, failures: int) -> None:
    now, then = patience_s(every_s, failures), patience_s(every_s, failures + 1)
    assert every_s / 2 <= now <= then <= max(every_s, MAX_PATIENCE_S)
    assert patience_s(5.0, 0) == 5.0 - LEAD_S
    assert patience_s(5.0, 1) == 10.0


# -- what is written --------------------------------------------------------------------------


@asynchronous
async def test_one_is_written_at_once_and_then_every_few_seconds_where_there_is_news() -> None:
    stage = Stage()
    await stage.tick(0.0)
    assert stage.files.kept == [("0.0", None)], "whatever happens now, the run can go on"
    await stage.train()
    await stage.tick(4.7)
    assert len(stage.files.kept) == 1
    await stage.tick(4.9)
    assert stage.files.kept[1:] == [("0.1", None)]
    await stage.tick(60.0)
    assert len(stage.files.kept) == 2, "nothing is new"
    await stage.train()
    await stage.tick(60.1)
    assert stage.files.kept[2:] == [("0.2", None)]
    health = stage.keeper.health()
    assert (health.written, str(health.version), health.at) == (3, "0.2", 60.1)
    assert (health.bytes, health.trouble) == (1003, "")


NEWS: dict[str, Callable[[Stage], Any]] = {
    "somebody came": lambda s: s.training.join(1.0, small.volunteer("eve"), own=False),
    "a pause": lambda s: s.training.course.begin(0.0) or s.training.pause(1.0),
    "the end": lambda s: s.training.stop("enough"),
    "a refused update": lambda s: s.training.ledger.refuse(s.ada.volunteer.id, "wrong_base"),
}


@pytest.mark.parametrize("news", NEWS)
def test_not_only_parameters_are_news(news: str) -> None:
    async def scenario() -> None:
        stage = Stage()
        await stage.tick(0.0)
        NEWS[news](stage)
        await stage.tick(5.0)
        assert len(stage.files.kept) == 2
        await stage.tick(10.0)
        assert len(stage.files.kept) == 2

    asyncio.run(scenario())


@asynchronous
async def test_the_best_goes_with_it() -> None:
    stage = Stage()
    await stage.train()
    await evaluate(stage.training, stage.own, 0.75, 1.0)
    await stage.tick(2.0)
    assert stage.files.kept == [("0.1", 0.75)]


@asynchronous
async def test_what_is_not_finite_is_not_written() -> None:
    stage = Stage()
    await stage.tick(0.0)
    await stage.train()
    stage.training.parameters._state[1] = np.inf
    await stage.tick(5.0)
    assert len(stage.files.kept) == 1
    assert stage.keeper.health().trouble == NOT_FINITE
    assert str(stage.keeper.health().version) == "0.0"
    stage.training.parameters._state[1] = 0.0
    await stage.tick(10.0)
    assert len(stage.files.kept) == 2
    assert stage.keeper.health().trouble == ""


# -- a slow disk ------------------------------------------------------------------------------


@asynchronous
async def test_a_slow_disk_holds_up_nobody_and_one_copy_waits_at_most() -> None:
    stage = Stage()
    copies: list[weakref.ref[Any]] = []
    take = stage.training.checkpoint

    async def watched(now: float) -> Checkpoint:
        checkpoint = await take(now)
        copies.append(weakref.ref(checkpoint.saved.vector))
        return checkpoint

    stage.training.checkpoint = watched  # type: ignore[method-assign]
    stage.gate.clear()
    await stage.tick(0.0)
    for now in range(1, 40):
        await stage.train(now)
        await stage.tick(now)
    assert len(copies) == 1, "the next only when this one is written"
    assert stage.training.parameters.version.count == 39
    stage.gate.set()
    await stage.tick(40.0)
    await stage.tick(41.0)
    gc.collect()
    assert stage.files.kept == [("0.0", None)]
    assert copies[0]() is None, "what is written is let go of"
    await stage.tick(79.0)
    assert len(stage.files.kept) == 1, "the disk rests"
    await stage.tick(82.0)
    assert stage.files.kept[1:] == [("0.39", None)]


@asynchronous
async def test_what_happens_while_one_is_taken_is_in_the_next() -> None:
    stage = Stage()
    stage.gate.clear()
    await stage.tick(0.0)
    await stage.train()
    stage.gate.set()
    await stage.tick(1.0)
    await stage.tick(2.0)
    await stage.tick(7.0)
    assert stage.files.kept == [("0.0", None), ("0.1", None)]


# -- a disk that refuses ----------------------------------------------------------------------


@asynchronous
async def test_a_full_disk_pauses_checkpoints_with_a_loud_warning_and_never_the_training() -> None:
    stage = Stage()
    await stage.tick(0.0)
    stage.files.refuse = FULL
    tries = []
    for now in range(1, 600):
        before = stage.files.calls
        await stage.train(now)
        await stage.tick(now)
        if stage.files.calls > before:
            tries.append(now)
    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert gaps[:4] == [10, 20, 40, 60]
    assert set(gaps[4:]) == {60}
    trouble = stage.keeper.health().trouble
    assert "CHECKPOINTS ARE PAUSED" in trouble
    assert "no room left" in trouble
    assert "Free some space" in trouble
    assert "version 0.0" in trouble
    assert stage.training.parameters.version.count == 599
    assert stage.training.course.ending is None
    stage.files.refuse = None
    for now in range(600, 661):
        await stage.tick(now)
    assert stage.keeper.health().trouble == ""
    assert stage.files.kept[-1] == ("0.599", None)
    await stage.train(670)
    await stage.tick(670.0)
    assert stage.files.kept[-1] == ("0.600", None), "and then as often as before"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, "Read-only file system"),
        PermissionError(errno.EACCES, "Permission denied"),
        CannotWrite("Cannot write it.", advice="Do something."),
        ValueError("a fault of ours"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_goes_wrong_is_a_trouble_and_no_more(error: Exception) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.files.refuse = error
        await stage.tick(0.0)
        assert "PAUSED" in stage.keeper.health().trouble
        assert "all of this run is lost" in stage.keeper.health().trouble
        assert stage.keeper.health().written == 0
        await stage.keeper.write_now(1.0)

    asyncio.run(scenario())


# -- the end ----------------------------------------------------------------------------------


@asynchronous
async def test_the_last_one_is_written_at_the_end_and_waited_for() -> None:
    stage = Stage()
    stage.gate.clear()
    await stage.tick(0.0)
    await stage.train()
    stage.training.stop("enough")
    closing = asyncio.create_task(stage.keeper.write_now(1.0))
    await asyncio.sleep(0)
    assert not closing.done()
    stage.gate.set()
    await closing
    assert stage.files.kept == [("0.0", None), ("0.1", None)]
    await stage.keeper.write_now(2.0)
    assert len(stage.files.kept) == 2, "twice is no harm"


@asynchronous
async def test_at_the_end_it_is_tried_once_more_without_patience() -> None:
    stage = Stage()
    stage.files.refuse = FULL
    await stage.tick(0.0)
    stage.files.refuse = None
    await stage.keeper.write_now(0.1)
    assert stage.files.kept == [("0.0", None)]
    assert stage.keeper.health().trouble == ""


def test_a_host_goes_on_from_what_the_keeper_wrote(tmp_path: Path) -> None:
    async def scenario() -> None:
        training = small.training()
        own = training.join(0.0, small.volunteer("host"), own=True)
        ada = training.join(0.0, small.volunteer("ada"), own=False)
        keeper = Keeper(training, CheckpointFiles(tmp_path), every_s=5.0)
        for _ in range(3):
            await train_one(training, ada, 1.0)
        await evaluate(training, own, 0.75, 2.0)
        await train_one(training, ada, 3.0)
        await keeper.tick(3.0)
        await keeper.write_now(3.0)
        found = CheckpointFiles(tmp_path).load()
        assert found is not None
        assert found.best is not None
        recipe = AsyncSGD(lr=0.5, batch_size=10, overlap=0)
        data, _ = small.manifest()
        job, spec = training.job, training.spec
        assert not misfit(found.checkpoint, job=job, spec=spec, manifest=data, recipe=recipe)
        later = small.training()
        incarnation = CheckpointFiles(tmp_path).claim()
        await later.resume(0.0, found.checkpoint, incarnation, found.best.vector)
        assert (await later.parameters.copy())[0].tolist() == [-2.0] * small.SIZE
        assert later.course.best_vector.tolist() == [-1.5] * small.SIZE
        assert later.course.best is not None
        assert later.course.best.metrics == {"accuracy": 0.75}
        back = later.join(0.0, small.volunteer("ada"), own=False)
        unit, base = leased(later, back)
        assert base.incarnation == incarnation == 1
        assert await later.take(1.0, back, updated(unit, base), ONES.copy()) == "accepted"

    asyncio.run(scenario())


@asynchronous
async def test_what_people_wish_is_written_at_once() -> None:
    stage = Stage()
    await stage.tick(0.0)
    await stage.train()
    await stage.tick(0.1)
    assert len(stage.files.kept) == 1
    stage.training.pause(0.2)
    await stage.tick(0.3)
    assert len(stage.files.kept) == 2
    stage.training.go_on(0.4)
    await stage.tick(0.5)
    assert len(stage.files.kept) == 3
