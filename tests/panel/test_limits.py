"""What was chosen on the page counts the next time, too."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from crowdgrad.domain.manners import Limits, Profile
from crowdgrad.panel.app import Panel, create_app
from crowdgrad.panel.calls import Reply
from crowdgrad.panel.limits import NAME, Kept
from crowdgrad.settings import Settings

GENTLE = Limits(in_use=Profile(share=0.1), idle=Profile(share=0.2, threads=2), hours="22:00-07:00")


@pytest.fixture
def panel(tmp_path: Path) -> Panel:
    return Panel(Settings(home=tmp_path, cpu=40), runs=tmp_path / "runs", scratch=tmp_path)


def test_settings_count_until_somebody_has_chosen(tmp_path: Path) -> None:
    kept = Kept(Settings(home=tmp_path / "new", cpu=40))
    assert (kept.file, kept.now().in_use.share) == (None, 0.4)
    kept.keep(GENTLE)
    assert (kept.file, kept.now()) == (tmp_path / "new" / NAME, GENTLE)
    assert Kept(Settings(home=tmp_path / "new")).now() == GENTLE
    assert stat.S_IMODE((tmp_path / "new" / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", '{"hours": "late"}', "[]"])
def test_what_makes_no_sense_is_as_if_nobody_had(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    kept = Kept(Settings(home=tmp_path, cpu=40))
    assert (kept.file, kept.now().in_use.share) == (None, 0.4)


def test_a_volunteer_is_started_with_them(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Begun:
        id = "work-1"

    def start(kind: str, arguments: list[str]) -> Begun:
        started.append(arguments)
        return Begun()

    monkeypatch.setattr(panel.children, "start", start)
    with TestClient(create_app(panel)) as client:
        assert client.post("/api/work", json={}).status_code == 200
        chosen = {"in_use": {"share": 0.1}, "hours": "22:00-07:00"}
        assert client.post("/api/work", json={"limits": chosen}).status_code == 200
        assert client.post("/api/work", json={}).status_code == 200
        assert client.get("/api/machine").json()["limits"]["hours"] == "22:00-07:00"
    named = f"--limits={tmp_path / NAME}"
    assert [named in arguments for arguments in started] == [False, True, True]


@pytest.mark.parametrize("code", [200, 422])
def test_what_the_volunteer_takes_while_it_works_counts_the_next_time_too(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked: list[tuple[str, str, bytes | None]] = []

    async def ask(entrance: object, method: str, path: str, **how: Any) -> Reply:
        asked.append((method, path, how["body"]))
        return Reply(code=code, kind="application/json", body=b"{}")

    monkeypatch.setattr(panel.caller, "ask", ask)
    child = SimpleNamespace(entrance=object(), alive=True)
    monkeypatch.setattr(panel.children, "working", lambda: child)
    with TestClient(create_app(panel)) as client:
        wish = {"in_use": {"share": 0.1}, "hours": "22:00-07:00"}
        assert client.put("/api/work/limits", json=wish).status_code == code
    ((method, path, body),) = asked
    assert (method, path) == ("PUT", "/limits")
    assert msgspec.json.decode(body or b"")["hours"] == "22:00-07:00"
    kept = Kept(Settings(home=tmp_path))
    assert (kept.now().hours == "22:00-07:00") is (code == 200), "what it refused is not kept"
