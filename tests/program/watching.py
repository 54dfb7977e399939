"""What a stretch of code touches, as Python itself reports it, and how much memory it takes.

An audit hook cannot be removed, so one is installed once and looks away when nobody watches. The
peak of a process is the kernel's; `getrusage` would also tell of the process that started this one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOUCHES = (
    "open", "socket.", "os.", "subprocess.", "import", "exec", "compile", "ctypes.", "shutil.",
    "tempfile.", "mmap.", "pickle.", "urllib.", "glob.", "pathlib.", "pty.", "signal.",
)  # fmt: skip
_watchers: list[list[str]] = []
_installed = False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watchers and event.startswith(TOUCHES):
        _watchers[-1].append(f"{event} {arguments!r:.200}")


@contextmanager
def watched() -> Iterator[list[str]]:
    """The events of this process while it lasts, as a list that grows."""
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    events: list[str] = []
    _watchers.append(events)
    try:
        yield events
    finally:
        _watchers.remove(events)


def peak_bytes() -> int:
    """The most that this process has had in memory since `forget_peak`, or since it began."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) << 10


def forget_peak() -> int:
    """Begin a new measurement; what this process has in memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()
