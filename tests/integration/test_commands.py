"""The commands as a person types them: from start to Ctrl-C, nearly all as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crowdgrad.cli.main import main
from tests.integration.conftest import ours

JOB = """
title = "digits"
task = "crowdgrad.capture.models:digits_mlp"
data = "digits"
[recipe]
lr = 0.05
[stop]
epochs = 30
"""


def crowdgrad(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crowdgrad", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )


def test_host_trains_and_says_so_as_json(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    done = crowdgrad("host", "job.toml", "--home", str(tmp_path), "--helpers", "1", "--json", "-",
                     cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["state"] == "finished"
    assert told["test"]["metrics"]["accuracy"] > 0.85
    assert {member["name"] for member in told["members"]} == {"worker-0", "local-1"}
    assert (tmp_path / told["run"] / "model.onnx").exists()
    assert "crowdgrad work 127.0.0.1:" in done.stderr


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("lr = 0.05", "lr = -1"), "CG102", "learning rate -1.0"),
        (("lr = 0.05", "momentum = 0.9"), "CG102", "no field 'momentum'"),
        (("[recipe]", "colour = 3\n[recipe]"), "CG101", "unknown key 'colour'"),
        (('data = "digits"', 'data = "gone.npz"'), "CG401", "gone.npz"),
        (('data = "digits"', 'data = "imagenet"'), "CG401", "imagenet"),
        (("epochs = 30", "epochs = 0"), "CG101", "0 epochs"),
        (("[recipe]", 'weights = "gone.safetensors"\n[recipe]'), "CG401", "gone.safetensors"),
        ((":digits_mlp", ":nothing"), "CG105", "'nothing'"),
        (("title", "title = ["), "CG101", "not a TOML file"),
    ],
)
def test_a_bad_job_file_is_one_line_that_says_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    code: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB.replace(*change))
    assert main(["host", "job.toml", "--home", str(tmp_path), "--no-supervise"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"crowdgrad: [{code}]")
    assert says in line
    assert not (tmp_path / "runs").exists()


def test_labels_the_model_does_not_have_are_named_before_anything_starts(tmp_path: Path) -> None:
    x, y = np.zeros((50, 8, 8), np.uint8), np.arange(50) % 10
    y[33] = 12
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    (tmp_path / "job.toml").write_text(JOB.replace('"digits"\n[recipe]', '"mine.npz"\n[recipe]'))
    done = crowdgrad("host", "job.toml", "--home", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "[CG403]" in line
    assert "is 12; the model has the classes 0 to 9" in line
    assert not (tmp_path / "runs").exists()


def test_a_volunteers_install_says_what_a_host_needs(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from crowdgrad.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    for command in (["check", "m:o"], ["demo", "--quick"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 1
        (line,) = done.stderr.strip().splitlines()
        assert "[CG204] This needs torch" in line


def test_a_model_that_cannot_be_captured(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\nimport crowdgrad as cg\n"
        "class Odd(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(2, 2)\n"
        "    def forward(self, x):\n"
        "        return self.l(x) if x.sum() > 0 else x\n"
        "task = cg.Task(Odd(), nn.functional.mse_loss, (torch.ones(4, 2),), (torch.ones(4, 2),))\n"
    )
    done = crowdgrad("check", "model:task", "--json", "-", cwd=tmp_path)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["travels"] is False
    assert "[CG301]" in told["reason"]
    assert "model.py" in told["reason"]


def test_check_answers_a_hosts_questions(tmp_path: Path) -> None:
    done = crowdgrad("check", "crowdgrad.capture.models:mnist_mlp", "--json", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["travels"] is True
    assert told["parameters"] == 79510
    assert told["bytes_per_update"] == 4 * 79510
    assert told["max_gradient_error"] < 1e-4
    assert "Gemm" in told["operators"] or "MatMul" in told["operators"]
    memory = told["activation_bytes"]
    assert memory["1"] < memory["32"] < memory["256"]
    assert told["speed"]["ratio"] == pytest.approx(
        told["speed"]["torch_ms"] / told["speed"]["program_ms"]
    )
    assert (told["smallest_batch"], told["fixed_batch"], told["conv_form"]) == (1, None, None)


def test_a_busy_port_and_an_unreachable_matchmaker(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        busy = crowdgrad("host", "job.toml", "--home", str(tmp_path), "--port", port, cwd=tmp_path)
        assert (busy.returncode, "[CG201]" in busy.stderr) == (1, True)
    gone = f"http://127.0.0.1:{port}"
    lonely = crowdgrad("work", "--matchmaker", gone, "--home", str(tmp_path), cwd=tmp_path)
    assert (lonely.returncode, "[CG202]" in lonely.stderr) == (1, True)
    nobody = crowdgrad("work", f"127.0.0.1:{port}", "--home", str(tmp_path), cwd=tmp_path)
    assert (nobody.returncode, "[CG202]" in nobody.stderr) == (1, True)
    assert len(nobody.stderr.strip().splitlines()) == 1


def test_settings_show_their_source(tmp_path: Path) -> None:
    done = crowdgrad("settings", "--home", str(tmp_path), "--json", "-", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["home"] == told["home"] | {"value": str(tmp_path), "source": "command line"}


class Demo:
    """A demo on digits, in a process group of its own as a terminal would start it."""

    def __init__(self, folder: Path, *extra: str) -> None:
        self.folder = folder
        log = (folder / "demo.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crowdgrad", "demo", "--data", "digits", "--plain", "--home",
             str(folder / "home"), "--runs", str(folder / "runs"), *extra],
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )  # fmt: skip
        log.close()

    def wait_for(self, text: str) -> None:
        for _ in range(1200):
            if text in (self.folder / "demo.log").read_text():
                return
            assert self.process.poll() is None, (self.folder / "demo.log").read_text()
            time.sleep(0.05)
        raise AssertionError(f"the demo never said {text!r}")


def wait_until_none_is_left(folder: Path) -> None:
    for _ in range(200):
        if not ours(str(folder)):
            return
        time.sleep(0.05)
    raise AssertionError(f"left behind: {ours(str(folder))}")


@pytest.mark.slow
def test_the_demo_ends_by_itself(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--quick", "--json", str(tmp_path / "out.json"))
    assert demo.process.wait(100) == 0, (tmp_path / "demo.log").read_text()
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["accuracy"] > 0.9
    assert told["volunteers"] == 5
    assert told["updates"] > 100
    assert (Path(told["run"]) / "report.html").read_text().startswith("<!doctype html>")
    said = (tmp_path / "demo.log").read_text()
    assert "Killed blaise" in said
    assert "Dorothy joins" in said


@pytest.mark.parametrize(
    "moment",
    [
        "",
        "Data:",
        *(
            pytest.param(moment, marks=pytest.mark.slow)
            for moment in ("processes started", "Killed blaise")
        ),
    ],
)
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path: Path, moment: str) -> None:
    demo = Demo(tmp_path)
    demo.wait_for(moment)
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.process.wait(20) in (130, -signal.SIGINT)
    assert ours(str(tmp_path)) == {}


@pytest.mark.slow
def test_a_killed_demo_takes_everyone_with_it(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.wait_for("processes started")
    demo.process.kill()
    demo.process.wait()
    wait_until_none_is_left(tmp_path)
