"""The pages that the web app takes over where it is built, and that stay as they are without it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from crowdgrad import webapp
from crowdgrad.matchmaker import pages
from crowdgrad.matchmaker.app import create_service
from crowdgrad.store.memory import MemoryStore
from tests.matchmaker.test_pages import read, summary


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "static" / "assets"
    assets.mkdir(parents=True)
    (assets / "app.js").write_text("1")
    monkeypatch.setattr(webapp, "STATIC", tmp_path / "static")


@pytest.fixture
def no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webapp, "STATIC", tmp_path / "nothing")


def boot_of(text: str) -> dict[str, object]:
    (found,) = re.findall(r'<script type="application/json" id="boot">(.*?)</script>', text)
    told: dict[str, object] = json.loads(found)
    return told


def front(path: str = "/") -> tuple[int, str, dict[str, str]]:
    with TestClient(create_service(MemoryStore()).http) as client:
        reply = client.get(path)
    return reply.status_code, reply.text, dict(reply.headers)


@pytest.mark.usefixtures("build")
def test_where_it_is_built_the_front_page_loads_it_and_stays_readable_without() -> None:
    _, text, headers = front()
    assert headers["content-security-policy"] == pages.APP_HEADERS["Content-Security-Policy"]
    assert boot_of(text)["page"] == "front"
    assert '<script type="module" src="/assets/app.js">' in text
    assert text.index('<div id="app">') < text.index("Lend your machine") < text.index('id="boot"')
    assert front("/assets/app.js")[:2] == (200, "1")
    assert front("/assets/../static")[0] == 404


@pytest.mark.usefixtures("build")
def test_pages_of_which_the_app_knows_nothing_stay_without_scripts() -> None:
    _, text, headers = front("/privacy")
    assert headers["content-security-policy"] == pages.HEADERS["Content-Security-Policy"]
    assert "<script" not in text


@pytest.mark.usefixtures("no_build")
def test_where_it_is_not_built_nothing_changes() -> None:
    _, text, headers = front()
    assert headers["content-security-policy"] == pages.HEADERS["Content-Security-Policy"]
    assert "<script" not in text
    assert 'id="app"' not in text
    assert "./scripts/web" not in text, "that is nothing for visitors"
    assert front("/assets/app.js")[0] == 404


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("evil", ["</script><script>alert(1)</script>", "<!--", "K7Q-2MP"])
def test_a_strangers_code_stays_a_word_in_the_boot_too(evil: str) -> None:
    text = pages.job(
        summary(code=evil, title=evil), "https://m.example/j/x", "<svg></svg>", app=True
    )
    assert boot_of(text)["code"] == evil
    usual = pages.job(summary(), "https://m.example/j/x", "<svg></svg>", app=True)
    assert read(text).tags == read(usual).tags
