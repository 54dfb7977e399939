"""A command at a terminal of its own: what it shows, what is typed, how it ends."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 60.0


class Terminal:
    """A Python process whose terminal we are."""

    def __init__(self, arguments: Sequence[str], cwd: Path) -> None:
        self.shown = ""
        self.pid, self._handle = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as a shell in the foreground has it
            os.chdir(cwd)
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
            os.execve(sys.executable, [sys.executable, *arguments], environment)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._handle)

    def until(self, pattern: str) -> str:
        """All that was shown so far, once the pattern is among it."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown!r}"
            assert self._read(0.2), f"it ended without {pattern!r}: {self.shown!r}"
        return self.shown

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self._handle, text.encode())

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(0.2):
            assert time.monotonic() < deadline, f"it does not end: {self.shown!r}"
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, timeout_s: float) -> bool:
        """False at the end."""
        if not select.select([self._handle], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._handle, 4096)
        except OSError:  # Linux says so when the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
