"""Somebody in front of the pages: what they see, press, type and draw, in a real browser."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

PATIENCE_MS = 120_000
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
Stroke = Sequence[tuple[float, float]]
Button = Literal["left", "right"]
ROUND = [n * math.pi / 12 for n in range(25)]
ZERO: list[Stroke] = [[(0.5 + 0.22 * math.sin(at), 0.5 - 0.33 * math.cos(at)) for at in ROUND]]
ONE: list[Stroke] = [[(0.5, 0.15), (0.5, 0.85)]]
"""As most people of the data set write them, in parts of the sheet."""


class Visitor:
    """One page, and what its console had to complain about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location.get('url', '')}")

    def see(self, name: str) -> Locator:
        return self.page.get_by_test_id(name)

    def press(self, name: str) -> None:
        self.see(name).click()

    def go(self, page: str) -> None:
        """By the links at the top."""
        self.page.get_by_role("navigation").get_by_role("link", name=page, exact=True).click()

    def waits_for(self, name: str, words: str | re.Pattern[str] = "") -> Locator:
        found = self.see(name)
        expect(found).to_be_visible(timeout=PATIENCE_MS)
        if words:
            expect(found).to_contain_text(words, timeout=PATIENCE_MS)
        return found

    def is_told(self, *words: str) -> None:
        """All of it in one alert."""
        alert = self.page.get_by_role("alert")
        for part in words:
            alert = alert.filter(has_text=part)
        expect(alert.first).to_be_visible(timeout=PATIENCE_MS)

    def slide(self, label: str, wanted: str) -> None:
        """By the keys, until it says so."""
        slider = self.page.get_by_role("slider", name=label, exact=True)
        slider.press("Home")
        for _ in range(200):
            if (slider.get_attribute("aria-valuetext") or "").split(" ")[0] == wanted:
                return
            slider.press("ArrowRight")
        raise AssertionError(f"{label} cannot be {wanted}")

    # Hosting

    def choose(self, data: str = "digits") -> None:
        self.go("Host")
        self.press(f"choose-{data}")
        self.waits_for("data-preview", data.capitalize())

    def start(self) -> str:
        """Begin to host; the run's id."""
        self.press("start-hosting")
        self.page.wait_for_url(re.compile(r"#/run/"), timeout=PATIENCE_MS)
        return self.page.url.rpartition("/")[2]

    def expects_state(self, *states: str) -> None:
        pattern = re.compile(f"^({'|'.join(states)})$")
        expect(self.see("run-state")).to_have_attribute("data-state", pattern, timeout=PATIENCE_MS)

    def stops(self) -> None:
        self.press("stop")
        self.press("stop-sure")

    def draw(self, strokes: Sequence[Stroke], button: Button = "left") -> None:
        self.press("draw-clear")
        pad = self.see("draw")
        pad.scroll_into_view_if_needed()
        box = pad.bounding_box()
        assert box is not None

        def at(point: tuple[float, float]) -> tuple[float, float]:
            return box["x"] + point[0] * box["width"], box["y"] + point[1] * box["height"]

        mouse = self.page.mouse
        for first, *others in strokes:
            mouse.move(*at(first))
            mouse.down(button=button)
            for point in others:
                mouse.move(*at(point), steps=3)
            mouse.up(button=button)

    def reads(self, digit: str) -> None:
        expect(self.see("draw-answer")).to_have_attribute("data-label", digit, timeout=PATIENCE_MS)

    # Looking closely

    def serious(self) -> list[str]:
        """What axe finds that keeps people out."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run()")
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary']}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def width(self) -> int:
        """Of all there is, however narrow the window."""
        return int(self.page.evaluate("document.scrollingElement.scrollWidth"))


@contextlib.contextmanager
def visitor(browser: Browser, url: str, *, phone: bool = False, **more: Any) -> Iterator[Visitor]:
    """In a browser of their own: nothing kept of others, and nothing that moves."""
    wishes = {"viewport": PHONE if phone else DESKTOP, "reduced_motion": "reduce", **more}
    context = browser.new_context(**wishes)
    try:
        found = Visitor(context.new_page())
        found.page.goto(url)
        if "#enter=" in url:
            found.page.get_by_role("navigation").wait_for()  # it was let in
        yield found
    finally:
        context.close()
