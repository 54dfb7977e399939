"""What the control panel asks of a real host: curves, another rate, the model, the public page."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.process import Child, end_all

JOB = """
title = "digits"
description = "Handwritten digits"
task = "crowdgrad.capture.models:digits_mlp"
data = "digits"
[recipe]
lr = 0.05
[stop]
epochs = 1000000
"""


class Host:
    def __init__(self, folder: Path, *words: str, name: str = "here") -> None:
        self.announced = folder / f"{name}.json"
        self.child = Child(
            ["host", *words, "--home", str(folder / "home"), "--plain", "--host", "127.0.0.1",
             "--runs", str(folder / "runs"), "--no-supervise", "--announce", str(self.announced)],
            log=folder / f"{name}.log",
        )  # fmt: skip

    def __enter__(self) -> Host:
        until("it listens", self.announced.exists)
        self.here = json.loads(self.announced.read_text())
        return self

    def __exit__(self, *error: object) -> None:
        end_all([self.child], 10.0)

    def get(self, path: str) -> Any:
        return json.loads(fetch(self.here["url"] + path, self.here["token"])[1])

    def post(self, path: str, body: object, token: str | None = None) -> Any:
        token = self.here["token"] if token is None else token
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            self.here["url"] + path, json.dumps(body).encode(), headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.loads(reply.read())


def fetch(url: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=30
        ) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(what: str, holds: Callable[[], object], patience_s: float = 60.0) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.05)


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.toml").write_text(JOB)
    return str(tmp_path / "job.toml")


def test_a_run_is_watched_asked_and_steered_and_the_wish_survives_a_kill(
    tmp_path: Path, job: str
) -> None:
    with Host(tmp_path, job, "--page", "127.0.0.1:0") as host:
        assert stat.S_IMODE(host.announced.stat().st_mode) == 0o600
        assert host.here["run"] == Path(host.here["folder"]).name
        learned(host)
        before = len(host.get("/history")["training"])
        until("the curve grows", lambda: len(host.get("/history")["training"]) > before)
        the_model_knows_digits(host)
        the_public_page_tells_nothing_else(host)
        answer = host.post("/rate", {"learning_rate": 0.0125})
        assert (answer["changed"], answer["holds"]) == (True, True)
        assert host.get("/status")["learning_rate"] == pytest.approx(0.0125)
        assert not host.post("/rate", {"learning_rate": 0.0125})["changed"]
        said = host.get("/log")
        assert any("learning rate" in line["text"] for line in said["lines"])
        assert host.get(f"/log?after={said['next']}")["lines"] == []
        written = host.get("/status")["checkpoint"]["written"]
        until("it is kept", lambda: host.get("/status")["checkpoint"]["written"] > written + 1)
        curve = host.get("/history")
        os.kill(host.here["pid"], signal.SIGKILL)
        assert host.child.wait(30)
    page = host.here["page"]
    with Host(tmp_path, "--resume", host.here["folder"], name="again") as host:
        assert host.here["page"] == page, "whoever was given its address finds it there"
        assert host.get("/status")["learning_rate"] == pytest.approx(0.0125)
        kept = host.get("/history")["training"]
        assert kept[0] == curve["training"][0], "what came before is read again"
        assert host.get("/history")["evaluations"][0] == curve["evaluations"][0]
        lines = (Path(host.here["folder"]) / "metrics.jsonl").read_text().splitlines()
        rates = [told for line in lines if (told := json.loads(line))["kind"] == "rate"]
        assert [told["learning_rate"] for told in rates] == [0.0125]


def learned(host: Host) -> None:
    def well() -> bool:
        best = host.get("/status")["best"]
        return best is not None and best["metrics"]["accuracy"] > 0.93

    until("it has learned", well)


def the_model_knows_digits(host: Host) -> None:
    assert fetch(f"{host.here['url']}/samples")[0] == 401, "records are for its owner"
    found = host.get("/samples?count=50")
    assert (found["kind"], found["shape"], found["split"]) == ("image", [8, 8], "test")
    assert found["classes"] == [str(digit) for digit in range(10)]
    samples = found["samples"]
    assert len(samples) == 50
    assert all(0 <= value <= 1 for sample in samples for value in sample["input"])
    assert max(max(sample["input"]) for sample in samples) == 1.0
    assert sum(sample["right"] for sample in samples) > 40
    for sample in samples:
        assert sample["right"] == (sample["label"] == sample["predicted"])
    sure = max(samples, key=lambda sample: sample["right"] * sample["probability"])
    answers = host.post("/predict", {"input": sure["input"]})["answers"]
    assert answers[0]["label"] == sure["label"]
    assert sum(answer["probability"] for answer in answers) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        host.post("/predict", {"input": sure["input"]}, token="no")
    with pytest.raises(urllib.error.HTTPError, match="422"):
        host.post("/predict", {"input": [0.5]})


def the_public_page_tells_nothing_else(host: Host) -> None:
    page = host.here["page"].rstrip("/")
    assert page != host.here["url"]
    code, text = fetch(f"{page}/")
    assert code == 200
    assert '<div id="app">' in text
    assert "Handwritten digits" in text
    told = json.loads(fetch(f"{page}/job.json")[1])
    assert told["title"] == "digits"
    assert (told["members"], told["here"], told["samples"] > 0) == ([], 0, True), "no helper yet"
    assert "svg" in fetch(f"{page}/qr.svg")[1]
    assert fetch(f"{host.here['url']}/")[0] == 200
    for path in ("/status", "/log", "/history", "/samples", "/swarm", "/openapi.json", "/metrics"):
        assert fetch(page + path)[0] == 404
    for path in ("/pause", "/rate", "/stop"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(urllib.request.Request(page + path, b"{}"), timeout=10)
    secrets = (host.here["token"], host.here["folder"])
    assert not any(secret in text for secret in secrets)
    assert not any(secret in json.dumps(told) for secret in secrets)
