"""Hosts that are killed, panels that start anew, streams that break: pages say so and go on."""

from __future__ import annotations

import os
import re
import signal
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


def test_it_goes_on_whatever_breaks(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "panel"
    with panel(home) as running, visitor(browser, running.url) as page:
        page.page.add_init_script(NOTE_SOCKETS)
        begins(page, running)
        host_is_killed(page, running)
        stream_breaks(page)
        panel_ends(page, running)
        with panel(home, port=running.port) as again:
            is_let_in_again(page, again)


def test_a_tab_that_nobody_has_looked_at_lets_go(browser: Browser, tmp_path: Path) -> None:
    hidden = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true});"
    with panel(tmp_path / "panel") as running, visitor(browser, running.url) as page:
        page.page.add_init_script(NOTE_SOCKETS + hidden)
        page.page.clock.install()
        page.page.goto(running.base)
        comes_true(page, "sockets[0]?.readyState === WebSocket.OPEN")
        page.page.clock.fast_forward(11_000)
        comes_true(page, "sockets[0].readyState === WebSocket.CLOSED")
        page.page.evaluate("delete document.hidden")
        page.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        comes_true(page, "sockets[1]?.readyState === WebSocket.OPEN")


def comes_true(page: Visitor, words: str) -> None:
    """`wait_for_function` asks by `eval` from the second time on, which our pages forbid."""
    until(lambda: page.page.evaluate(words), words)


def begins(page: Visitor, running: Running) -> None:
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
    page.waits_for("share", "Nobody else can come")
    expect(page.see("share").get_by_role("img")).to_have_count(0)
    page.page.reload()
    learns(page)


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
    sees_what_it_missed(page)


def sees_what_it_missed(page: Visitor) -> None:
    """The curves are asked for anew with every stream."""
    with page.page.expect_request(re.compile(r"/history$")):
        page.page.evaluate("sockets.forEach((socket) => socket.close())")
    expect(page.see("gap")).to_have_count(0, timeout=PATIENCE_MS)


def panel_ends(page: Visitor, running: Running) -> None:
    running.process.send_signal(signal.SIGINT)
    page.waits_for("gap", "crowdgrad does not answer. Trying again")
    running.process.wait(60)


def is_let_in_again(page: Visitor, again: Running) -> None:
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
    page.page.get_by_role("button", name="Keep training").press("Enter")
    expect(page.see("stop")).to_be_focused()
    page.expects_state("paused")
    page.press("resume")
    page.expects_state("running")
    page.stops()
    page.expects_state("stopped")
    until(lambda: not again.at_work(), "no host and no helper is left")
    page.page.reload()
    page.expects_state("stopped")
    expect(page.see("stop")).to_have_count(0)
