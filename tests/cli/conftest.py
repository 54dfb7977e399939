"""A command run inside the tests' own process."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def like_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `main` changes for the whole process is put back; the terminal has 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    gc.unfreeze()
    for number, handler in before.items():
        signal.signal(number, handler)
