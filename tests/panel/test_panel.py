"""The whole panel, with real children: what people do with it, and what goes wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.panel.living import STUBBORN, Browser, panel

DRAFT = {
    "title": "Digits “here”",
    "data": "digits",
    "model": {"kind": "mlp", "layers": 1, "width": 16},
    "recipe": {"name": "async_sgd", "lr": 0.1},
    "stop": {"epochs": 2},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def browser(home: Path) -> Iterator[Browser]:
    with panel(home) as found:
        yield found


def test_what_there_is_to_choose_from(browser):
    machine = browser.ask("GET", "/api/machine")
    assert machine["gflops"] > 0
    assert machine["limits"]["in_use"]["share"] <= 1
    assert machine["can_host"], machine["why_not"]
    assert "digits" in {entry["name"] for entry in browser.ask("GET", "/api/catalogue")}
    recipes = {recipe["name"]: recipe for recipe in browser.ask("GET", "/api/recipes")}
    assert {"lr"} <= {field["name"] for field in recipes["async_sgd"]["fields"]}
    assert "mlp" in {model["kind"] for model in browser.ask("GET", "/api/models")}


def test_data_of_the_catalogue_is_shown(browser):
    task = browser.task(browser.ask("POST", "/api/data", {"source": "digits"})["task"])
    found = task["result"]
    assert (found["data"], found["kind"], found["shape"]) == ("digits", "image", [8, 8])
    assert len(found["classes"]) == 10
    assert len(found["samples"]) == 24
    first = found["samples"][0]
    assert len(first["input"]) == 64
    assert max(first["input"]) == 1.0
    assert first["label"] in found["classes"]
    fits = {m["kind"]: m["fits"] for m in browser.ask("GET", "/api/models?data=digits")}
    assert fits["mlp"] == ""
    assert fits["gpt"] != ""


def test_a_table_is_uploaded_prepared_and_shown(browser):
    rows = "".join(f"{n},{n % 7},{'a' if n % 2 else 'b'}\n" for n in range(60))
    told = upload(browser, "folder/points.csv", f"length,width,kind\n{rows}")
    assert told["path"] == "folder/points.csv"
    task = browser.task(browser.ask("POST", "/api/data", {"source": told["set"]})["task"])
    assert task["state"] == "done", task["error"]
    assert task["result"]["kind"] == "table"
    assert task["result"]["classes"] == ["a", "b"]
    assert isinstance(task["result"]["samples"][0]["input"], str)


def test_a_broken_row_ends_in_its_line_and_advice(browser):
    rows = "".join(f"{n},{n % 3}\n" for n in range(60))
    told = upload(browser, "broken.csv", f"x,y\n{rows}7\n")
    task = browser.task(browser.ask("POST", "/api/data", {"source": told["set"]})["task"])
    assert task["state"] == "failed"
    assert task["error"]["code"] == "CG404"
    assert task["error"]["advice"]
    assert task["error"]["bad"][0]["line"] == 62
    assert task["error"]["message"].count("broken.csv, line 62") == 1
    skipped = {"source": told["set"], "skip_bad": True}
    task = browser.task(browser.ask("POST", "/api/data", skipped)["task"])
    assert task["result"]["records"] == 60
    assert any("1 record left out" in words for words in task["result"]["problems"])


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", ".a", "a/.b", "", "..\\a", "a\nb"])
def test_uploads_stay_in_their_folder(browser, name):
    assert upload(browser, name, "x", code=400)["error"]["code"] == "CG100"


def test_data_that_is_not_there_is_said_so(browser):
    task = browser.task(browser.ask("POST", "/api/data", {"source": "/no/such"})["task"])
    assert task["error"]["code"] == "CG401"
    assert "digits" in task["error"]["advice"]


@pytest.mark.slow  # tests/pages checks one, always
def test_a_model_that_travels_is_checked_and_estimated(browser):
    task = browser.task(browser.ask("POST", "/api/check", {"draft": DRAFT})["task"])
    assert task["state"] == "done", task["error"]
    assert task["result"]["travels"]
    assert task["result"]["estimate"]["samples"] > 1000
    assert task["result"]["estimate"]["total_s"] > 0


def test_a_model_that_cannot_travel_is_refused_with_a_reason(browser, tmp_path):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    draft = {**DRAFT, "model": None, "task": "stubborn:task", "folder": str(tmp_path)}
    task = browser.task(browser.ask("POST", "/api/check", {"draft": draft})["task"])
    assert task["state"] == "done", task["error"]
    assert not task["result"]["travels"]
    assert task["result"]["code"].startswith("CG3")
    assert not list(tmp_path.glob("*.toml")), "what was written for the check is gone"


def test_a_task_can_be_stopped(browser):
    name = browser.ask("POST", "/api/check", {"draft": DRAFT})["task"]
    assert browser.ask("DELETE", f"/api/tasks/{name}")["state"] == "stopped"
    assert browser.ask("GET", "/api/tasks/none", code=404)["error"]["code"] == "CG401"


def test_a_draft_is_saved_as_a_job_file(browser, tmp_path):
    wish = {"draft": DRAFT, "folder": str(tmp_path), "helpers": 2, "reach": "here"}
    told = browser.ask("POST", "/api/job", wish)
    assert told["path"] == str(tmp_path / "job.toml")
    assert "“here”" in told["toml"]
    start = f"crowdgrad host {tmp_path}/job.toml --helpers 2 --host 127.0.0.1 "
    assert told["command"].startswith(start)


@pytest.fixture(scope="module")
def finished(browser: Browser) -> str:
    """A run that went from a draft to its end, and whose host has ended."""
    child = browser.ask("POST", "/api/host", {"draft": DRAFT})["run"]
    found = browser.child(child, "running", "failed")
    assert found["state"] == "running", found["error"]
    run = found["run"]
    for event, told in browser.events(run):
        if event == "status":
            assert told["job"] == run
        if event == "panel":
            (state,) = [one["state"] for one in told["children"] if one["id"] == child]
            if state != "running":
                break
    assert browser.child(child, "over", "failed")["state"] == "over"
    return str(run)


def test_a_digits_run_from_draft_to_finish(browser, finished):
    (seen,) = [one for one in browser.ask("GET", "/api/runs") if one["id"] == finished]
    assert seen["state"] == "finished"
    assert browser.ask("POST", f"/api/runs/{finished}/stop")["holds"], "over already"
    told = browser.ask("GET", f"/api/runs/{finished}/status")
    assert (told["phase"], told["state"]) == ("over", "finished")
    rate = f"/api/runs/{finished}/rate"
    assert browser.ask("PUT", rate, {"learning_rate": 1}, code=409)["error"]["advice"]


def test_a_run_without_a_host_tells_what_it_told_and_answers(browser, finished):
    history = browser.ask("GET", f"/api/runs/{finished}/history")
    assert history["evaluations"][-1]["metrics"]["accuracy"] > 0
    assert history["training"][-1]["loss"] > 0
    lines = browser.ask("GET", f"/api/runs/{finished}/log")["lines"]
    assert any("worker-0 joined" in line["text"] for line in lines)
    assert browser.ask("GET", f"/api/runs/{finished}/swarm")["plan"] == "swarm"
    found = browser.ask("GET", f"/api/runs/{finished}/samples?count=5")
    assert (found["kind"], len(found["samples"])) == ("image", 5)
    first = found["samples"][0]
    told = browser.ask("POST", f"/api/runs/{finished}/predict", {"input": first["input"]})
    assert told["answers"][0]["label"] == first["predicted"]
    wrong = browser.ask("POST", f"/api/runs/{finished}/predict", {"input": [0.5]}, code=409)
    assert "64 finite numbers" in wrong["error"]["message"]


def test_who_looks_at_a_run_without_a_host_hears_its_last_status(browser, finished):
    for event, told in browser.events(finished):
        if event == "status" and told["phase"] == "over":
            assert told["state"] == "finished"
            return


def test_stop_while_it_starts(browser):
    child = browser.ask("POST", "/api/host", {"draft": DRAFT})["run"]
    assert browser.ask("POST", f"/api/runs/{child}/pause", code=409)["error"]
    assert browser.ask("POST", f"/api/runs/{child}/stop")["changed"]
    found = browser.child(child, "over", "failed")
    assert (found["state"], found["run"]) == ("over", None)


@pytest.mark.slow
def test_stop_while_it_runs(browser):
    child = browser.ask("POST", "/api/host", {"draft": {**DRAFT, "stop": {"epochs": 9999}}})["run"]
    run = browser.child(child, "running", "failed")["run"]
    assert browser.ask("POST", f"/api/runs/{run}/pause")["state"] == "paused"
    assert browser.ask("GET", f"/api/runs/{run}/status")["paused"]
    assert browser.ask("POST", f"/api/runs/{run}/stop")["changed"]
    assert browser.child(child, "over", "failed")["state"] == "over"


def test_nothing_is_published_unless_its_owner_agrees(browser):
    wish = {"draft": DRAFT, "reach": "network"}
    assert browser.ask("POST", "/api/host", wish, code=409)["error"]["code"] == "CG106"


def test_a_host_that_cannot_start_says_why(browser):
    draft = {**DRAFT, "recipe": {"name": "async_sgd", "lr": -1}}
    child = browser.ask("POST", "/api/host", {"draft": draft})["run"]
    found = browser.child(child, "over", "failed")
    assert found["state"] == "failed"
    assert found["error"]["code"] == "CG102"


@pytest.mark.parametrize("run", ["..", "%2e%2e", "no-such-run", "a%2fb"])
def test_runs_are_looked_for_in_their_folder_alone(browser, run):
    assert browser.raw("GET", f"/api/runs/{run}/status")[0] == 404


def test_the_past_of_this_machine(browser):
    journal = browser.ask("GET", "/api/journal")
    assert journal["totals"]["samples"] >= 0
    assert journal["count"] == len(journal["entries"])
    told = browser.ask("GET", "/api/certificate.svg", code=404)
    assert "has not helped anybody yet" in told["error"]["message"]
    assert browser.ask("GET", "/api/work") == {"running": False, "status": None, "error": None}
    assert browser.ask("POST", "/api/work/pause", {"seconds": 1}, code=409)["error"]["advice"]


def test_the_panel_has_no_torch(browser):
    maps = Path(f"/proc/{browser.pid}/maps")
    if not maps.exists():
        pytest.skip("only Linux tells what a process has loaded")
    loaded = maps.read_text()
    assert "numpy" in loaded
    assert not re.search(r"libtorch|onnxruntime", loaded)


def test_a_busy_port_is_said_so(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = subprocess.run(
            [sys.executable, "-m", "crowdgrad", "panel", "--port", str(taken.getsockname()[1])],
            capture_output=True,
            text=True,
            env={**os.environ, "CROWDGRAD_HOME": str(home)},
            timeout=60,
        )
    assert found.returncode == 1
    assert "[CG201]" in found.stderr
    assert "--port" in found.stderr


def test_a_killed_panel_leaves_nobody_behind(tmp_path):
    with panel(tmp_path) as browser:
        wish = {"draft": {**DRAFT, "stop": {"epochs": 9999}}}
        child = browser.ask("POST", "/api/host", wish)["run"]
        browser.child(child, "running")
        everybody = offspring(browser.pid)
        assert len(everybody) >= 2, "the host and its worker"
        waiting = [os.pidfd_open(pid) for pid in everybody]
        os.kill(browser.pid, signal.SIGKILL)
    import select

    for handle in waiting:
        assert select.select([handle], [], [], 60)[0], "it lives on"
        os.close(handle)


def offspring(pid: int) -> list[int]:
    """Children, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *offspring(child)]
    return found


def upload(browser: Browser, name: str, text: str, code: int = 200):
    from json import loads
    from urllib.parse import quote

    status, _, told = browser.raw("POST", f"/api/uploads?name={quote(name)}", text.encode())
    assert status == code, told
    return loads(told)
