"""Runs whose folders are damaged or come from elsewhere: they cost nobody else anything."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from crowdgrad.panel.app import Panel, create_app
from crowdgrad.settings import Settings

DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED = {
    "deep": DEEP,
    "list": "[]",
    "torn": '{"id": "torn"',
    "numbers": '{"id": "numbers", "outcome": {"loss": 1e999, "epochs_done": ' + "9" * 5000 + "}}",
    "types": '{"id": "types", "stop": [], "metrics": [{}], "outcome": "x"}',
}


@pytest.fixture
def panel(tmp_path: Path) -> Panel:
    return Panel(Settings(home=tmp_path), runs=tmp_path / "runs", scratch=tmp_path)


@pytest.fixture
def client(panel: Panel) -> Iterator[TestClient]:
    with TestClient(create_app(panel)) as found:
        yield found


def a_run(home: Path, name: str, job: str = "", **files: str) -> Path:
    folder = home / "runs" / name
    (folder / "logs").mkdir(parents=True)
    fine = json.dumps({"id": name, "state": "finished", "stop": {"epochs": 1}, "outcome": {}})
    (folder / "job.json").write_text(job or fine)
    for file, text in files.items():
        (folder / file.replace("__", "/")).write_text(text)
    return folder


def test_damaged_runs_hide_no_others(client, tmp_path):
    for name, job in DAMAGED.items():
        a_run(tmp_path, name, job)
    a_run(tmp_path, "entrance", **{"control.json": "[" * 4000})
    a_run(tmp_path, "good")
    os.mkfifo(a_run(tmp_path, "pipe").joinpath("job.json.pipe"))
    os.replace(tmp_path / "runs/pipe/job.json.pipe", tmp_path / "runs/pipe/job.json")
    told = client.get("/api/runs")
    assert told.status_code == 200
    assert "good" in {run["id"] for run in told.json()}
    assert client.get("/api/runs/entrance/status").status_code == 200, "as its folder tells"


@pytest.mark.parametrize(
    ("what", "file", "text"),
    [
        ("status", "job.json", '{"id": "bad", "outcome": {"loss": 1e999}}'),
        ("swarm", "swarm.json", '{"plan": 1e999}'),
        ("history", "metrics.jsonl", DEEP),
        ("history", "metrics.jsonl", '{"kind":"training","elapsed_s":' + "9" * 400 + "}"),
        ("log", "logs__host.jsonl", DEEP),
    ],
)
def test_what_is_left_of_a_run_is_told_only_where_it_makes_sense(
    client, tmp_path, what, file, text
):
    a_run(tmp_path, "bad", **{file: text})
    told = client.get(f"/api/runs/bad/{what}")
    assert told.status_code == 400
    assert told.json()["error"]["advice"]


class Impostor(BaseHTTPRequestHandler):
    """Listens where a host did, and says it has its run."""

    def do_GET(self) -> None:
        kind, body = "text/html", b"<script src=/api/runs/r/log></script>"
        if self.path == "/status":
            kind, body = "application/json", b'{"job": "r"}'
        elif self.path.startswith("/log"):
            kind, body = "text/javascript", b"steal()"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_who_listens_in_a_hosts_place_puts_no_page_and_no_script_into_the_panel(client, tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        a_run(tmp_path, "r", **{"control.json": json.dumps({"url": url, "token": "a", "pid": 1})})
        for what in ("job", "qr.svg", "log", "history", "swarm"):
            told = client.get(f"/api/runs/r/{what}")
            assert told.headers["Content-Type"] == "application/json", what
            assert "script" not in told.text
            assert "steal" not in told.text
        server.shutdown()


def test_a_host_of_ours_that_hangs_can_be_stopped(client, panel, tmp_path, monkeypatch):
    folder = a_run(tmp_path, "r", '{"id": "r", "state": "running", "stop": {"epochs": 1}}')
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as a host does for as long as it lives
    assert client.post("/api/runs/r/stop").status_code == 409, "it is somebody else's"
    child, stopped = SimpleNamespace(alive=True), []
    monkeypatch.setattr(panel.children, "of_run", {"r": child}.get)
    monkeypatch.setattr(panel.children, "stop", stopped.append)
    assert client.post("/api/runs/r/pause").status_code == 409
    assert client.post("/api/runs/r/stop").json()["holds"]
    assert stopped == [child]
    os.close(handle)
