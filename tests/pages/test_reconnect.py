"""Hosts that are killed, panels that start anew, streams that break: pages say so and go on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Running, panel, until
from tests.pages.people import PATIENCE_MS, Visitor, visitor

NOTE_SOCKETS = """
window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) { super(...given); window.sockets.push(this); }
};"""
pytestmark = [needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reconnect") / "panel"


@pytest.fixture
def owner(browser: Browser, home: Path) -> Iterator[tuple[Visitor, Running]]:
    with panel(home) as running, visitor(browser, running.url) as found:
        found.page.add_init_script(NOTE_SOCKETS)
        yield found, running


def test_a_reload_loses_nothing(owner: tuple[Visitor, Running]) -> None:
    page, running = owner
    page.choose("digits")
    page.slide("width", "32")
    page.slide("Epochs", "50")
    page.see("title").fill("Kept")
    page.press("recipe-async_sgd")
    page.press("check-model")
    until(running.at_work, "it is checked")
    page.page.reload()
    page.waits_for("check-report", "This model can travel")
    page.page.reload()
    page.waits_for("data-preview", "1,797 records")
    page.waits_for("check-report", "This model can travel")
    expect(page.page.get_by_label("Epochs", exact=True)).to_have_attribute("aria-valuetext", "50")
    expect(page.page.get_by_label("width", exact=True)).to_have_value("32")
    expect(page.see("recipe-async_sgd")).to_be_checked()
    expect(page.see("title")).to_have_value("Kept")
    for place in ("Start", "Runs", "Lend"):
        page.go(place)
        heading = page.page.get_by_role("heading", level=1).inner_text()
        page.page.reload()
        expect(page.page.get_by_role("heading", level=1)).to_have_text(heading)
    assert page.complaints == []


def test_it_goes_on_whatever_breaks(
    browser: Browser, home: Path, owner: tuple[Visitor, Running]
) -> None:
    page, running = owner
    page.choose("digits")
    page.slide("Epochs", "1000")
    page.slide("Batch size", "8")
    page.slide("Helpers on this computer", "1")
    page.press("start-hosting")
    until(running.at_work, "the host starts")
    page.page.reload()
    page.waits_for("stop-hosting")
    page.page.wait_for_url(re.compile(r"#/run/"), timeout=PATIENCE_MS)
    page.expects_state("running")
    page.page.reload()
    learns(page)
    host_is_killed(page, running)
    stream_breaks(page)
    panel_starts_anew(page, running)
    with panel(home, port=running.port) as again:
        page_is_let_in_again(page, again)


def learns(page: Visitor) -> None:
    """Its values are others than before."""
    page.expects_state("running")
    progress = page.page.locator("progress").first
    before = float(progress.get_attribute("value") or 0)
    page.page.wait_for_function(
        "(before) => document.querySelector('progress')?.value > before", arg=before
    )


def host_is_killed(page: Visitor, running: Running) -> None:
    """It is begun again by its supervisor, from its last checkpoint."""
    before = hosts(running)
    os.kill(before[-1], signal.SIGKILL)
    until(lambda: hosts(running)[-1:] not in ([], before[-1:]), "there is another host")
    page.waits_for("log", "goes on from version")
    page.expects_state("running")
    learns(page)


def hosts(running: Running) -> list[int]:
    """The supervisor, and the one at work."""
    return sorted(pid for pid, command in running.begun().items() if " host " in command)


def stream_breaks(page: Visitor) -> None:
    page.page.context.set_offline(True)  # of what is open it lets the sockets be
    page.page.evaluate("sockets.forEach((socket) => socket.close())")
    page.waits_for("gap", "crowdgrad does not answer. Trying again")
    page.page.context.set_offline(False)
    expect(page.see("gap")).to_have_count(0, timeout=PATIENCE_MS)
    learns(page)


def panel_starts_anew(page: Visitor, running: Running) -> None:
    running.process.send_signal(signal.SIGINT)
    page.waits_for("gap", "crowdgrad does not answer. Trying again")
    running.process.wait(60)


def page_is_let_in_again(page: Visitor, again: Running) -> None:
    page.waits_for("gap", "Open the address it printed")
    page.page.context.new_page().goto(again.url)
    expect(page.see("gap")).to_have_count(0, timeout=PATIENCE_MS)
    page.expects_state("stopped")
    page.press("restart")
    page.expects_state("starting")
    expect(page.see("restart")).to_have_count(0)
    learns(page)
    page.press("pause")
    page.expects_state("paused")
    page.press("stop")
    page.page.get_by_role("button", name="Keep training").click()
    page.expects_state("paused")
    page.stops()
    page.expects_state("stopped")
    until(lambda: not again.at_work(), "no host and no helper is left")
