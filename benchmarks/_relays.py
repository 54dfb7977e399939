"""A relay to be measured: `crowdgrad relay` on loopback, with limits that nobody here reaches."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from _processes import Process, end, wait_for

UNLIMITED = (
    "--max-hosts", "5000", "--max-pairs", "5000", "--pairs-per-host", "5000",
    "--pairs-per-key", "5000", "--pairs-per-address", "5000", "--hosts-per-address", "5000",
    "--arrivals-per-s", "1e6", "--key-mbit", "0", "--key-gb-per-day", "0", "--idle-s", "3600",
)  # fmt: skip
"""All of this machine is one address, and in a second passes more than a home does in an hour."""


class Here(NamedTuple):
    address: str
    pid: int

    @property
    def at(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)


@contextlib.contextmanager
def relay(folder: Path) -> Generator[Here]:
    """`folder`: for its log and what it announces."""
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "relay.json"
    told.unlink(missing_ok=True)
    log = folder / "relay.log"
    process = Process(["relay", "--port", "0", "--json", str(told), *UNLIMITED], log=log)
    try:
        dead = lambda: "" if process.code is None else process.last_words() or "ended"  # noqa: E731
        wait_for("the relay", lambda: _announced(told), dead)
        yield Here(address=str(json.loads(told.read_text())["address"]), pid=process.pid)
    finally:
        end([process])


def _announced(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return False


def memory_kb(pid: int) -> float:
    """What a process has in RAM of its own: without what it shares with its program's file."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") / 1000
