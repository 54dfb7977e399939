"""The whole story in a real browser: host a model, two come to help, the model reads a digit."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Running, panel, volunteer

pytestmark = [needs_chromium, pytest.mark.timeout(300)]

PATIENCE_MS = 120_000
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
DRAW_A_ONE = [((0.5, 0.15), (0.5, 0.85))]
SLIDE = """async ([label, wanted]) => {
  // The slider's places are steps: move it until it says the number.
  const slider = [...document.querySelectorAll("input[type=range]")]
    .find((one) => one.labels[0]?.textContent?.startsWith(label));
  for (let at = 0; at <= Number(slider.max); at += 1) {
    slider.value = String(at);
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    await new Promise(requestAnimationFrame);
    if (slider.labels[0].nextElementSibling.textContent.startsWith(`${wanted}`)) return;
  }
  throw new Error(`${label} cannot be ${wanted}`);
}"""
OVER = re.compile(r"finished|stopped", re.IGNORECASE)


def opened(browser: Browser, running: Running) -> Page:
    context = browser.new_context(bypass_csp=True)  # for axe, which is no script of ours
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(running.url)
    return page


def serious(page: Page) -> list[str]:
    """What axe finds that keeps people out."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def choose_digits(page: Page, epochs: int) -> None:
    page.get_by_test_id("go-host").click()
    page.get_by_test_id("choose-digits").click()
    expect(page.get_by_test_id("data-preview")).to_be_visible(timeout=PATIENCE_MS)
    page.evaluate(SLIDE, ["Epochs", epochs])


def start(page: Page) -> str:
    """Begin to host; the run's id."""
    page.get_by_test_id("start-hosting").click()
    page.wait_for_url(re.compile(r"#/run/"), timeout=PATIENCE_MS)
    return page.url.rpartition("/")[2]


def address_of(running: Running, run: str) -> str:
    told = json.loads((running.runs / run / "control.json").read_text())
    with urllib.request.urlopen(f"{told['url']}/job.json") as answer:
        return str(json.load(answer)["routes"][0])


def test_from_host_a_model_to_a_digit_that_is_read(browser: Browser, tmp_path: Path) -> None:
    helpers: list[subprocess.Popen[bytes]] = []
    with panel(tmp_path / "panel") as running:
        page = opened(browser, running)
        expect(page.get_by_test_id("machine")).to_be_visible()
        assert serious(page) == []
        choose_digits(page, 200)
        assert serious(page) == []
        run = start(page)
        try:
            where = address_of(running, run)
            helpers += [volunteer(tmp_path / name, where, name) for name in ("anna", "ben")]
            for name in ("anna", "ben"):
                expect(page.get_by_test_id("volunteers").get_by_text(name)).to_be_visible(
                    timeout=PATIENCE_MS
                )
            assert serious(page) == []
            expect(page.get_by_test_id("run-state")).to_have_text(OVER, timeout=PATIENCE_MS)
        finally:
            for helper in helpers:
                helper.terminate()
                helper.wait(30)
        expect(page.get_by_test_id("result")).to_be_visible()
