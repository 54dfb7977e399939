"""Wishes of a run's owner: each holds afterwards, twice is once, and what cannot be is said."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from pathlib import Path

import pytest

from crowdgrad.domain.work import Update
from crowdgrad.host.remote import control_file
from crowdgrad.host.remote.control import HOLDS, Answer, Control, state_of
from crowdgrad.host.remote.control_file import Entrance, announce, new_token, read, withdraw
from crowdgrad.host.training import Training
from crowdgrad.host.units import PAUSED
from tests.host import small
from tests.host.people import ONES, asynchronous, evaluate, leased, train_one, updated


class Stage:
    """A small job with worker 0 and a volunteer, its owner, and a clock that is set by hand."""

    def __init__(self, training: Training | None = None) -> None:
        self.now = 0.0
        self.stop = asyncio.Event()
        self.training = training or small.training()
        self.own = self.training.join(0.0, small.volunteer("own"), own=True)
        self.ada = self.training.join(0.0, small.volunteer("ada"), own=False)
        self.control = Control(self.training, lambda: self.now, self.stop)

    def wish(self, name: str) -> Answer:
        answer = getattr(self.control, name)()
        assert isinstance(answer, Answer)
        assert answer.state == state_of(self.training)
        assert answer.holds == (answer.state in HOLDS[name])  # type: ignore[index]
        return answer


@asynchronous
async def test_a_paused_run_gives_no_units_and_takes_what_is_under_way() -> None:
    stage = Stage()
    assert state_of(stage.training) == "waiting"
    unit, base = leased(stage.training, stage.ada)
    answer = stage.wish("pause")
    assert (answer.state, answer.changed, answer.holds) == ("paused", True, True)
    assert stage.training.lease(1.0, stage.ada, (), base) == (None, PAUSED)
    update = updated(unit, base)
    assert await stage.training.take(1.0, stage.ada, update, ONES.copy()) == "accepted"
    await evaluate(stage.training, stage.own, 0.5, 1.0)
    again = stage.wish("pause")
    assert (again.state, again.changed, again.holds) == ("paused", False, True)
    assert again.reason == "it is paused already"
    answer = stage.wish("resume")
    assert (answer.state, answer.changed) == ("running", True)
    leased(stage.training, stage.ada, 2.0)
    again = stage.wish("resume")
    assert (again.state, again.changed, again.holds) == ("running", False, True)


@asynchronous
async def test_the_time_of_a_pause_does_not_count() -> None:
    stage = Stage(small.training(the_job=small.job(minutes=1.0)))
    await train_one(stage.training, stage.ada, 0.0)
    stage.now = 10.0
    stage.wish("pause")
    stage.now = 1000.0
    await stage.training.tick(stage.now)
    stage.wish("resume")
    await stage.training.tick(stage.now)
    assert stage.training.course.elapsed_s(stage.now) == 10.0
    assert state_of(stage.training) == "running"


@pytest.mark.parametrize("paused", [False, True])
def test_finishing_validates_the_last_and_tests_the_best(paused: bool) -> None:
    @asynchronous
    async def scenario() -> None:
        stage = Stage()
        await train_one(stage.training, stage.ada, 0.0)
        if paused:
            stage.wish("pause")
        answer = stage.wish("finish")
        assert (answer.state, answer.changed, answer.holds) == ("finishing", True, True)
        again = stage.wish("finish")
        assert (again.changed, again.holds) == (False, True)
        assert "finished early by its host" in again.reason
        refused, why = stage.training.lease(1.0, stage.ada, (), stage.training.parameters.version)
        assert refused is None
        assert "training is over" in why
        await evaluate(stage.training, stage.own, 0.8, 1.0)
        test = leased_test(stage)
        assert await stage.training.take(2.0, stage.own, test, None) == "accepted"
        await stage.training.tick(2.0)
        answer = stage.wish("finish")
        assert (answer.state, answer.changed, answer.holds) == ("finished", False, True)
        ending = stage.training.course.ending
        assert ending is not None
        assert ending.reason == "finished early by its host"
        assert stage.training.course.tested is not None
        assert not stage.stop.is_set()

    scenario()


def leased_test(stage: Stage) -> Update:
    version = stage.training.parameters.version
    granted, reason = stage.training.lease(2.0, stage.own, (), version)
    assert granted is not None, reason
    round_ = stage.training.course.evaluation.round
    assert round_ is not None
    assert round_.kind == "test"
    return updated(granted.unit, round_.version, samples=15, metrics={"accuracy": 0.7})


@asynchronous
async def test_stopping_ends_it_at_once_and_twice_is_once() -> None:
    stage = Stage()
    await train_one(stage.training, stage.ada, 0.0)
    answer = stage.wish("stop")
    assert (answer.state, answer.changed, answer.holds) == ("stopped", True, True)
    assert stage.stop.is_set()
    again = stage.wish("stop")
    assert (again.state, again.changed, again.holds) == ("stopped", False, True)
    assert "stopped by its host" in again.reason


@pytest.mark.parametrize(
    ("first", "then", "state", "says"),
    [
        ("stop", "pause", "stopped", "it cannot pause: it was stopped (stopped by its host)"),
        ("stop", "resume", "stopped", "it cannot resume: it was stopped"),
        ("stop", "finish", "stopped", "it cannot finish: it was stopped"),
        ("finish", "pause", "finishing", "it cannot pause: what it learned is being checked"),
        ("finish", "resume", "finishing", "it cannot resume: what it learned is being checked"),
    ],
)
def test_what_cannot_be_any_more_is_answered_with_the_reason(
    first: str, then: str, state: str, says: str
) -> None:
    @asynchronous
    async def scenario() -> None:
        stage = Stage()
        stage.wish(first)
        answer = stage.wish(then)
        assert (answer.state, answer.changed, answer.holds) == (state, False, False)
        assert says in answer.reason

    scenario()


@asynchronous
async def test_a_run_that_is_finishing_can_still_be_stopped() -> None:
    stage = Stage()
    stage.wish("finish")
    answer = stage.wish("stop")
    assert (answer.state, answer.changed) == ("stopped", True)
    assert stage.stop.is_set()


@asynchronous
async def test_a_run_that_ended_while_it_was_paused_does_not_resume() -> None:
    stage = Stage()
    stage.wish("pause")
    stage.training.fail("no luck")
    answer = stage.wish("resume")
    assert (answer.state, answer.changed, answer.holds) == ("failed", False, False)
    assert answer.reason == "it cannot resume: it has failed (no luck)"
    assert stage.wish("stop").holds


def test_every_wish_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @asynchronous
    async def scenario() -> None:
        stage = Stage()
        for name in HOLDS:
            stage.wish(name)

    with caplog.at_level(logging.INFO, logger="crowdgrad.host.remote.control"):
        scenario()
    assert len(caplog.records) == len(HOLDS)
    for name, line in zip(HOLDS, caplog.messages, strict=True):
        assert f"asked to {name}" in line


# -- control.json -----------------------------------------------------------------------------


def test_only_its_owner_may_read_how_a_run_is_steered(tmp_path: Path) -> None:
    path, token = tmp_path / control_file.NAME, new_token()
    assert len(bytes.fromhex(token)) == 32
    assert token != new_token()
    assert read(path) is None
    announce(path, "http://127.0.0.1:8080", token, 12)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = read(path)
    assert found == Entrance(url="http://127.0.0.1:8080", token=token, pid=12)
    assert found.address == ("127.0.0.1", 8080)
    assert token not in repr(found)
    announce(path, "http://[::1]:1", token, 13)  # of a host that died here before
    again = read(path)
    assert again is not None
    assert (again.pid, again.address) == (13, ("::1", 1))
    withdraw(path)
    withdraw(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://203.0.113.5:80"},
        {"url": "http://127.0.0.1:80@203.0.113.5:80"},
        {"url": "http://127.0.0.1:80/elsewhere"},
        {"url": "http://127.0.0.1:99999"},
        {"url": 3},
        {"token": "a\r\nb"},
        {"token": None},
        {"pid": "1"},
    ],
)
def test_a_folder_from_elsewhere_sends_nobody_anywhere(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / control_file.NAME
    sound = {"url": "http://127.0.0.1:80", "token": "ab", "pid": 1}
    path.write_text(json.dumps(sound))
    assert read(path) is not None
    path.write_text(json.dumps({**sound, **change}))
    assert read(path) is None
    for torn in ("{", "[]", "3", ""):
        path.write_text(torn)
        assert read(path) is None


def test_a_disk_that_refuses_costs_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = new_token()
    (tmp_path / "file").touch()
    announce(tmp_path / "file" / control_file.NAME, "http://127.0.0.1:1", token, 1)
    assert "no command can steer it" in caplog.text
    assert token not in caplog.text
