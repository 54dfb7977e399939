"""Volunteers join, leave and are killed while the job goes on and nothing is counted twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared
from crowdgrad.host.members.departures import STAYED
from crowdgrad.host.options import Outcome
from crowdgrad.process import Child, end_all
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage, children_of, job_with

ENDLESS = StoppingRule(epochs=100_000)


def counted_once(outcome: Outcome) -> None:
    status = outcome.status
    assert sum(member.samples for member in status.members) == status.samples
    assert sum(member.units for member in status.members) == status.updates
    assert status.version == f"0.{status.updates}"


def test_a_job_trains_without_any_volunteer(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    async def scenario() -> Outcome:
        async with Stage(job_with(digits), settings, tmp_path) as stage:
            return await stage.outcome()

    outcome = asyncio.run(scenario())
    assert outcome.state == "finished"
    assert outcome.status.test is not None
    assert outcome.status.test.metrics["accuracy"] >= 0.9
    assert outcome.status.samples == 40 * digits.manifest.records("train")
    counted_once(outcome)
    names = {file.name for file in outcome.folder.iterdir()}
    assert names == {
        "job.json",
        "metrics.jsonl",
        "model.onnx",
        "model.safetensors",
        "report.html",
        "resume",
        "swarm.json",
        "tensorboard",
        "logs",
    }
    lines = (outcome.folder / "metrics.jsonl").read_text().splitlines()
    kinds = {json.loads(line)["kind"] for line in lines}
    assert kinds == {"training", "volunteers", "departure", "validate", "look", "test"}
    job = json.loads((outcome.folder / "job.json").read_text())
    assert job["state"] == "finished"
    assert job["outcome"]["updates"] == outcome.status.updates


def leave_politely(volunteer: Child) -> None:
    volunteer.ask_to_stop()


def kill(volunteer: Child) -> None:
    volunteer.kill()


def freeze(volunteer: Child) -> None:
    os.kill(volunteer.pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("go", "state"),
    [
        (leave_politely, "left: the volunteer stopped"),
        (kill, "(127.0.0.1:"),
        (freeze, "fell silent"),
    ],
)
def test_someone_goes_and_another_joins(
    digits: Prepared, settings: Settings, tmp_path: Path, go: Callable[[Child], None], state: str
) -> None:
    async def scenario() -> Outcome:
        async with Stage(job_with(digits, stop=ENDLESS), settings, tmp_path) as stage:
            ada = stage.volunteer("ada")
            await stage.until("ada works", lambda: stage.units_of("ada") > 3)
            await asyncio.to_thread(go, ada)
            await stage.until("ada is gone", lambda: state in stage.member("ada"))
            before = stage.status.updates
            stage.volunteer("ben")
            await stage.until("ben works", lambda: stage.units_of("ben") > 3)
            await stage.until("it goes on", lambda: stage.status.updates > before + 50)
            if go is freeze:
                os.kill(ada.pid, signal.SIGCONT)
                before = stage.units_of("ada")
                await stage.until("ada is back", lambda: stage.units_of("ada") > before)
            stage.stop.set()
            return await stage.outcome()

    outcome = asyncio.run(scenario())
    assert outcome.state == "stopped"
    assert (outcome.folder / "model.safetensors").exists()
    counted_once(outcome)


def test_a_killed_trainer_is_replaced_and_its_unit_not_lost(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    async def scenario() -> Outcome:
        async with Stage(job_with(digits, stop=ENDLESS), settings, tmp_path) as stage:
            ada = stage.volunteer("ada")
            await stage.until("ada works", lambda: stage.units_of("ada") > 3)
            (trainer,) = children_of(ada.pid)
            os.kill(trainer, signal.SIGKILL)
            before = stage.units_of("ada")
            await stage.until("ada goes on", lambda: stage.units_of("ada") > before + 10)
            assert children_of(ada.pid) != [trainer]
            assert ada.code is None
            stage.stop.set()
            return await stage.outcome()

    outcome = asyncio.run(scenario())
    counted_once(outcome)
    assert "The trainer" in (tmp_path / "ada.log").read_text()


def test_worker_zero_is_replaced(digits: Prepared, settings: Settings, tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        async with Stage(job_with(digits, stop=ENDLESS), settings, tmp_path) as stage:
            await stage.until("it works", lambda: stage.units_of("worker-0") > 3)
            (worker,) = (p for p in children_of(os.getpid()) if _name(p) == "worker-0")
            os.kill(worker, signal.SIGKILL)
            evaluated = len(stage.run.training.course.history)
            await stage.until(
                "a new one evaluates",
                lambda: len(stage.run.training.course.history) > evaluated + 1,
            )
            stage.stop.set()
            return await stage.outcome()

    outcome = asyncio.run(scenario())
    counted_once(outcome)
    own = [member for member in outcome.status.members if member.position == 0]
    assert [member.state for member in own] == [STAYED], "it is one member, whatever happens"


def _name(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[words.index(b"--name") + 1].decode() if b"--name" in words else ""


def test_the_matchmaker_dies_and_nobody_in_the_job_notices(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    def matchmaker(port: str) -> Child:
        file = tmp_path / "matchmaker.json"
        file.unlink(missing_ok=True)
        words = ["matchmaker", "--home", str(tmp_path / "mm"), "--port", port, "--json", str(file)]
        return Child(words, log=tmp_path / "mm.log")

    async def url(of: Child) -> str:
        while not (tmp_path / "matchmaker.json").exists():
            assert of.code is None, of.last_words()
            await asyncio.sleep(0.05)
        return str(json.loads((tmp_path / "matchmaker.json").read_text())["url"])

    async def scenario() -> Outcome:
        first = matchmaker("0")
        where = await url(first)
        prepared = job_with(digits, stop=ENDLESS)
        try:
            async with Stage(prepared, settings, tmp_path, matchmaker=where) as stage:
                assert stage.here is not None
                assert stage.here.code is not None
                stage.volunteer("ada", "--matchmaker", where)
                await stage.until("ada is matched", lambda: stage.units_of("ada") > 3)
                first.kill()
                before = stage.units_of("ada")
                await stage.until("ada goes on", lambda: stage.units_of("ada") > before + 20)
                second = matchmaker(where.rpartition(":")[2])
                stage.children.append(second)
                await url(second)
                stage.volunteer("ben", "--matchmaker", where, stage.here.code)
                await stage.until("ben joins while it runs", lambda: stage.units_of("ben") > 3)
                stage.stop.set()
                return await stage.outcome()
        finally:
            end_all([first])

    outcome = asyncio.run(scenario())
    counted_once(outcome)
    assert [m.position for m in outcome.status.members] == [0, 1, 2]
