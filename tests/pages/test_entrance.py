"""Who is let in by the address, and what other servers of this machine hear of it: nothing."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Running, panel
from tests.pages.people import PATIENCE_MS, Visitor, visitor

pytestmark = [needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with panel(tmp_path_factory.mktemp("entrance") / "panel") as found:
        yield found


def is_in(page: Visitor) -> None:
    expect(page.page.get_by_role("navigation")).to_be_visible(timeout=PATIENCE_MS)
    page.waits_for("go-host")


def test_who_was_not_let_in_is_told_what_to_do_and_goes_on_then(
    browser: Browser, running: Running
) -> None:
    with visitor(browser, running.base) as page:
        page.waits_for("stranger", "Open the address that crowdgrad printed")
        expect(page.page.get_by_role("navigation")).to_have_count(0)
        assert page.serious() == []
        assert not page.complaints, "it asks for nothing it would not be told"
        other = page.page.context.new_page()
        other.goto(running.url)
        is_in(page)
        other.wait_for_url(f"{running.base}/")
        other.reload()
        is_in(Visitor(other))


def test_the_address_may_be_opened_where_a_page_of_ours_is_already(
    browser: Browser, running: Running
) -> None:
    with visitor(browser, running.base) as page:
        page.page.goto(f"{running.base}/#enter=spent")
        page.waits_for("stranger")
        page.page.goto(running.url)  # but for what stands behind # it is the same address
        is_in(page)
        assert page.page.url == f"{running.base}/"


def test_other_servers_of_this_machine_are_told_no_secret(
    browser: Browser, running: Running
) -> None:
    heard: list[str] = []

    class Curious(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.path}\n{self.headers}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<script>document.title = Object.keys(localStorage).length</script>")

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Curious)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with visitor(browser, running.url) as page:
            is_in(page)
            key = str(page.page.evaluate("localStorage.getItem('crowdgrad.key')"))
            assert len(key) > 40
            page.page.goto(f"http://127.0.0.1:{server.server_port}/")
            assert page.page.title() == "0", "another port is another origin"
            assert page.page.context.cookies() == []
    finally:
        server.shutdown()
        server.server_close()
    token = running.url.partition("=")[2]
    assert heard
    assert not any(secret in words for words in heard for secret in (key, token))
