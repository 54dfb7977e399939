"""The page that loads the web app: what it carries, what it allows, and what it is without it."""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from crowdgrad import webapp


@pytest.fixture
def static(tmp_path, monkeypatch):
    """A built app, and a secret beside it."""
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "app.js").write_text("console.log(1)")
    (folder / "assets" / "app.css").write_text("body{}")
    (tmp_path / "secret").write_text("not for you")
    (folder / "index.html").write_text("not an asset")
    monkeypatch.setattr(webapp, "STATIC", folder)
    return folder


class Elements(HTMLParser):
    """Every element with its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data):
        if self.found:
            tag, attrs, text = self.found[-1]
            self.found[-1] = (tag, attrs, text + data)

    def all(self, tag):
        return [(attrs, text) for name, attrs, text in self.found if name == tag]


def boot_of(text):
    [found] = [t for attrs, t in Elements(text).all("script") if attrs.get("id") == "boot"]
    return json.loads(found)


def test_the_boot_json_cannot_end_its_element(static):
    boot = {
        "serves": "job",
        "title": "</script><script>alert(1)</script><!--",
        "more": "a & b \u2028 ü",
    }
    text = webapp.page(boot)
    assert boot_of(text) == boot
    assert "alert(1)</script>" not in text
    scripts = Elements(text).all("script")
    assert [attrs.get("src") for attrs, _ in scripts] == ["/assets/app.js", None]


def test_the_page_holds_what_is_there_without_a_script_and_a_title_in_letters(static):
    text = webapp.page({"serves": "panel"}, inner="<h1>Hello</h1>", title="a <b> & c")
    assert '<div id="app"><h1>Hello</h1></div>' in text
    assert "<title>a &lt;b&gt; &amp; c</title>" in text
    icon, style = (attrs for attrs, _ in Elements(text).all("link"))
    assert icon["href"].startswith("data:image/svg+xml,")
    assert style == {"rel": "stylesheet", "href": "/assets/app.css"}


def test_where_it_is_not_built_the_page_says_how_and_loads_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(webapp, "STATIC", tmp_path / "nothing")
    assert not webapp.built()
    text = webapp.page({"serves": "panel"}, inner="<h1>Hello</h1>")
    assert "./scripts/web" in text
    assert "<h1>Hello</h1>" in text
    assert not [attrs for attrs, _ in Elements(text).all("script") if "src" in attrs]
    assert [attrs["rel"] for attrs, _ in Elements(text).all("link")] == ["icon"]
    assert boot_of(text) == {"serves": "panel"}


def served() -> TestClient:
    app = FastAPI()
    webapp.mount(app)
    return TestClient(app, base_url="http://127.0.0.1")


def test_assets_come_with_their_type_and_the_headers(static):
    with served() as client:
        script, style = client.get("/assets/app.js"), client.get("/assets/app.css")
    assert (script.status_code, script.text) == (200, "console.log(1)")
    assert script.headers["content-type"].startswith("text/javascript")
    assert style.headers["content-type"].startswith("text/css")
    for name, value in webapp.HEADERS.items():
        assert script.headers[name] == value
    assert script.headers["cache-control"] == "no-cache"
    policy = webapp.HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "script-src 'self';" in policy


def test_what_has_not_changed_is_not_sent_again(static):
    with served() as client:
        tag = client.get("/assets/app.js").headers["etag"]
        assert client.get("/assets/app.js", headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../index.html",
        "/assets/..%2findex.html",
        "/assets/%2e%2e/%2e%2e/secret",
        "/assets/..%5c..%5csecret",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/app.js%00.css",
        "/assets/",
        "/assets/nothing.js",
    ],
)
def test_nothing_outside_is_served(static, path):
    with served() as client:
        assert client.get(path).status_code == 404


def test_a_link_that_leads_out_is_not_followed(static, tmp_path):
    os.symlink(tmp_path / "secret", static / "assets" / "link.js")
    with served() as client:
        assert client.get("/assets/link.js").status_code == 404


def test_without_a_build_assets_are_missing_and_nothing_breaks(tmp_path, monkeypatch):
    monkeypatch.setattr(webapp, "STATIC", tmp_path / "nothing")
    with served() as client:
        assert client.get("/assets/app.js").status_code == 404


def test_only_reading(static):
    with served() as client:
        assert client.post("/assets/app.js").status_code == 405
