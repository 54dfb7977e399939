"""Hosts that are killed and go on: the same curve, the same crowd, every batch counted once.

All of it with real processes. One run is trained and killed for the whole module; what each test
does to it, it does to a copy.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.process import Child, end_all
from tests.integration.conftest import children_of

BATCH_SIZE = 50
JOB = f"""
title = "digits"
task = "crowdgrad.capture.models:digits_mlp"
data = "digits"
[recipe]
name = "async_sgd"
lr = 0.05
batch_size = {BATCH_SIZE}
[stop]
epochs = 100000
"""
SETTINGS = "heartbeat_s = 0.5\nsilence_s = 3.0\nlease_s = 5.0\ncheckpoint_s = {}\n"
TIMEOUT_S = 60.0
Json = dict[str, Any]


class Host:
    """`crowdgrad host` as a process, through all its lives."""

    def __init__(self, folder: Path, run: Path | None = None, *, checkpoint_s: float = 0.3) -> None:
        """`run`: an earlier one to go on with."""
        self.folder = folder
        self.home = new_home(folder / "home", checkpoint_s)
        self.child: Child | None = None
        self.volunteers: list[Child] = []
        self.here: Json = {"folder": str(run)}

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *error: object) -> None:
        end_all([child for child in (self.child, *self.volunteers) if child is not None], 10.0)

    def start(self, *arguments: str, supervised: bool = False) -> None:
        """With a job, or with what there is to resume."""
        watch = () if supervised else ("--no-supervise",)
        announced = self.folder / "here.json"
        announced.unlink(missing_ok=True)
        self.child = Child(
            ["host", *arguments, *watch, "--plain", "--home", str(self.home),
             "--runs", str(self.folder / "runs"), "--announce", str(announced),
             "--json", str(self.folder / "outcome.json")],
            log=self.folder / "host.log",
        )  # fmt: skip
        self.until("it listens", lambda: self.announced())

    def resume(self, *more: str, supervised: bool = False) -> None:
        self.start("--resume", str(self.run), *more, supervised=supervised)

    def announced(self, other_than: int = 0) -> bool:
        try:
            here = json.loads((self.folder / "here.json").read_text())
        except (OSError, ValueError):
            return False
        self.here = here
        return bool(here["pid"] != other_than)

    @property
    def run(self) -> Path:
        return Path(self.here["folder"])

    def volunteer(self, name: str) -> Child:
        child = Child(
            ["work", self.here["address"], "--guest", "--yes", "--plain", "--name", name,
             "--home", str(self.home)],
            log=self.folder / f"{name}.log",
        )  # fmt: skip
        self.volunteers.append(child)
        return child

    def status(self) -> Json:
        """Empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.here['url']}/status", timeout=10) as reply:
                told = json.loads(reply.read())
        except (urllib.error.URLError, ConnectionError):
            return {}
        assert isinstance(told, dict)
        return told

    def updates(self) -> int:
        return int(self.status().get("updates", 0))

    def member(self, name: str) -> Json:
        members = self.status().get("members", [])
        return next((m for m in members if m["name"] == name), {"units": 0, "connected": False})

    def units_of(self, name: str) -> int:
        return int(self.member(name)["units"])

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        assert self.child is not None
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.child.code is None, f"it ended before {what}: {self.child.last_words()}"
            assert time.monotonic() < deadline, f"waited in vain until {what}: {self.told()}"
            time.sleep(0.02)

    def told(self) -> str:
        """What everybody said last, for whoever reads a failure."""
        logs = [f"{log.name}: {log.read_text()[-2000:]}" for log in self.folder.glob("*.log")]
        return "\n".join([str(self.status()), *logs])

    def train_on(self, updates: int = 100) -> None:
        """Until so many more updates are in a checkpoint."""
        enough = self.updates() + updates
        self.until("a checkpoint has them", lambda: newest_count(self.run) >= enough)

    def kill(self) -> None:
        """The process that trains, not one that watches over it."""
        assert self.child is not None
        os.kill(int(self.here["pid"]), signal.SIGKILL)
        if self.child.pid == self.here["pid"]:
            self.child.kill()

    def finish(self) -> Json:
        """Wait for its end; what it tells of it."""
        assert self.child is not None
        assert self.child.wait(TIMEOUT_S)
        assert self.child.code == 0, self.child.last_words()
        self.child.ask_to_stop()  # it has: this closes our end of the pipe
        told = json.loads((self.folder / "outcome.json").read_text())
        assert isinstance(told, dict)
        return told

    def said(self) -> str:
        return (self.folder / "host.log").read_text()


def new_home(folder: Path, checkpoint_s: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.toml").write_text(SETTINGS.format(checkpoint_s))
    return folder


def checkpoints(run: Path) -> list[Path]:
    """The oldest first."""
    return sorted((run / "resume" / "checkpoints").glob("[0-9]*.pack"))


def newest_count(run: Path) -> int:
    return max((int(file.name.split("-")[1]) for file in checkpoints(run)), default=0)


def some_more_epochs(run: Path) -> int:
    """A number of epochs that a host which is dead now had not begun, and that are soon done."""
    records = json.loads((run / "job.json").read_text())["data"]["records"]["train"]
    return newest_count(run) * BATCH_SIZE // int(records) + 30


def incarnation(version: str) -> int:
    return int(version.partition(".")[0])


def lines_of(run: Path) -> list[Json]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def counted_once(outcome: Json, run: Path, epochs: int) -> None:
    """Every record of every epoch is in the ledger once, and in the parameters."""
    told = json.loads((run / "job.json").read_text())
    assert told["state"] == outcome["state"] == "finished"
    assert outcome["samples"] == epochs * told["data"]["records"]["train"]
    assert sum(m["samples"] for m in outcome["members"]) == outcome["samples"]
    assert sum(m["units"] for m in outcome["members"]) == outcome["updates"]
    assert int(outcome["version"].rpartition(".")[2]) == outcome["updates"]


def number_of(line: Json) -> tuple[int, ...]:
    return tuple(map(int, line["version"].split(".")))


def one_curve(lines: Sequence[Json]) -> None:
    """No moment is told twice, versions only grow, and no evaluation is out of its place."""
    training = [line for line in lines if line["kind"] == "training"]
    versions = [number_of(line) for line in training]
    assert versions == sorted(versions)
    for name in ("updates", "samples", "elapsed_s", "epochs_done"):
        values = [line[name] for line in training]
        assert values == sorted(values), name
    scored = [number_of(line) for line in lines if line["kind"] == "validate"]
    assert scored == sorted(set(scored))
    counts = [count for _, count in versions]
    assert counts == sorted(counts), "each host goes on where the one before was"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run whose host was killed while it trained."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "job.toml").write_text(JOB)
    with Host(folder) as host:
        host.start(str(folder / "job.toml"))
        for _ in range(3):
            host.train_on()
        host.kill()
        assert len(checkpoints(host.run)) >= 3
        yield host.run


@pytest.fixture
def run(killed: Path, tmp_path: Path) -> Path:
    """A copy of it, as if carried to another machine."""
    return Path(shutil.copytree(killed, tmp_path / "runs" / killed.name))


def test_a_killed_host_goes_on_and_so_do_its_volunteers(run: Path, tmp_path: Path) -> None:
    had, incarnations = newest_count(run), [0]
    with Host(tmp_path, run) as host:
        for life in range(2):
            host.resume()
            status = host.status()
            assert status["updates"] >= had, "what was in a checkpoint is there"
            incarnations.append(incarnation(status["version"]))
            if not life:
                host.volunteer("ada")
            before = host.units_of("ada")
            host.until("ada works", lambda: host.units_of("ada") > before + 3)  # noqa: B023
            host.train_on()
            had = newest_count(run)
            host.kill()
        host.resume()
        host.kill()  # again, before anybody has come
        epochs = some_more_epochs(run)
        host.resume("--epochs", str(epochs))
        incarnations.append(incarnation(host.status()["version"]))
        outcome = host.finish()
    assert incarnations == sorted(set(incarnations))
    counted_once(outcome, run, epochs)
    lines = lines_of(run)
    one_curve(lines)
    restarts = [line["kind"] for line in lines].count("restart")
    assert restarts == outcome["resumed"]
    assert restarts >= 3, "of the one that died at once nothing need be known"
    assert outcome["test"]["metrics"]["accuracy"] >= 0.9


@pytest.mark.slow  # so it is beneath the pages of tests/pages/test_reconnect.py, always
def test_a_host_that_is_killed_is_started_again_by_itself(run: Path, tmp_path: Path) -> None:
    with Host(tmp_path, run) as host:
        host.resume(supervised=True)
        assert host.child is not None
        assert host.here["pid"] != host.child.pid
        ada = host.volunteer("ada")
        host.until("ada works", lambda: host.units_of("ada") > 3)
        host.train_on()
        had, dead = newest_count(run), host.here["pid"]
        host.kill()
        host.until("another is there", lambda: host.announced(other_than=dead))
        assert host.updates() >= had
        before = host.units_of("ada")  # as the new one knows it: it may have kept more than we saw
        host.until("ada is back", lambda: host.units_of("ada") > before)
        host.child.ask_to_stop()
        assert host.child.wait(TIMEOUT_S)
        assert ada.wait(TIMEOUT_S)
    assert json.loads((run / "job.json").read_text())["state"] == "stopped"
    one_curve(lines_of(run))
    assert "killed by SIGKILL" in host.said()


@pytest.mark.slow
def test_what_is_finished_elsewhere_is_trained_for_longer(run: Path, tmp_path: Path) -> None:
    """On another machine: another folder, another home with other keys, no job file, no source."""
    with Host(tmp_path, run) as host:
        host.resume()
        host.train_on()
        host.kill()
        first = some_more_epochs(run)
        host.resume("--epochs", str(first))
        counted_once(host.finish(), run, first)
        again = Child(["host", "--resume", str(run), "--plain", "--home", str(host.home)],
                      log=tmp_path / "again.log")  # fmt: skip
        assert again.wait(TIMEOUT_S)
        assert again.code != 0
        assert "is finished" in (tmp_path / "again.log").read_text()
        again.ask_to_stop()
        host.resume("--epochs", str(first + 10))
        counted_once(host.finish(), run, first + 10)
    one_curve(lines_of(run))
    assert (run / "model.safetensors").exists()


@pytest.mark.slow
def test_a_checkpoint_that_was_altered_is_named_and_the_one_before_used(
    run: Path, tmp_path: Path
) -> None:
    *_, older, newest = checkpoints(run)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with Host(tmp_path, run) as host:
        host.resume()
        status = host.status()
        assert f"from version 0.{int(older.name.split('-')[1])}" in host.said()
        assert newest.name in host.said()
        host.train_on()
        host.kill()
        epochs = some_more_epochs(run)
        host.resume("--epochs", str(epochs))
        outcome = host.finish()
    assert incarnation(outcome["version"]) > incarnation(status["version"]) > 0
    counted_once(outcome, run, epochs)
    one_curve(lines_of(run))


@pytest.mark.slow
def test_a_volunteer_sleeps_while_its_host_dies(run: Path, tmp_path: Path) -> None:
    """Longer than `silence_s`, and through a host's whole death: it comes back all the same."""
    with Host(tmp_path, run) as host:
        host.resume()
        ada = host.volunteer("ada")
        host.until("ada works", lambda: host.units_of("ada") > 3)
        everyone = (ada.pid, *children_of(ada.pid))
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        host.until("ada is gone", lambda: not host.member("ada")["connected"])
        host.train_on()
        before = host.units_of("ada")
        host.kill()
        host.resume()
        host.train_on()
        assert host.units_of("ada") == before
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        host.until("ada is back", lambda: host.units_of("ada") > before)
        assert tuple(children_of(ada.pid)) == everyone[1:], "its trainer and data were kept"
        host.train_on(1)
        host.kill()
        epochs = some_more_epochs(run)
        host.resume("--epochs", str(epochs))
        counted_once(host.finish(), run, epochs)


@pytest.mark.slow
def test_killed_at_any_moment(run: Path, tmp_path: Path) -> None:
    """Also while it starts, listens, reads or writes a checkpoint.

    These are rarer than lines of metrics here: what was told after the last one is told anew.
    """
    chance = random.Random(0)
    with Host(tmp_path, run, checkpoint_s=2.0) as host:
        host.resume()
        host.volunteer("ada")
        for _ in range(10):
            had = newest_count(run)
            time.sleep(chance.uniform(0.0, 4.0))
            host.kill()
            host.resume()
            assert host.updates() >= had
        host.kill()
        epochs = some_more_epochs(run)
        host.resume("--epochs", str(epochs))
        outcome = host.finish()
    counted_once(outcome, run, epochs)
    one_curve(lines_of(run))
