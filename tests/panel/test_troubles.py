"""Whatever is asked, the answer is of one form and says what to do next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from crowdgrad.panel.api import material
from crowdgrad.panel.app import Panel, create_app
from crowdgrad.panel.hub import Hub
from crowdgrad.panel.results import DataFound, Splits
from crowdgrad.settings import Settings

DRAFT = {"title": "t", "data": "digits", "model": {"kind": "mlp"}}


@pytest.fixture
def panel(tmp_path: Path) -> Panel:
    return Panel(Settings(home=tmp_path), runs=tmp_path / "runs", scratch=tmp_path)


@pytest.fixture
def client(panel: Panel) -> Iterator[TestClient]:
    with TestClient(create_app(panel), raise_server_exceptions=False) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "wish", "code"),
    [
        ("nothing", {}, 404),
        ("machine", {}, 405),
        ("data", {"source": "~nobody-of-that-name/x"}, 400),
        ("data", {"source": "a\0b"}, 400),
        ("work", {"target": "a\0b"}, 400),
        ("work", {"causes": ["a\0b"]}, 400),
        ("work", {"target": "--home=/x"}, 400),
        ("job", {"draft": DRAFT, "folder": "~nobody-of-that-name/x"}, 400),
        ("job", {"draft": DRAFT, "folder": "/dev/null/x"}, 500),
        ("host", {"path": "~nobody-of-that-name/x.toml"}, 400),
        ("host", {"path": "/a\0.toml"}, 400),
    ],
)
def test_what_makes_no_sense_is_answered_with_advice(client, path, wish, code):
    told = client.post(f"/api/{path}", json=wish)
    assert told.status_code == code, told.text
    assert told.json()["detail"] == told.json()["error"]["message"]
    assert told.json()["error"]["advice"]
    assert "mistake" not in told.text


@pytest.mark.parametrize("body", [b"{", b'{"source":' + b"[" * 100_000, b"9" * 5000, b"\xff"])
def test_what_is_no_json_is_answered_in_words(client, body):
    headers = {"Content-Type": "application/json"}
    told = client.post("/api/data", content=body, headers=headers)
    assert told.status_code in (400, 422)
    assert told.json()["error"]["message"]


def test_a_mistake_of_ours_is_said_so(client, panel, monkeypatch):
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(panel.runs, "every", broken)
    told = client.get("/api/runs")
    assert (told.status_code, "ZeroDivisionError" in told.json()["detail"]) == (500, True)
    assert told.json()["error"]["advice"]


def test_pages_that_ask_the_same_at_once_start_one_process(panel, monkeypatch):
    started = []

    async def errand(*_: object) -> object:
        started.append(1)
        await asyncio.sleep(0.01)
        splits = Splits(train=1, validation=0, test=0)
        return DataFound(
            data="digits", title="", records=1, kind="other", shape=(), classes=None, fields=(),
            splits=splits, notes=(), problems=(), bytes=0, fits={}, samples=(),
        )  # fmt: skip

    monkeypatch.setattr(material, "errand", errand)

    async def ask() -> None:
        await asyncio.gather(*(material._found_now(panel, "digits") for _ in range(20)))

    asyncio.run(ask())
    assert started == [1]


def test_a_line_that_is_said_while_somebody_comes_is_heard_once():
    async def scenario() -> list[bytes]:
        hub = Hub("hello")
        hub.lines("r", ["before"])
        heard = hub.listen("r")
        told = [await anext(heard)]
        hub.lines("r", ["while"])
        told += [await anext(heard), await anext(heard)]
        await heard.aclose()
        return told

    assert b"".join(asyncio.run(scenario())).count(b"while") == 1
