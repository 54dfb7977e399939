"""Lending this computer, from the question of a new host to the certificate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.chromium import needs_chromium
from tests.matchmaker.running import Running as Matchmaker
from tests.pages.panels import Running, host, job_file, panel, until
from tests.pages.people import PATIENCE_MS, Visitor, visitor
from tests.pages.screens import look_at

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
TITLE = "Old letters & <i>cards</i>"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A panel whose matchmaker has one job."""
    folder = tmp_path_factory.mktemp("lending")
    with Matchmaker(folder) as matchmaker:
        published = ["--matchmaker", matchmaker.url, "--yes"]
        with (
            host(folder / "host", job_file(TITLE, epochs=100_000), *published),
            panel(folder / "panel", matchmaker=matchmaker.url) as found,
        ):
            yield found


def test_from_a_question_to_a_certificate(browser: Browser, running: Running) -> None:
    with visitor(browser, running.url) as lender:
        lender.go("Lend")
        expect(lender.see("impact")).to_contain_text("appears here a minute after")
        lender.press("start-lending")
        says_yes(lender)
        sees_what_it_does(lender)
        pauses(lender)
        sets_limits(lender)
        wants_another_job(lender)
        stops(lender, running)
        expect(past_jobs(lender).filter(has_text=TITLE)).to_be_visible()  # as it was shown last
        finds_what_was_done(lender)
        assert lender.complaints == []


def test_before_anything_is_lent(browser: Browser, running: Running) -> None:
    def go(lender: Visitor) -> None:
        lender.go("Lend")
        lender.waits_for("first-limits").get_by_text("Your limits").click()
        lender.waits_for("impact", re.compile("Certificate|certificate"))

    assert look_at(browser, running.url, "lend-before", go) == []


def test_who_says_no_helps_nobody(browser: Browser, running: Running) -> None:
    def go(lender: Visitor) -> None:
        lender.go("Lend")
        lender.press("start-lending")
        lender.waits_for("question", TITLE)

    assert look_at(browser, running.url, "lend-question", go) == []
    with visitor(browser, running.url) as lender:
        lender.go("Lend")
        lender.waits_for("question", TITLE)
        lender.press("answer-no")
        expect(lender.see("question")).to_have_count(0)
        expect(lender.see("work-state")).to_have_attribute("data-state", "looking")
        stops(lender, running)


def test_limits_count_from_the_first_moment(browser: Browser, running: Running) -> None:
    with visitor(browser, running.url) as lender:
        lender.go("Lend")
        works_gently(lender)
        for _ in range(2):  # and again when it is lent again
            lender.press("start-lending")
            lender.waits_for("question", TITLE)
            expect(lender.page.get_by_text("10 % of the time, 1 thread")).to_be_visible()
            stops(lender, running)
        assert lender.complaints == []


def works_gently(lender: Visitor) -> None:
    """Before anything is computed."""
    limits = lender.waits_for("first-limits")
    limits.get_by_text("Your limits").click()
    for when in ("While I use this computer", "While nobody uses it"):
        slider = limits.get_by_role("group", name=when).get_by_label("Share of the time")
        slider.press("Home")
        slider.press("ArrowRight")
        expect(slider).to_have_attribute("aria-valuetext", "10 %")


def says_yes(lender: Visitor) -> None:
    question = lender.waits_for("question", "May this machine help a new host?")
    expect(question).to_contain_text(TITLE)
    for words in ("never sees: your files", "Nothing the host wrote is run here", "memory: up to"):
        expect(question).to_contain_text(words)
    expect(lender.see("work-state")).to_have_attribute("data-state", "asking")
    lender.page.reload()
    lender.waits_for("question", TITLE)
    assert lender.page.title().startswith("● A question for you")
    expect(lender.see("asked")).to_contain_text("waits for your answer")
    lender.press("answer-once")
    expect(lender.page.get_by_role("heading", name="Now", exact=True)).to_be_focused()
    expect(lender.see("asked")).to_be_empty()
    assert lender.page.title() == "Lend this computer – crowdgrad"
    is_helping(lender)


def is_helping(lender: Visitor) -> None:
    expect(lender.see("work-state")).to_have_attribute("data-state", "working", timeout=PATIENCE_MS)


def sees_what_it_does(lender: Visitor) -> None:
    expect(lender.page.get_by_role("heading", name=TITLE)).to_be_visible()
    lender.waits_for("work-reason", "Working gently: so your limits say")
    expect(lender.page.get_by_text("25 % of the time, 1 thread")).to_be_visible()
    lender.waits_for("impact", re.compile(r"[1-9]\d* ?samples"))


def pauses(lender: Visitor) -> None:
    lender.press("pause")
    lender.waits_for("work-reason", "Paused by you, until you resume.")
    expect(lender.see("work-state")).to_have_text("Paused")
    expect(lender.see("resume")).to_be_focused()
    expect(lender.page.get_by_text("Nothing is computed now.")).to_be_visible()
    lender.press("pause-2")
    lender.waits_for("work-reason", re.compile(r"Paused by you until \d\d:\d\d( tomorrow)?\."))
    expect(lender.page.get_by_text(re.compile(r"in (2 h 0|1 h 59) min"))).to_be_visible()
    lender.press("resume")
    is_helping(lender)


def sets_limits(lender: Visitor) -> None:
    for when in ("While I use this computer", "While nobody uses it"):
        slider = lender.page.get_by_role("group", name=when).get_by_label("Share of the time")
        slider.press("ArrowRight")
        slider.press("ArrowRight")
    expect(lender.page.get_by_text("35 % of the time, 1 thread")).to_be_visible()
    lender.see("only-when-idle").check()
    lender.waits_for("work-reason", "nobody uses this machine")
    lender.see("only-when-idle").uncheck()
    later = datetime.now().astimezone() + timedelta(hours=3)  # no hour at which this test runs
    lender.see("certain-hours").check()
    lender.page.get_by_label("From", exact=True).fill(later.strftime("%H:00"))
    lender.page.get_by_label("To", exact=True).fill((later + timedelta(hours=1)).strftime("%H:00"))
    lender.waits_for("work-reason", later.strftime("%H:00"))
    rests_all_the_same(lender, later.strftime("%H:00"))
    # The job is left, too, within a quarter of a minute: then it looks for the next.
    expect(lender.see("work-state")).not_to_have_attribute("data-state", "working")
    lender.page.reload()
    expect(lender.see("certain-hours")).to_be_checked(timeout=PATIENCE_MS)
    lender.see("certain-hours").uncheck()
    is_helping(lender)


def rests_all_the_same(lender: Visitor, until_when: str) -> None:
    """Resumed by its owner, held back by its limits: that is no trouble."""
    lender.press("pause")
    lender.waits_for("work-reason", "Paused by you")
    lender.press("resume")
    expect(lender.see("pause")).to_be_enabled()
    lender.waits_for("work-reason", until_when)
    expect(lender.page.get_by_role("alert")).to_have_count(0)


def wants_another_job(lender: Visitor) -> None:
    expect(lender.see("impact")).to_contain_text(re.compile(r"\d %\s*of all the work on this job"))
    lender.press("next-job")
    expect(past_jobs(lender).filter(has_text=TITLE)).to_be_visible(timeout=PATIENCE_MS)


def past_jobs(lender: Visitor) -> Locator:
    return lender.page.get_by_role("region", name="Jobs since you started").get_by_role("row")


def stops(lender: Visitor, running: Running) -> None:
    lender.press("stop")
    expect(lender.see("start-lending")).to_have_text("Start lending", timeout=PATIENCE_MS)
    expect(lender.see("start-lending")).to_be_enabled()
    until(lambda: not running.at_work(), "no volunteer is left")


def finds_what_was_done(lender: Visitor) -> None:
    lender.page.reload()
    lender.waits_for("impact", "of computing")
    picture = lender.page.get_by_role("img", name="Certificate of what this machine gave")
    expect(picture).to_have_js_property("complete", True)
    assert picture.evaluate("(image) => image.naturalWidth") > 0
    expect(lender.page.get_by_role("link", name="Download the certificate")).to_be_visible()
    lender.page.get_by_text("Show the journal").click()
    journal = lender.page.get_by_role("region", name="Journal")
    expect(journal).to_contain_text(TITLE)
    expect(journal.get_by_role("listitem").first).to_be_visible()
