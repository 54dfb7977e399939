"""The whole story in a real browser: host a model, two come to help, the model reads a digit."""

from __future__ import annotations

import html
import json
import re
import shutil
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Running, panel, until, volunteer
from tests.pages.people import ONE, PATIENCE_MS, ZERO, Visitor, visitor

TITLE = "My <b>digits</b> & <img src=x onerror=alert(1)>"
"""Text, wherever it stands."""
RUNS_S = 10
"""How often a run's page looks at the list of runs."""
pytestmark = [needs_chromium, pytest.mark.timeout(300)]


def test_from_host_a_model_to_a_digit_that_is_read(browser: Browser, tmp_path: Path) -> None:
    # Found on the network: only then there is a code without a matchmaker.
    with (
        panel(tmp_path / "panel", lan="yes") as running,
        visitor(browser, running.url, reduced_motion="no-preference") as owner,
    ):
        owner.waits_for("machine", "Processor cores")
        owner.press("go-host")
        chooses_everything(owner)
        run = owner.start()
        sees_how_to_invite(owner)
        where = address_of(running, run)
        with (
            volunteer(tmp_path / "anna", where, "anna"),
            volunteer(tmp_path / "ben", where, "ben"),
        ):
            for name in ("anna", "ben"):
                expect(owner.see("volunteers").get_by_text(name)).to_be_visible(timeout=PATIENCE_MS)
            sees_it_learn(owner)
            looks_closer(owner)
            steers_it(owner)
            owner.draw(ZERO)
            owner.reads("0")
            owner.press("finish")
            owner.expects_state("finished")
        owner.waits_for("result", "Test accuracy")
        until(lambda: not running.at_work(), "its host has ended")
        owner.draw(ONE)
        owner.reads("1")
        expect(owner.see("volunteers")).to_contain_text("4 took part")
        expect(owner.see("volunteers")).not_to_contain_text("here")
        finds_it_again(owner, running.runs / run)
        assert owner.complaints == []


def chooses_everything(owner: Visitor) -> None:
    owner.press("choose-digits")
    owner.waits_for("data-preview", "1,797 records, 10 classes")
    expect(owner.page.get_by_role("img", name="A picture of 7").first).to_be_visible()
    owner.slide("Layers", "1")
    owner.slide("Width", "64")
    consequences = owner.see("consequences")
    expect(consequences).to_contain_text("known after the check")
    owner.press("check-model")
    owner.waits_for("check-report", "This model can travel")
    expect(owner.see("check-report")).to_contain_text("4,810")  # 64 × 64 + 64 + 64 × 10 + 10
    owner.slide("Width", "32")
    expect(consequences).to_contain_text("before your last change")
    owner.waits_for("check-report", "2,410")  # by itself: 64 × 32 + 32 + 32 × 10 + 10
    expect(consequences).not_to_contain_text("before your last change")
    owner.page.get_by_text(re.compile("^Further fields")).click()
    numbers = owner.page.get_by_label("codec", exact=True)
    expect(consequences).to_contain_text("9.6 kB")  # an update of 2,410 numbers
    numbers.select_option("fp16")
    expect(consequences).to_contain_text("4.8 kB")
    numbers.select_option("fp32")
    owner.slide("Batch size", "64")
    expect(consequences).to_contain_text(re.compile(r"Steps in an epoch\s*2\d\D"))  # 1,437 records
    owner.slide("Epochs", "1")
    expect(consequences).to_contain_text("less than a second")
    owner.slide("Epochs", "1000")
    owner.slide("Batch size", "8")  # so it goes on until we finish it
    expect(consequences).to_contain_text("about")
    owner.press("reach-network")
    expect(owner.see("start-hosting")).to_be_disabled()
    expect(owner.page.get_by_text("Agree that volunteers can keep the data")).to_be_visible()
    owner.press("agree")
    owner.slide("Helpers on this computer", "1")
    owner.see("title").fill(TITLE)
    keeps_its_choices(owner)
    expect(owner.see("check-report")).not_to_contain_text("You changed something")


def keeps_its_choices(owner: Visitor) -> None:
    """Whatever reloads the page."""
    owner.page.reload()
    owner.waits_for("data-preview", "1,797 records")
    owner.waits_for("check-report", "This model can travel")
    epochs = owner.page.get_by_label("Epochs", exact=True)
    expect(epochs).to_have_attribute("aria-valuetext", "1000")
    expect(owner.page.get_by_label("Width", exact=True)).to_have_value("32")
    expect(owner.see("agree")).to_be_checked()
    expect(owner.see("title")).to_have_value(TITLE)


def sees_how_to_invite(owner: Visitor) -> None:
    owner.expects_state("running")
    invitation = owner.waits_for("share", "Code")
    expect(invitation.get_by_text(re.compile(r"^crowdgrad work "))).to_be_visible()
    expect(invitation.get_by_role("img", name=re.compile("QR code of "))).to_have_js_property(
        "complete", True
    )
    assert invitation.get_by_role("img").evaluate("(image) => image.naturalWidth") > 0
    page = invitation.get_by_text(re.compile(r"^http://[^/]+/$")).inner_text()
    with urllib.request.urlopen(page) as answer:
        assert html.escape(TITLE) in answer.read().decode(), "who is on this network may look"


def address_of(running: Running, run: str) -> str:
    told = json.loads((running.runs / run / "control.json").read_text())
    with urllib.request.urlopen(f"{told['url']}/job.json") as answer:
        return str(json.load(answer)["routes"][0])


def sees_it_learn(owner: Visitor) -> None:
    curves = owner.see("curves")
    expect(curves.locator("canvas")).to_have_count(2)
    expect(curves).to_contain_text(re.compile(r"accuracy \d"))
    curves.get_by_label("Along").select_option("time")
    owner.waits_for("samples", re.compile(r"\d+ of 24 right"))
    owner.waits_for("crowd", "The host exchanges with 3 volunteers")
    owner.waits_for("log", "anna joined")
    owner.page.get_by_label("Filter").fill("ben")
    expect(owner.see("log")).not_to_contain_text("anna joined")
    owner.waits_for("log", "ben joined")


def looks_closer(owner: Visitor) -> None:
    """And goes on seeing what was chosen, however much is said meanwhile."""
    asked: list[str] = []
    began = time.monotonic()
    owner.page.on("request", lambda request: asked.append(request.url.partition("/api/")[2]))
    curves = owner.see("curves")
    whole = curves.get_by_role("button", name="Show all: Loss")
    expect(whole).to_have_attribute("aria-disabled", "true")
    plot = curves.locator(".u-over").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    mouse, middle = owner.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 0.2 * box["width"], middle)
    mouse.down()
    mouse.move(box["x"] + 0.4 * box["width"], middle, steps=3)
    hears_more(owner)
    mouse.move(box["x"] + 0.6 * box["width"], middle, steps=3)
    mouse.up()
    expect(whole).to_have_attribute("aria-disabled", "false")
    for _ in range(3):
        hears_more(owner)
    expect(whole).to_have_attribute("aria-disabled", "false")
    whole.press("Enter")
    expect(whole).to_have_attribute("aria-disabled", "true")
    curves.get_by_role("button", name="Closer: Loss").press("Enter")
    hears_more(owner)
    expect(whole).to_have_attribute("aria-disabled", "false")
    expect(curves.get_by_role("button", name="Show all: Accuracy")).to_have_attribute(
        "aria-disabled", "true"
    )
    most = 2 + (time.monotonic() - began) / RUNS_S
    assert asked.count("runs") <= most, "asked for with every status"


def hears_more(owner: Visitor) -> None:
    tiles = owner.see("tiles")
    before = tiles.inner_text()
    expect(tiles).not_to_have_text(before, timeout=PATIENCE_MS, use_inner_text=True)


def steers_it(owner: Visitor) -> None:
    owner.see("rate").fill("quick")
    owner.page.get_by_role("button", name="Set", exact=True).click()
    owner.is_told("Type a number above 0.")
    owner.see("rate").fill("0.05")
    owner.page.get_by_role("button", name="Set", exact=True).click()
    expect(owner.page.get_by_text("Now 0.05")).to_be_visible(timeout=PATIENCE_MS)
    owner.see("pause").press("Enter")
    owner.expects_state("paused")
    expect(owner.see("resume")).to_be_focused()
    owner.see("resume").press("Enter")
    owner.expects_state("running")
    expect(owner.see("pause")).to_be_focused()


def finds_it_again(owner: Visitor, run: Path) -> None:
    twin = run.with_name(f"{run.name}b")  # to compare it with
    shutil.copytree(run, twin)
    owner.go("Runs")
    line = owner.page.get_by_role("listitem").filter(has_text=re.compile(rf"{run.name}\b"))
    expect(line).to_contain_text("Finished")
    expect(line).not_to_contain_text("at work")
    line.get_by_role("link", name=TITLE, exact=True).click()
    owner.expects_state("finished")
    owner.see("compare").select_option(twin.name)
    owner.waits_for("curves", "the other run")
    assert owner.page.locator("img[src='x']").count() == 0
