"""Runs whose folders are damaged or come from elsewhere: they cost nobody else anything."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from crowdgrad.host.remote.runs import Seen, held
from crowdgrad.host.remote.runs import look as real_look
from crowdgrad.panel import calls, runs
from crowdgrad.panel.api import runs as runs_api
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
    ],
)
def test_what_is_left_of_a_run_is_told_only_where_it_makes_sense(
    client, tmp_path, what, file, text
):
    a_run(tmp_path, "bad", **{file: text})
    told = client.get(f"/api/runs/bad/{what}")
    assert told.status_code == 400
    assert told.json()["error"]["advice"]


@pytest.mark.parametrize("line", [DEEP, '{"kind":"training","elapsed_s":' + "9" * 400 + "}", "{"])
def test_a_line_that_makes_no_sense_costs_only_itself(client, tmp_path, line):
    good = '{"kind":"training","elapsed_s":2}'
    said = '{"time":"1970-01-01T00:01:00Z","level":"INFO","message":"a"}'
    files = {"metrics.jsonl": f"{line}\n{good}\n", "logs__host.jsonl": f"{line}\n{said}\n"}
    a_run(tmp_path, "bad", **files)
    assert client.get("/api/runs/bad/history").json()["training"][-1]["at_s"] == 2
    assert [one["text"] for one in client.get("/api/runs/bad/log").json()["lines"]] == ["a"]


@pytest.fixture
def looked(monkeypatch) -> list[str]:
    """The runs whose folders were read, in order."""
    found: list[str] = []

    def look(folder: Path) -> Seen:
        found.append(folder.name)
        return real_look(folder)

    monkeypatch.setattr(runs, "look", look)
    return found


def shown(client: TestClient) -> dict[str, dict[str, object]]:
    return {run["id"]: run for run in client.get("/api/runs").json()}


def test_runs_without_a_host_are_read_again_only_when_they_have_changed(client, tmp_path, looked):
    a_run(tmp_path, "a")
    other = a_run(tmp_path, "b")
    assert shown(client) == shown(client)
    assert sorted(looked) == ["a", "b"]
    told = {"id": "b", "title": "another", "state": "finished", "outcome": {}}
    (other / "job.json").write_text(json.dumps(told))
    assert shown(client)["b"]["title"] == "another"
    (other / "resume").mkdir()
    (other / "resume" / "job.pack").write_bytes(b"1234")
    assert shown(client)["b"]["resumable"]
    (other / "metrics.jsonl").write_text('{"kind": "training"}\n')
    before = shown(client)["b"]["bytes"]
    (other / "resume" / "checkpoints").mkdir()
    (other / "resume" / "checkpoints" / "1.pack").write_bytes(b"12345")
    assert shown(client)["b"]["bytes"] == before + 5
    assert looked.count("a") == 1
    shutil.rmtree(other)
    assert set(shown(client)) == {"a"}


def test_a_run_that_somebody_holds_is_read_each_time(client, tmp_path, looked):
    folder = a_run(tmp_path, "r", '{"id": "r", "state": "running"}')
    assert shown(client)["r"]["state"] == "crashed"
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert [shown(client)["r"]["alive"] for _ in range(2)] == [True, True]
    os.close(handle)
    assert [shown(client)["r"]["alive"] for _ in range(2)] == [False, False]
    assert looked == ["r"] * 4
    (folder / "control.json").write_text("{}")
    for _ in range(2):
        shown(client)
    assert looked == ["r"] * 6, "a host may begin to answer any time"


def test_all_who_ask_meanwhile_share_the_next_walk(tmp_path, monkeypatch):
    walks: list[None] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(folder: Path) -> list[Path]:
        walks.append(None)
        begun.set()
        assert go_on.wait(10)
        return []

    monkeypatch.setattr(runs, "run_folders", slow)

    async def scenario() -> None:
        listing = runs.Listing(tmp_path)
        first = asyncio.create_task(listing.take())
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.create_task(listing.take()) for _ in range(20)]
        await asyncio.sleep(0)
        others[0].cancel()
        go_on.set()
        await asyncio.gather(first, *others[1:])

    asyncio.run(scenario())
    assert len(walks) == 2


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


def test_where_nobody_passed_data_on_nothing_is_told_of_it(client, tmp_path):
    a_run(tmp_path, "r")
    told = client.get("/api/runs/r/swarm")
    assert (told.status_code, told.json()) == (200, None)
    assert client.get("/api/runs/r/qr.svg").status_code == 409


def test_a_model_is_asked_beside_no_living_host(client, panel, tmp_path, monkeypatch):
    asked: list[dict[str, object]] = []

    async def ask(folder: Path, question: dict[str, object]) -> dict[str, object]:
        asked.append(question)
        return {"by": "another process"}

    monkeypatch.setattr(panel.askers, "ask", ask)
    folder = a_run(tmp_path, "r", '{"id": "r", "state": "running"}')
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # it lives, and is too slow to answer
    for told in (
        client.get("/api/runs/r/samples"),
        client.post("/api/runs/r/predict", json={"input": [1.0]}),
    ):
        assert told.status_code == 409
        assert told.json()["error"]["advice"]
    assert asked == []
    os.close(handle)
    assert client.get("/api/runs/r/samples").json() == {"by": "another process"}
    client.post("/api/runs/r/predict", json={"input": [1.0]})
    assert asked == [{"count": 24}, {"input": [1.0]}]


@pytest.mark.parametrize("state", ["ending", "finished"])
def test_a_host_that_has_ended_is_waited_for(client, panel, tmp_path, monkeypatch, state):
    """It writes the results; whoever draws meanwhile hears nothing of that."""
    folder = a_run(tmp_path, "r", json.dumps({"id": "r", "state": state}))
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    looked = 0

    def look(where: Path) -> bool:
        nonlocal looked
        looked += 1
        if looked == 3:
            os.close(handle)
        return held(where)

    async def ask(folder: Path, question: dict[str, object]) -> dict[str, object]:
        return {"by": "another process"}

    monkeypatch.setattr(panel.askers, "ask", ask)
    monkeypatch.setattr(runs, "held", look)
    assert client.get("/api/runs/r/samples").json() == {"by": "another process"}
    assert looked == 3


def test_a_host_that_goes_on_with_a_finished_run_is_not_waited_for(
    client, panel, tmp_path, monkeypatch
):
    """It is about to begin for more epochs; until then the folder says that the run has ended."""
    folder = a_run(tmp_path, "r", '{"id": "r", "state": "finished"}')
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)

    async def never(*_: object) -> bool:
        raise AssertionError("it is waited for")

    monkeypatch.setattr(runs_api, "is_left", never)
    monkeypatch.setattr(panel.children, "begins_again", folder.__eq__)
    assert client.get("/api/runs/r/samples").status_code == 409
    os.close(handle)


def test_a_host_that_never_ends_is_not_waited_for_without_end(tmp_path):
    folder = a_run(tmp_path, "r", '{"id": "r", "state": "ending"}')
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert not asyncio.run(runs.is_left(folder, patience_s=0.3))
    os.close(handle)
    assert asyncio.run(runs.is_left(folder))


def test_an_answer_that_is_too_long_is_refused_in_words(client, tmp_path, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        a_run(tmp_path, "r", **{"control.json": json.dumps({"url": url, "token": "a", "pid": 1})})
        monkeypatch.setattr(calls, "MAX_ANSWER", len('{"job": "r"}'))
        told = client.get("/api/runs/r/job")
        server.shutdown()
    assert told.status_code == 409
    assert "is longer than 12 bytes" in told.json()["error"]["message"]


def test_runs_go_by_the_names_of_their_folders(client, tmp_path):
    """However they were copied or renamed; what its host calls a run is in its folder."""
    folder = a_run(tmp_path, "r", **{"metrics.jsonl": ""})
    shutil.copytree(folder, tmp_path / "runs" / "r-backup")
    folder.rename(tmp_path / "runs" / "best")
    (tmp_path / "runs" / "no name for a run").mkdir()
    shutil.copy(tmp_path / "runs" / "best" / "job.json", tmp_path / "runs" / "no name for a run")
    assert set(shown(client)) == {"best", "r-backup"}
    assert client.get("/api/runs/best/history").status_code == 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:  # says it has r
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = {"url": f"http://127.0.0.1:{server.server_port}", "token": "a", "pid": 1}
        (tmp_path / "runs" / "best" / "control.json").write_text(json.dumps(told))
        assert client.get("/api/runs/best/status").json() == {"job": "r"}
        server.shutdown()


def test_who_is_about_to_go_on_is_not_begun_twice(client, panel, tmp_path, monkeypatch):
    folder = a_run(tmp_path, "r")
    begun: list[list[str]] = []
    monkeypatch.setattr(
        panel.children, "start", lambda _, words: begun.append(words) or SimpleNamespace(id="c")
    )
    monkeypatch.setattr(panel.children, "begins_again", lambda of: of == folder and bool(begun))
    assert client.post("/api/runs/r/restart").status_code == 200
    again = client.post("/api/runs/r/restart")
    assert (again.status_code, again.json()["error"]["code"]) == (500, "CG209")
    assert len(begun) == 1


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
