"""Starts what `_replicate_neighbours.py` is, and asks it for its memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _replicate_job import Spread

SCRIPT = Path(__file__).parent / "_replicate_neighbours.py"
SETTLE_S = 1.0
BUSY_S = 10.0
MEET_S = 60.0
Said = dict[str, float]


def measure_memory(data: Spread, store: Path, count: int) -> tuple[float, float, float]:
    """MB of a volunteer's exchange: alone, with so many neighbours, and at most while they give
    and take as fast as they can."""
    with _started("hub", str(data.folder), str(store)) as hub:
        assert hub.stdin is not None
        assert hub.stdout is not None
        port = json.loads(hub.stdout.readline())["port"]
        ask = _asking(hub)
        time.sleep(SETTLE_S)
        alone = ask()["MB"]
        with _started("crowd", str(data.folder), str(port), str(count)) as crowd:
            assert crowd.stdin is not None
            idle = _all_met(ask, count)
            time.sleep(BUSY_S)
            most = ask()
            crowd.stdin.close()
        hub.stdin.close()
    if most["neighbours"] < count or not most["chunks"]:
        raise SystemExit(f"Of {count} neighbours {most['neighbours']:.0f} stayed.")
    return alone, idle, most["most_MB"]


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def _asking(hub: subprocess.Popen[str]) -> Callable[[], Said]:
    def ask() -> Said:
        assert hub.stdin is not None
        assert hub.stdout is not None
        hub.stdin.write("tell\n")
        hub.stdin.flush()
        said: Said = json.loads(hub.stdout.readline())
        return said

    return ask


def _all_met(ask: Callable[[], Said], count: int) -> float:
    """What it has when all have come."""
    deadline = time.monotonic() + MEET_S
    while time.monotonic() < deadline:
        said = ask()
        if said["neighbours"] == count:
            return said["MB"]
        time.sleep(0.02)
    raise SystemExit(f"Of {count} neighbours only {said['neighbours']:.0f} came.")
