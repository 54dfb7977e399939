"""A run steered from another terminal: real processes, from pause to finish."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.cli.runs import next_steps
from crowdgrad.host.remote.runs import Seen, look
from crowdgrad.host.remote.steering import steer
from crowdgrad.host.units import PAUSED
from crowdgrad.process import Child, end_all

JOB = """
title = "digits"
task = "crowdgrad.capture.models:digits_mlp"
data = "digits"
[recipe]
lr = 0.05
overlap = 0
[stop]
epochs = 1000000
"""


class Host:
    """`crowdgrad host` as a process, and the commands of its owner beside it.

    Without overlap: who waits has no unit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "job.toml").write_text(JOB)
        self.child = Child(
            ["host", str(folder / "job.toml"), "--home", str(folder / "home"), "--plain",
             "--runs", str(folder / "runs"), "--helpers", "1",
             "--announce", str(folder / "here.json")],
            log=folder / "host.log",
        )  # fmt: skip

    def __enter__(self) -> Host:
        self.until("it listens", lambda: (self.folder / "here.json").exists())
        self.here = json.loads((self.folder / "here.json").read_text())
        return self

    def __exit__(self, *error: object) -> None:
        end_all([self.child], 10.0)

    @property
    def run(self) -> Path:
        return Path(self.here["folder"])

    def seen(self) -> Seen:
        return look(self.run)

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.here['url']}/status", timeout=10) as reply:
            told = json.loads(reply.read())
        assert isinstance(told, dict)
        return told

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert self.child.code is None, f"it ended before {what}: {self.child.last_words()}"
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            time.sleep(0.05)

    def runs(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code and JSON of `crowdgrad runs …`."""
        done = subprocess.run(
            [sys.executable, "-m", "crowdgrad", "runs", *arguments, "--json", "-",
             "--runs", str(self.folder / "runs")],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def all_wait(self) -> bool:
        here = [member for member in self.status()["members"] if member["connected"]]
        return len(here) == 2 and all(PAUSED in member["state"] for member in here)


@pytest.mark.slow  # the panel and its pages wish the same of running hosts
def test_paused_resumed_and_finished_from_another_terminal(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        host.until("both train", lambda: sum(m["units"] > 0 for m in host.status()["members"]) == 2)
        secret = host.run / "control.json"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600, "it holds a token"
        code, answer = host.runs("pause")
        assert (code, answer["state"], answer["changed"]) == (0, "paused", True)
        host.until("nobody has a unit any more", host.all_wait)
        before = host.status()["updates"]
        for _ in range(10):
            time.sleep(0.1)  # each of them asks again meanwhile
            assert host.status()["updates"] == before
        assert host.seen().state == "paused"
        for changed in (True, False):
            resumed = steer(host.run, host.seen().id, "resume")
            assert resumed is not None
            assert (resumed.state, resumed.changed) == ("running", changed)
        host.until("it goes on", lambda: host.status()["updates"] > before + 10)

        code, answer = host.runs("finish", "last")
        assert (code, answer["changed"], answer["holds"]) == (0, True, True)
        assert host.child.wait(60), "it ends by itself"
        assert host.child.code == 0, host.child.last_words()

    job = json.loads((host.run / "job.json").read_text())
    assert (job["state"], job["outcome"]["reason"]) == ("finished", "finished early by its host")
    assert job["outcome"]["test"]["metrics"]["accuracy"] > 0
    assert (host.run / "model.safetensors").exists()
    assert not (host.run / "control.json").exists()
    assert steer(host.run, host.seen().id, "resume") is None, "nobody is there"
    assert (host.seen().state, host.seen().alive) == ("finished", False)


@pytest.mark.slow
def test_stopped_from_another_terminal_the_best_is_kept(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        host.until("something is learned", lambda: host.status()["best"] is not None)
        code, answer = host.runs("stop")
        assert (code, answer["state"], answer["changed"]) == (0, "stopped", True)
        assert host.child.wait(60), "it ends by itself"
        assert host.child.code == 1, "as after Ctrl-C"
    assert host.runs("stop", "last")[0] == 0, "that is how it is"
    code, answer = host.runs("resume", "last")
    assert (code, answer["state"], answer["holds"]) == (1, "stopped", False)
    seen = host.seen()
    assert (seen.state, seen.reason) == ("stopped", "stopped by its host")
    assert next_steps(seen)[0][0] == f"crowdgrad host --resume {host.run}"
    assert (host.run / "model.onnx").exists()
