"""How a page looks, light and dark, at a desk and on a phone; and what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser

from tests.pages.panels import ROOT
from tests.pages.people import DESKTOP, PHONE, Visitor, visitor

FOLDER = Path(os.environ.get("CROWDGRAD_TESTS_SCREENS", ROOT / "runs" / "screens"))
"""What the last test run has seen; not kept by git."""
LOOKS = {
    "light": ("light", DESKTOP),
    "dark": ("dark", DESKTOP),
    "phone": ("light", PHONE),
    "phone-dark": ("dark", PHONE),
}
CLOSELY = ("light", "phone-dark")
"""Both schemes and both sizes: what axe looks at, which takes longer than all else here."""


def look_at(browser: Browser, url: str, name: str, go: Callable[[Visitor], None]) -> list[str]:
    """Take pictures of a page, `go` there first; what would keep somebody from using it."""
    wrong = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    with visitor(browser, url) as guest:
        go(guest)
        for look, (scheme, size) in LOOKS.items():
            guest.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            guest.page.set_viewport_size(size)  # type: ignore[arg-type]
            if look in CLOSELY:
                wrong += [f"{name}, {look}: {one}" for one in guest.serious()]
            if guest.width() > size["width"]:
                wrong.append(f"{name}, {look}: {guest.width()} pixels wide")
            guest.page.screenshot(path=FOLDER / f"{name}-{look}.png", full_page=True)
        wrong += [f"{name}: {one}" for one in guest.complaints]
    return wrong
