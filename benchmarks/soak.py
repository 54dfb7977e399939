"""Whether a host stays as it is while volunteers come and go for half an hour.

memory_growth_percent   resident memory of the host, the median of the last fifth of the time
                        against that of the first, after a warm-up of a sixth (5 of 30 minutes)
heap_growth_percent     the same of its anonymous memory, without the libraries
fds_growth              file descriptors, likewise, as a difference
threads_growth          threads
resident_MB             resident memory at the end
updates                 accepted in all
losses                  volunteers lost and replaced
slowest_answer_s        the longest that GET /status took, of one every 5 s: the host's loop is late

Forty volunteers (real processes, a key each), one lost every 3 s and replaced at once: a third
SIGKILL, a third leave politely, a third SIGSTOP and never come back. `--minutes`, `--volunteers`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _processes import (
    Host,
    Process,
    Status,
    connected_of,
    end,
    job_file,
    new_home,
    volunteer,
    wait_for,
)
from _report import Report, arguments

PACE_MS = 200.0
LOST_EVERY_S = 3.0
SAMPLE_EVERY_S = 5.0
STAGGER_S = 0.7
BURIED_AFTER_S = 15.0
"""How long a stopped one stays: longer than the host waits for it."""
WARM_UP = 1 / 6
LOSSES = ("SIGKILL", "leave", "SIGSTOP")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The host at one moment."""

    at_s: float
    resident: int
    heap: int
    fds: int
    threads: int
    answer_s: float
    updates: int
    connected: int
    members: int


def sample(host: Host, at_s: float) -> Sample:
    asked = time.monotonic()
    status = _status(host)
    answer_s = time.monotonic() - asked
    process = Path(f"/proc/{host.pid}")
    memory = dict(
        line.split(":") for line in (process / "smaps_rollup").read_text().splitlines()[1:]
    )
    return Sample(
        at_s=at_s,
        resident=1024 * int(memory["Rss"].split()[0]),
        heap=1024 * int(memory["Anonymous"].split()[0]),
        fds=sum(1 for _ in (process / "fd").iterdir()),
        threads=sum(1 for _ in (process / "task").iterdir()),
        answer_s=answer_s,
        updates=status["updates"],
        connected=connected_of(status),
        members=len(status["members"]) + status["others"]["members"],
    )


def _status(host: Host) -> Status:
    status = host.status()
    if status is None:
        raise SystemExit(f"The host does not answer: {host.alive()}")
    return status


@dataclass(slots=True)
class Crowd:
    """Volunteers that come and go."""

    host: Host
    folder: Path
    home: Path
    chance: random.Random
    here: list[Process] = field(default_factory=list)
    stopped: list[tuple[float, Process]] = field(default_factory=list)
    leaving: list[Process] = field(default_factory=list)
    losses: int = 0
    _names: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def join(self) -> None:
        where, name = f"127.0.0.1:{self.host.port}", f"v{next(self._names)}"
        self.here.append(volunteer(where, name, self.home, pace_ms=PACE_MS, logs=self.folder))

    def lose_one(self) -> None:
        lost = self.here.pop(self.chance.randrange(len(self.here)))
        how = LOSSES[self.losses % len(LOSSES)]
        if lost.code is not None:
            raise SystemExit(f"A volunteer ended by itself: {lost.last_words()}")
        if how == "SIGKILL":
            lost.kill()
        elif how == "leave":
            lost.ask_to_stop()
            self.leaving.append(lost)
        else:
            lost.freeze()
            self.stopped.append((time.monotonic(), lost))
        self.losses += 1

    def bury(self) -> None:
        """Those long stopped end for good; those who left are waited for."""
        now = time.monotonic()
        for stopped in [s for s in self.stopped if now - s[0] >= BURIED_AFTER_S]:
            self.stopped.remove(stopped)
            stopped[1].kill()
        self.leaving = [process for process in self.leaving if process.code is None]

    def dismiss(self) -> None:
        for _, process in self.stopped:
            process.kill()
        end([*self.leaving, *self.here], patience_s=20.0)


def soak(host: Host, crowd: Crowd, *, volunteers: int, minutes: float) -> list[Sample]:
    for _ in range(volunteers):
        crowd.join()
        time.sleep(STAGGER_S)
    wait_for("everybody to be here", lambda: _connected(host) > volunteers, host.alive)
    samples: list[Sample] = []
    began = now = time.monotonic()
    lose_at = sample_at = began
    while now - began < 60 * minutes:
        if now >= lose_at:
            lose_at += LOST_EVERY_S
            crowd.lose_one()
            crowd.join()
            crowd.bury()
        if now >= sample_at:
            sample_at += SAMPLE_EVERY_S
            samples.append(sample(host, now - began))
        time.sleep(max(0.0, min(lose_at, sample_at) - time.monotonic()))
        now = time.monotonic()
    return samples


def _connected(host: Host) -> int:
    return connected_of(_status(host))


def fifths(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and the last fifth of what follows the warm-up."""
    after = values[int(WARM_UP * len(values)) :]
    size = max(1, len(after) // 5)
    return statistics.median(after[:size]), statistics.median(after[-size:])


def growth_percent(values: Sequence[float]) -> float:
    first, last = fifths(values)
    return 100 * (last / first - 1)


def growth(values: Sequence[float]) -> float:
    first, last = fifths(values)
    return last - first


def draw(samples: list[Sample], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows: dict[str, list[float]] = {
        "resident memory, MB": [s.resident / 1e6 for s in samples],
        "file descriptors": [s.fds for s in samples],
        "threads": [s.threads for s in samples],
        "volunteers connected": [s.connected for s in samples],
        "answer of /status, ms": [1000 * s.answer_s for s in samples],
    }
    minutes = [s.at_s / 60 for s in samples]
    figure, all_axes = plt.subplots(
        len(rows), 1, figsize=(8, 9), sharex=True, constrained_layout=True
    )
    for axes, (name, values) in zip(all_axes, rows.items(), strict=True):
        axes.plot(minutes, values, lw=1.2)
        axes.set_ylim(0, 1.15 * max(values))
        axes.set_ylabel(name, fontsize=8)
        axes.axvspan(0, WARM_UP * minutes[-1], alpha=0.1)
        axes.grid(alpha=0.3)
    all_axes[0].set_title("A host while volunteers come and go (shaded: warm-up)")
    all_axes[-1].set_xlabel("minutes")
    figure.savefig(file, dpi=110)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, help="how long (30; --quick: 2)")
    parser.add_argument("--volunteers", type=int, help="how many at once (40; --quick: 8)")


def main() -> None:
    args = arguments(__doc__, options)
    report = Report("soak", args.quick)
    minutes = args.minutes or (2.0 if args.quick else 30.0)
    volunteers = args.volunteers or (8 if args.quick else 40)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        folder = Path(name)
        home = new_home(folder / "home")
        host = Host(job_file(folder), folder / "host", home)
        crowd = Crowd(host, folder, home, random.Random(report.seeds[0]))
        try:
            host.start()
            host.await_start()
            samples = soak(host, crowd, volunteers=volunteers, minutes=minutes)
        finally:
            crowd.dismiss()
            end([host.process], patience_s=20.0)
    report.add("memory_growth_percent", [growth_percent([s.resident for s in samples])])
    report.add("heap_growth_percent", [growth_percent([s.heap for s in samples])])
    report.add("fds_growth", [growth([s.fds for s in samples])])
    report.add("threads_growth", [growth([s.threads for s in samples])])
    report.add("resident_MB", [samples[-1].resident / 1e6])
    report.add("updates", [samples[-1].updates])
    report.add("losses", [crowd.losses])
    report.add("slowest_answer_s", [max(s.answer_s for s in samples)])
    report.write(args.json)
    if args.json not in (None, "-"):
        draw(samples, Path(args.json).with_suffix(".png"))


if __name__ == "__main__":
    main()
