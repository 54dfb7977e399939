"""Fixtures for everyone, and what was left out said out loud."""

import os
import signal

import pytest

from tests.chromium import MISSING as NO_CHROMIUM
from tests.chromium import browser
from tests.namespaces import MISSING as NO_NAMESPACES
from tests.postgres import MISSING as NO_POSTGRES
from tests.postgres import fresh_postgres, postgres, postgres_url

__all__ = ["browser", "fresh_postgres", "postgres", "postgres_url"]

# Who runs the tests in the background of a script has them, and all they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests on one machine, or on two of one network, are not to find each other's hosts.
os.environ.setdefault("CROWDGRAD_LAN", "no")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for line in (NO_POSTGRES, NO_NAMESPACES, NO_CHROMIUM):
        if any(line in reason for reason in skipped):
            terminalreporter.write_line(line, red=True, bold=True)
