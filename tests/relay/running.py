"""A real relay in its own process, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class Running:
    """`with Running(folder) as relay:` … `relay.port`; `kill` and `start` at will."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._file = folder / "relay.json"
        self._arguments = arguments
        self._home = folder / "relay-home"
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.said: dict[str, object] = {}

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """On the same port as before, if there was one."""
        self._file.unlink(missing_ok=True)
        command = [sys.executable, "-W", "error", "-m", "crowdgrad", "relay", "--tied"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port), "--json", str(self._file), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CROWDGRAD_HOME": str(self._home)},
        )
        while not self._file.exists():
            assert self._process.poll() is None, self._process.communicate()
            time.sleep(0.02)
        self.said = json.loads(self._file.read_text())
        assert self.said["pid"] == self._process.pid
        self.port = int(str(self.said["address"]).rpartition(":")[2])

    def stop(self, how: signal.Signals) -> tuple[str, str]:
        """What it had printed, on standard output and error."""
        os.kill(self.process.pid, how)
        return self.process.communicate(timeout=20)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
