"""Stop, pressed at every stage: each ends in words that say so, and leaves no process behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import needs_chromium
from tests.matchmaker.running import Running as Matchmaker
from tests.pages.panels import Running, panel, until
from tests.pages.people import PATIENCE_MS, Visitor, visitor

pytestmark = [needs_chromium, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("stops")
    with (
        Matchmaker(folder) as matchmaker,
        panel(folder / "panel", matchmaker=matchmaker.url) as found,
    ):
        yield found


@pytest.fixture
def owner(browser: Browser, running: Running) -> Iterator[Visitor]:
    with visitor(browser, running.url) as found:
        yield found
        assert found.complaints == []
    until(lambda: not running.at_work(), f"nothing is left: {running.at_work()}")


def test_while_data_is_prepared(owner: Visitor, running: Running, tmp_path: Path) -> None:
    owner.go("Host")
    os.mkfifo(tmp_path / "endless.csv")  # a table that nobody ever writes
    owner.see("data-path").fill(str(tmp_path))
    owner.page.get_by_role("button", name="Use it").click()
    until(running.at_work, "the data is read")
    owner.go("Start")
    owner.go("Host")  # it goes on meanwhile
    owner.press("stop-data")
    expect(owner.page.get_by_text("Reading was stopped.")).to_be_visible()
    expect(owner.see("choose-digits")).to_be_enabled()
    until(lambda: not running.at_work(), "nobody reads any more")


def test_while_a_model_is_checked(owner: Visitor, running: Running, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import threading\nthreading.Event().wait()\n")
    owner.choose("digits")
    owner.press("model-own")
    owner.see("task").fill("endless:task")
    owner.see("task-folder").fill(str(tmp_path))
    owner.press("check-model")
    until(running.at_work, "the model is checked")
    owner.page.reload()
    owner.press("stop-check")
    expect(owner.page.get_by_text("The check was stopped.")).to_be_visible()
    expect(owner.see("check-model")).to_be_enabled()
    expect(owner.see("check-report")).to_have_count(0)
    until(lambda: not running.at_work(), "nobody checks any more")


def test_while_the_host_starts(owner: Visitor, running: Running) -> None:
    owner.choose("digits")
    owner.press("start-hosting")
    until(running.at_work, "the host starts")
    expect(owner.see("stop-hosting")).to_be_focused()
    owner.press("stop-hosting")
    expect(owner.page.get_by_text("It was stopped before it began.")).to_be_visible()
    expect(owner.see("start-hosting")).to_be_enabled()
    expect(owner.see("start-hosting")).to_be_focused()
    until(lambda: not running.at_work(), "no host is left")
    owner.go("Start")
    expect(owner.see("now")).to_contain_text("Nothing runs on this machine now.")


def test_while_it_waits_for_volunteers(owner: Visitor, running: Running) -> None:
    owner.choose("digits")
    owner.slide("It waits for", "2")
    owner.slide("Helpers on this computer", "1")
    expect(owner.page.get_by_text("It waits for 2 volunteers, and only this")).to_be_visible()
    expect(owner.see("start-hosting")).to_be_disabled()
    owner.press("reach-network")
    owner.press("agree")
    owner.press("start-hosting")
    owner.waits_for("stop-hosting")
    owner.go("Start")  # who leaves meanwhile is not called back
    owner.see("now").get_by_role("link", name="Open the run").click()
    owner.expects_state("starting", "waiting")
    owner.page.wait_for_url(re.compile(r"#/run/\d{8}-"), timeout=PATIENCE_MS)
    owner.page.go_back()
    owner.waits_for("now", "Hosting")
    owner.go("Runs")
    found = owner.page.get_by_role("listitem").filter(has_text="Waiting")
    expect(found).to_be_visible(timeout=PATIENCE_MS)
    owner.go("Host")
    expect(owner.see("start-hosting")).to_be_enabled()
    assert owner.page.url.endswith("#/host")
    owner.go("Runs")
    found.get_by_role("link").first.click()
    owner.expects_state("waiting")
    expect(owner.see("volunteers")).to_contain_text("local-1")
    ends_by_stop(owner, running)


@pytest.mark.slow  # so does test_reconnect.py
def test_while_it_trains_and_after_the_end(owner: Visitor, running: Running) -> None:
    begins_long_run(owner)
    ends_by_stop(owner, running)
    expect(owner.see("stop")).to_have_count(0)
    owner.page.reload()
    owner.expects_state("stopped")
    expect(owner.see("stop")).to_have_count(0)


@pytest.mark.slow
def test_while_it_is_paused(owner: Visitor, running: Running) -> None:
    begins_long_run(owner)
    owner.press("pause")
    owner.expects_state("paused")
    owner.press("stop")
    owner.page.get_by_role("button", name="Keep training").click()
    owner.expects_state("paused")
    ends_by_stop(owner, running)


def test_while_it_lends(owner: Visitor, running: Running) -> None:
    owner.go("Lend")
    owner.press("start-lending")
    owner.waits_for("work-state")
    expect(owner.page.get_by_role("heading", name="Now", exact=True)).to_be_focused()
    until(running.at_work, "a volunteer is there")
    owner.press("stop")
    expect(owner.see("start-lending")).to_be_focused()
    expect(owner.see("start-lending")).to_be_enabled(timeout=60_000)
    expect(owner.see("start-lending")).to_have_text("Start lending")
    expect(owner.see("start-lending")).to_be_focused()
    until(lambda: not running.at_work(), "no volunteer is left")


def begins_long_run(owner: Visitor) -> None:
    owner.choose("digits")
    owner.slide("Epochs", "1000")
    owner.slide("Batch size", "8")
    owner.slide("Helpers on this computer", "1")
    owner.start()
    owner.expects_state("running")


def ends_by_stop(owner: Visitor, running: Running) -> None:
    owner.stops()
    owner.expects_state("stopped")
    until(lambda: not running.at_work(), "no host and no helper is left")
