"""How a page looks in light, in dark and on a phone: pictures of it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser

from tests.pages.panels import ROOT
from tests.pages.people import PHONE, Visitor, visitor

FOLDER = ROOT / "runs" / "screens"
"""What the last test run has seen; not kept by git."""
LOOKS = ("light", "dark", "phone")


def look_at(browser: Browser, url: str, name: str, go: Callable[[Visitor], None]) -> list[str]:
    """Take pictures of a page, `go` there first; what would keep somebody from using it."""
    wrong = []
    for look in LOOKS:
        phone, scheme = look == "phone", "dark" if look == "dark" else "light"
        with visitor(browser, url, phone=phone, color_scheme=scheme) as guest:
            go(guest)
            wrong += [f"{name}, {look}: {one}" for one in guest.serious() + guest.complaints]
            if guest.width() > PHONE["width"] and phone:
                wrong.append(f"{name} is {guest.width()} pixels wide on a phone")
            FOLDER.mkdir(parents=True, exist_ok=True)
            guest.page.screenshot(path=FOLDER / f"{name}-{look}.png", full_page=True)
    return wrong
