"""A real browser for the tests of pages: Debian's Chromium, or any Chrome found, by Playwright.

Playwright brings no browser of its own here. Where there is none, tests that need one are skipped
and one line at the end says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from crowdgrad.panel.browsers import find_chromium

MISSING = (
    "NO CHROMIUM HERE: the tests of pages were skipped. Install it (apt-get install chromium) and "
    "run them again."
)


def find() -> str | None:
    return find_chromium(sys.platform)


needs_chromium = pytest.mark.skipif(find() is None, reason=MISSING)


# Of a module, not of the session: Playwright's event loop runs in this thread for as long as the
# browser lives, and no other test could run one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find()
    if path is None:
        pytest.skip(MISSING)
    # Chromium's own walls want rights that root in a container has not.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=flags)
        yield found
        found.close()
