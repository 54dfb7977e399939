"""How exactly a volunteer keeps its caps: what passes in five seconds or more, against the cap.

Two real processes (`_capped.py`), one under a cap of 1, 5, 20 and 100 Mbit/s, the other without;
one connection and four that share the cap, over TLS, frames of 4 kB to 1 MiB; upward and downward.
On loopback and, where we are root, across a link of Ethernet's packets (a network namespace). What
counts are all bytes of the connections, framing and TLS included, those of TCP and IP not. Two
windows each, five seconds after the first byte.

cap_error        the largest deviation of any window from its cap, relative, where bytes are counted
                 by whoever receives them: by the far end for what goes up, by ours for what comes
                 down; the promise is 0.05
start_error      by how much the first five seconds, the beginning included, go beyond the cap
wire_error_up    on the link, over all windows, as our kernel counts what the other has acknowledged
wire_error_down  … what has arrived. A kernel asks for more when its buffer is nearly empty: bytes
                 come in gusts of up to a quarter of a second's worth for each connection (64 kB at
                 least), which matter over seconds, not over minutes
error_WAY_MBPS_CONNECTIONS[_link]   case by case
cpu_share        of one core, the process under a cap of 100 Mbit/s, four connections, upward
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _links import Links
from _report import Report, arguments
from _windows import cpu_s

SCRIPT = str(Path(__file__).parent / "_capped.py")
CAPS_MBPS = (1, 5, 20, 100)
CONNECTIONS = (1, 4)
SETTLING_S, FIRST_S = 2.0, 5.0
MBIT_BYTES = 1e6 / 8


class End:
    """One of the two processes. It ends when its standard input does."""

    def __init__(self, *words: str, before: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*before, sys.executable, SCRIPT, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        ready = self._line().split()
        self.port = ready[1] if len(ready) > 1 else ""
        self.pid = self._process.pid

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A process under a cap has ended; what it said is above.")
        return line

    def counts(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        return found

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the two ends are."""

    name: str
    far_host: str
    before: tuple[str, ...] = ()
    """How to start the near end there."""


@contextlib.contextmanager
def ends(place: Place, way: str, count: int, mbps: float) -> Generator[tuple[End, End]]:
    """The near end, which has the cap, and the far one."""
    theirs, ours = ("drink", "pour") if way == "up" else ("pour", "drink")
    far = End("far", theirs, place.far_host)
    try:
        words = ("near", ours, place.far_host, far.port, str(count), str(mbps))
        near = End(*words, before=place.before)
        try:
            yield near, far
        finally:
            near.end()
    finally:
        far.end()


class Bench:
    def __init__(self, report: Report, *, quick: bool) -> None:
        self._report = report
        self._windows, self._window_s = (1, 5.0) if quick else (2, 8.0)
        self._errors: list[float] = []
        self._wire: dict[str, list[float]] = {"up": [], "down": []}
        self._start: list[float] = []

    def run(self, place: Place) -> None:
        for way in ("up", "down"):
            for mbps in CAPS_MBPS:
                for count in CONNECTIONS:
                    self._case(place, way, mbps, count)

    def sum_up(self) -> None:
        self._report.add("cap_error", [max(map(abs, self._errors))])
        self._report.add("start_error", [max(self._start)])
        for way, errors in self._wire.items():
            if errors:
                self._report.add(f"wire_error_{way}", [max(map(abs, errors))])

    def _case(self, place: Place, way: str, mbps: float, count: int) -> None:
        with ends(place, way, count, mbps) as (near, far):
            receiver, kernel = (far, "acked") if way == "up" else (near, "arrived")
            looks = [(receiver.counts(), near.counts())]
            for pause_s in (SETTLING_S, FIRST_S - SETTLING_S, *[self._window_s] * self._windows):
                used, began = cpu_s(near.pid), time.perf_counter()
                time.sleep(pause_s)
                looks.append((receiver.counts(), near.counts()))
                share = (cpu_s(near.pid) - used) / (time.perf_counter() - began)
        read = [(read["at"], read["read"]) for read, _ in looks]
        wire = [(wire["at"], wire[kernel]) for _, wire in looks]
        cap = mbps * MBIT_BYTES
        errors = [deviation(read, n, n + 1, cap) for n in range(2, len(looks) - 1)]
        self._report.add(f"error_{way}_{mbps:g}_{count}{place.name}", errors)
        self._errors += errors
        if place.name:
            self._wire[way].append(deviation(wire, 1, len(looks) - 1, cap))
        self._start.append(deviation(read, 0, 2, cap))
        if (way, mbps, count, place.name) == ("up", CAPS_MBPS[-1], CONNECTIONS[-1], ""):
            self._report.add("cpu_share", [share])


def deviation(looks: list[tuple[float, float]], first: int, last: int, cap: float) -> float:
    (began, before), (ended, after) = looks[first], looks[last]
    return (after - before) / (ended - began) / cap - 1


def main() -> None:
    args = arguments(__doc__)
    report = Report("caps", args.quick)
    bench = Bench(report, quick=args.quick)
    bench.run(Place(name="", far_host="127.0.0.1"))
    if os.geteuid() == 0:
        with Links() as links:
            bench.run(Place(name="_link", far_host=links.host, before=tuple(links.add().before)))
    else:
        report.notes["link"] = "not measured: needs root, for a network namespace"
    bench.sum_up()
    report.write(args.json)


if __name__ == "__main__":
    main()
