"""What the agent sees of its trainer from outside, and when it is too much.

The kernel's limits come first; this looks again once a second, for systems that have none of them
and for what no limit covers: a trainer that computes although nobody asked it to. Computing time is
lent for two minutes at a time, renewed at every look: should the agent be stopped or stuck, the
kernel ends its trainer.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVERY_S: Final = 1.0
IDLE_CPU_S: Final = 5.0
"""Computing time that a trainer may take between units: collecting garbage, no more."""

LENT_CPU_S: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    private_bytes: int
    """Resident memory of its own, what it shares with us not counted."""
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    private_bytes: int
    """0: as much as it likes."""
    idle_cpu_s: float = IDLE_CPU_S


def judge(now: Vitals, idle_since: Vitals | None, allowed: Allowed) -> str | None:
    """Why it must be ended, if it must. `idle_since`: how it was when it last answered us."""
    if 0 < allowed.private_bytes < now.private_bytes:
        return (
            f"it grew to {now.private_bytes / 1e6:,.0f} MB, and may have "
            f"{allowed.private_bytes / 1e6:,.0f} MB"
        )
    if idle_since is not None and now.cpu_s - idle_since.cpu_s > allowed.idle_cpu_s:
        return "it went on computing though it was asked for nothing"
    return None


def look(pid: int) -> Vitals | None:
    """None where the process has gone, or the system does not tell."""
    folder = Path(f"/proc/{pid}")
    try:
        pages = (folder / "statm").read_text().split()
        # The name, in brackets, may hold anything: what follows the last bracket is ours.
        times = (folder / "stat").read_text().rpartition(")")[2].split()
        return Vitals(
            private_bytes=(int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE"),
            cpu_s=(int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def lend_time(pid: int, now: Vitals) -> None:
    """Let it compute for another two minutes; nothing where the system has no such limit."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        _, most = resource.prlimit(pid, resource.RLIMIT_CPU)
        resource.prlimit(pid, resource.RLIMIT_CPU, (int(now.cpu_s) + LENT_CPU_S, most))
