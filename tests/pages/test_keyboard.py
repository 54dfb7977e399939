"""Without a mouse: all controls are reached, in the order they are read, and one sees where."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Running, panel
from tests.pages.people import Visitor, visitor

pytestmark = [needs_chromium, pytest.mark.timeout(180)]
NUMBER_CONTROLS = """() => {
  // Those that Tab reaches, as they stand in the document; of radio buttons the chosen one.
  const kinds = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const all = [...document.querySelectorAll(kinds)];
  const chosen = (one) => one.type !== "radio" || one.checked
    || !all.some((other) => other.type === "radio" && other.name === one.name && other.checked);
  const there = (one) => !one.disabled && one.checkVisibility() && one.tabIndex >= 0;
  const reached = all.filter((one) => there(one) && chosen(one));
  reached.forEach((one, n) => (one.dataset.turn = n));
  return reached.map((one) => one.ariaLabel || one.labels?.[0]?.textContent || one.textContent);
}"""
WHERE = """() => {
  const here = document.activeElement;
  const look = getComputedStyle(here);
  const box = here.getBoundingClientRect();
  return {
    turn: Number(here.dataset.turn),
    marked: look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
    seen: box.bottom > 0 && box.top < innerHeight && box.width > 0,
  };
}"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with panel(tmp_path_factory.mktemp("keyboard") / "panel") as found:
        yield found


@pytest.fixture
def owner(browser: Browser, running: Running) -> Iterator[Visitor]:
    with visitor(browser, running.url) as found:
        yield found
        assert found.complaints == []


def test_tab_reaches_every_control_of_the_host_page_in_order(owner: Visitor) -> None:
    owner.choose("digits")
    owner.page.reload()  # so that Tab begins at the top
    owner.waits_for("data-preview")
    expect(owner.see("model-mlp")).to_be_checked()
    expect(owner.see("recipe-crowd")).to_be_checked()
    controls = owner.page.evaluate(NUMBER_CONTROLS)
    assert len(controls) > 40
    for turn, control in enumerate(controls):
        owner.page.keyboard.press("Tab")
        here = owner.page.evaluate(WHERE)
        assert here == {"turn": turn, "marked": True, "seen": True}, control


def test_the_first_link_leads_past_the_others(owner: Visitor) -> None:
    owner.go("Host")
    owner.page.reload()
    owner.page.keyboard.press("Tab")
    skip = owner.page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    owner.page.keyboard.press("Enter")
    expect(owner.page.locator("main")).to_be_focused()
    expect(owner.page.get_by_role("heading", level=1)).to_have_text("Host a model")


def test_a_new_page_begins_at_its_top(owner: Visitor) -> None:
    owner.go("Host")
    owner.see("save-job").scroll_into_view_if_needed()
    assert owner.page.evaluate("scrollY") > 0
    owner.page.evaluate("location.hash = '#/runs'")
    expect(owner.page.get_by_role("heading", level=1)).to_have_text("Runs")
    expect(owner.page.locator("main")).to_be_focused()
    assert owner.page.evaluate("scrollY") == 0
    assert owner.page.title() == "Runs – crowdgrad"


def test_hosting_by_keys_alone(owner: Visitor) -> None:
    owner.page.get_by_role("link", name="Host a model").press("Enter")
    owner.see("choose-digits").press("Enter")
    owner.waits_for("data-preview", "Digits")
    owner.see("model-mlp").press("ArrowRight")
    expect(owner.see("model-cnn")).to_be_checked()
    slider = owner.page.get_by_label("Epochs", exact=True)
    slider.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "1000")
    owner.see("reach-here").press("ArrowDown")
    expect(owner.see("reach-network")).to_be_checked()
    owner.see("agree").press("Space")
    expect(owner.see("start-hosting")).to_be_enabled()
