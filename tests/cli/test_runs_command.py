"""`crowdgrad runs`: what it finds in a folder, and what it asks of hosts that are there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.cli.main import main
from crowdgrad.cli.runs import spell_age, spell_bytes
from crowdgrad.host.folder import RunFolder
from crowdgrad.host.remote import control_file
from crowdgrad.host.remote.api import create_app
from crowdgrad.host.remote.control import Control, state_of
from crowdgrad.host.telling.status import CheckpointStatus, Status
from crowdgrad.host.telling.taking import take_status
from crowdgrad.host.training import Training
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import bind
from tests.host import small

pytestmark = pytest.mark.usefixtures("like_a_process_of_its_own")

OLD, NEW = "20250101-120000-digits-ab12", "20250301-120000-digits-cd34"
ACCURACY = [{"name": "accuracy", "better": "higher"}]
BEST = {"metrics": {"accuracy": 0.9721}, "loss": 0.1}


def a_run(runs: Path, name: str, state: str, **told: Any) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    job = {"id": name, "title": "Digits", "metrics": ACCURACY, "stop": {"epochs": 10}}
    (folder / "job.json").write_text(json.dumps({**job, "state": state, **told}))
    return folder


def checkpointed(folder: Path) -> Path:
    (folder / "resume" / "checkpoints").mkdir(parents=True)
    (folder / "resume" / "job.pack").write_bytes(b"job")
    (folder / "resume" / "checkpoints" / "000000-000000000300-00000017.pack").write_bytes(b"c")
    return folder


class Host:
    """A host that only answers: the real API over a small job, in a thread."""

    def __init__(self, runs: Path, name: str = small.job().id) -> None:
        self.folder = a_run(runs, name, "running", id=small.job().id)
        self.training: Training = small.training()
        self.trouble = ""
        self.token = control_file.new_token()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def _status(self) -> Status:
        kept = CheckpointStatus(version=None, age_s=None, bytes=0, written=0, trouble=self.trouble)
        return replace(take_status(self.training, 1.0), checkpoint=kept)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        control = Control(self.training, lambda: 1.0, asyncio.Event())
        app = create_app(self._status, control, self.token)
        server = HttpServer(app, bind("127.0.0.1", 0), max_message_bytes=1 << 16)
        await server.start()
        control_file.announce(
            self.folder / control_file.NAME, f"http://{server.address}", self.token, os.getpid()
        )
        self._ready.set()
        await self._over.wait()
        await server.stop()

    def __enter__(self) -> Host:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


@contextlib.contextmanager
def busy(folder: Path) -> Iterator[None]:
    """A host has the folder and does not answer."""
    host = RunFolder(folder, again=True)
    try:
        yield
    finally:
        host.close()


def run(runs: Path, *arguments: str) -> int:
    return main(["runs", *arguments, "--runs", str(runs)])


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_trouble_with_checkpoints_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Host(tmp_path) as host:
        assert run(tmp_path, "show") == 0
        assert "Trouble" not in capsys.readouterr().out
        host.trouble = "CHECKPOINTS ARE PAUSED: the disk is full."
        assert run(tmp_path, "show") == 0
        assert f"Trouble         {host.trouble}" in capsys.readouterr().out
        assert run(tmp_path) == 0
        assert host.trouble in capsys.readouterr().out


# -- listing ----------------------------------------------------------------------------------


def test_runs_are_listed_with_how_they_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "runs") == 0
    assert "There are no runs" in capsys.readouterr().out
    outcome = {"epochs_done": 10.0, "epochs": 10, "best": BEST, "test": BEST, "reason": "all done"}
    a_run(tmp_path, OLD, "finished", outcome=outcome)
    a_run(tmp_path, NEW, "running")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "job.json").write_text("[]")
    assert run(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{NEW}  crashed"
    assert lines[2] == f"{OLD}  finished"
    assert lines[3].startswith("  “Digits”, epoch 10.0 of 10, best accuracy 97.21 %, ")
    assert "broken" in lines[4]
    assert all(len(line) <= 80 for line in lines[:4])
    assert run(tmp_path, "--json", "-") == 0
    runs = told(capsys)["runs"]
    assert [(one["id"], one["state"], one["alive"]) for one in runs] == [
        (NEW, "crashed", False), (OLD, "finished", False),
    ]  # fmt: skip
    size = sum(file.stat().st_size for file in (tmp_path / OLD).iterdir())
    assert (runs[1]["bytes"], runs[1]["best"]) == (size, "97.21 %")
    began = time.mktime(time.strptime(OLD[:15], "%Y%m%d-%H%M%S"))
    assert runs[1]["started_at"] == began


def test_what_a_crashed_run_had_reached_is_read_from_its_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpointed(a_run(tmp_path, OLD, "running"))
    lines = [{"kind": "training", "epochs_done": 1.0}]
    lines += [
        {"kind": "validate", "loss": 1.0, "metrics": {"accuracy": a}} for a in (0.5, 0.9, 0.7)
    ]
    lines += [{"kind": "training", "epochs_done": 2.5}]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"kind": "trai')
    assert run(tmp_path, "show", OLD) == 0
    shown = capsys.readouterr().out
    assert "crashed: its host ended without a word" in shown
    assert "epoch 2.5 of 10" in shown
    assert "90.00 %" in shown
    assert f"crowdgrad host --resume {folder}\n" in shown
    assert "from its last checkpoint" in shown


def test_an_id_is_enough_where_runs_are_looked_for_anyway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished = checkpointed(a_run(Path("runs"), OLD, "finished", outcome={"reason": "all done"}))
    (finished / "model.onnx").write_bytes(b"")
    assert main(["runs", "show", "last", "--json", "-"]) == 0
    assert told(capsys)["next"] == [
        f"crowdgrad host --resume {OLD} --epochs N", f"crowdgrad predict {OLD} FILE",
    ]  # fmt: skip
    a_run(Path("runs"), NEW, "stopped")
    assert main(["runs", "show"]) == 0
    shown = capsys.readouterr().out
    assert NEW in shown, "the last one, where none goes on"
    assert "it left no checkpoint" in shown


def test_a_run_whose_host_does_not_answer_is_not_called_crashed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_run(tmp_path, OLD, "running")
    with busy(folder):
        assert run(tmp_path, "--json", "-") == 0
        (one,) = told(capsys)["runs"]
        assert (one["state"], one["alive"], one["answers"]) == ("running", True, False)
        assert "does not answer" in one["reason"]
        assert one["next"] == [f"crowdgrad runs show {folder}"]
        assert run(tmp_path, "stop") == 1
        assert "[CG202]" in capsys.readouterr().err
    assert run(tmp_path, "--json", "-") == 0
    assert told(capsys)["runs"][0]["state"] == "crashed"


# -- wishes -----------------------------------------------------------------------------------


def test_a_run_that_goes_on_is_paused_resumed_finished_and_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path, OLD, "stopped")
    with Host(tmp_path) as host:
        for wish, state in (("pause", "paused"), ("resume", "waiting"),
                            ("finish", "finishing"), ("stop", "stopped")):  # fmt: skip
            assert run(tmp_path, wish) == 0, "the only one that goes on"
            assert f"small-1 is {state}: " in capsys.readouterr().out
            assert state_of(host.training) == state
            assert run(tmp_path, wish, "small-1", "--json", "-") == 0, "twice is once"
            answer = told(capsys)
            assert (answer["state"], answer["changed"], answer["holds"]) == (state, False, True)
            assert answer["run"] == str(host.folder)
        assert run(tmp_path, "resume", str(host.folder)) == 1
        assert "it cannot resume: it was stopped" in capsys.readouterr().out


def test_a_live_run_is_shown_as_its_host_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Host(tmp_path) as host:
        host.training.join(0.0, small.volunteer("ada"), own=False)
        assert run(tmp_path, "pause") == 0
        capsys.readouterr()
        assert run(tmp_path, "show") == 0
        shown = capsys.readouterr().out
        assert "State           paused" in shown
        assert "Volunteers      1," in shown
        assert f"  crowdgrad runs resume {host.folder}\n" in shown
        assert run(tmp_path, "--json", "-") == 0
        (one,) = told(capsys)["runs"]
        assert (one["state"], one["alive"], one["answers"]) == ("paused", True, True)


def test_of_several_that_go_on_one_must_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Host(tmp_path, "one") as one, Host(tmp_path, "two") as two:
        assert run(tmp_path, "stop") == 1
        said = capsys.readouterr().err
        assert "[CG105] Several runs go on: two, one." in said
        assert state_of(one.training) == state_of(two.training) == "waiting"
        assert run(tmp_path, "stop", "two") == 0
        assert (state_of(one.training), state_of(two.training)) == ("waiting", "stopped")


def test_a_dead_host_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Host(tmp_path) as host:
        checkpointed(host.folder)
    for wish in ("pause", "resume", "finish", "stop"):
        assert run(tmp_path, wish, "last") == 1
        said = capsys.readouterr().err
        assert "[CG202] small-1 is not running: it has crashed." in said
        assert f"`crowdgrad host --resume {host.folder}` goes on from its last checkpoint." in said
    assert run(tmp_path, "pause") == 1
    assert "goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "fulfilled"),
    [("finished", {"finish", "stop"}), ("stopped", {"stop"}), ("failed", {"stop"})],
)
def test_a_run_that_is_over_may_be_as_wished_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, fulfilled: set[str]
) -> None:
    a_run(tmp_path, OLD, state, outcome={"reason": "that was it"})
    for wish in ("pause", "resume", "finish", "stop"):
        assert run(tmp_path, wish, OLD) == (0 if wish in fulfilled else 1)
        said = capsys.readouterr()
        if wish in fulfilled:
            assert f"{OLD} is {state} already (that was it)." in said.out
        else:
            assert "is not running" in said.err


def test_another_host_at_a_dead_ones_address_hears_no_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A port is soon another's: its wishes are not ours, whatever it answers."""
    with Host(tmp_path) as host:
        dead = a_run(tmp_path, OLD, "running")
        (dead / control_file.NAME).write_bytes((host.folder / control_file.NAME).read_bytes())
        assert run(tmp_path, "stop", OLD) == 1
        assert "has crashed" in capsys.readouterr().err
        assert state_of(host.training) == "waiting"


def test_a_proxy_in_the_environment_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Host(tmp_path) as host:
        assert run(tmp_path, "pause") == 0
        assert state_of(host.training) == "paused"


def test_options_may_stand_before_the_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path, OLD, "finished")
    assert main(["runs", "--runs", str(tmp_path), "--json", "-", "show", OLD]) == 0
    assert told(capsys)["id"] == OLD


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (90, "2 min"), (7200, "2 h"), (2e5, "2 d")]
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert spell_age(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (5e6, "5 MB"), (2e9, "2 GB")]
)
def test_sizes_are_short(count: float, text: str) -> None:
    assert spell_bytes(int(count)) == text
