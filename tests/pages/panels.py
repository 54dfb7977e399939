"""A panel as people start it: a real process, the address it prints, everything it started gone."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_S = 60.0
END_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Running:
    process: subprocess.Popen[str]
    url: str
    """With the token, as it is printed."""
    home: Path

    @property
    def runs(self) -> Path:
        return self.home / "runs"


@contextlib.contextmanager
def panel(home: Path, *options: str) -> Iterator[Running]:
    home.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "crowdgrad", "panel", "--no-browser", "--port", "0",
            "--home", str(home), "--runs", str(home / "runs"), *options,
        ],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        yield Running(process=process, url=_address(process), home=home)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()


def volunteer(home: Path, address: str, name: str) -> subprocess.Popen[bytes]:
    """Somebody who comes to help, and says yes to everything."""
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            sys.executable, "-m", "crowdgrad", "work", address, "--yes", "--name", name,
            "--plain", "--home", str(home),
        ],
        cwd=home,
        stdout=(home / "work.log").open("wb"),
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said, until = "", time.monotonic() + START_S
    while time.monotonic() < until:
        ready, _, _ = select.select([process.stdout], [], [], 1.0)
        if ready:
            line = process.stdout.readline()
            said += line
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
            if found:
                return found[0]
            if not line:
                break
    raise AssertionError(f"the panel said no address:\n{said}")
