"""Round trips in short windows: players that stand ready, and one that plays at a time.

A player is a process that goes round and round with its other side: an echo, our agent with a host,
somebody else's client with its server. It says `ready` on its standard output. For every line on
its standard input, a number of seconds, it plays for so long and answers with one line of JSON:
`trips` (how many), `seconds` (how long it really took), `median_ms` and `p99_ms`. In between it
stands still. So windows of different players alternate on one machine, and whatever disturbs it
disturbs all.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

READY = "ready"
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one player did in one window."""

    trips: int
    seconds: float
    median_ms: float
    p99_ms: float
    cpu_s: float = 0.0
    """Processor time of the other side meanwhile, where it was asked for."""
    least: int = 0
    """Trips of whoever of a crowd made the fewest."""
    most: int = 0
    passed: int = 0
    """Bytes, where they are counted."""
    offered: int = 0
    """… that should have passed."""

    @property
    def per_s(self) -> float:
        return self.trips / self.seconds


def answer(seconds: float, trips_ns: Sequence[int], **more: float) -> str:
    """A player's answer to one line, without the newline."""
    trips = sorted(trips_ns)
    median = statistics.median(trips) / 1e6 if trips else math.nan
    p99 = trips[int(0.99 * len(trips))] / 1e6 if trips else math.nan
    return json.dumps(
        {"trips": len(trips), "seconds": seconds, "median_ms": median, "p99_ms": p99, **more}
    )


def play(trip: Callable[[], object]) -> None:
    """The life of a player whose round trip is one blocking call."""
    print(READY, flush=True)
    for line in sys.stdin:
        began = now = time.perf_counter_ns()
        until, trips = began + int(float(line) * 1e9), []
        while now < until:
            trip()
            before, now = now, time.perf_counter_ns()
            trips.append(now - before)
        print(answer((now - began) / 1e9, trips), flush=True)


class Player:
    """A player process. It ends when its standard input does."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._said(READY)

    @property
    def pid(self) -> int:
        return self._process.pid

    def window(self, seconds: float, other: int = 0) -> Window:
        """`other`: a process whose processor time is taken, too."""
        before = cpu_s(other) if other else 0.0
        self.begin(seconds)
        found = self.result()
        return replace(found, cpu_s=cpu_s(other) - before) if other else found

    def begin(self, seconds: float) -> None:
        """Open a window; others may be open at the same time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def result(self) -> Window:
        """Wait until the window that was begun is over."""
        return Window(**json.loads(self._said()))

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._process.kill()
        self._process.wait()

    def _said(self, expected: str = "") -> str:
        pipe: IO[str] | None = self._process.stdout
        assert pipe is not None
        line = pipe.readline().strip()
        if not line or (expected and line != expected):
            last = self._log.read_text(errors="replace").strip()[-2000:]
            raise SystemExit(f"A player said {line!r}. Its log ends: {last}")
        return line


@contextlib.contextmanager
def player(command: Sequence[str], log: Path) -> Generator[Player]:
    one = Player(command, log)
    try:
        yield one
    finally:
        one.end()


@contextlib.contextmanager
def echo(size: int, log: Path, *, tls: bool = False) -> Generator[Player]:
    """The baseline: blocking sockets in two processes, so many bytes there and back."""
    more = ["tls"] if tls else []
    with player([sys.executable, str(HERE / "_echo.py"), str(size), *more], log) as one:
        yield one


def cpu_s(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_mb(pid: int) -> float:
    """Memory that a process has in RAM, shared parts included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"/proc/{pid}/status has no VmRSS.")
