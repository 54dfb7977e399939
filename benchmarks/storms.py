"""Twenty thousand lives of a job in the virtual world, and nothing that must never be.

`crowdgrad/simulator/` lives through them on all cores; a life that goes wrong prints the one
command that shows it again, exactly.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter

from _report import Report, arguments

from crowdgrad.simulator.storm import NAMES, storm

LIVES = 20_000
QUICK = 500
AT_ONCE = 20
"""Lives that a worker is given at a time."""
COUNTED = (
    "restarts", "crashes", "power_fails", "host_moves", "host_freezes", "torn_writes",
    "bits_flipped", "checkpoints", "images", "disk_is_full", "disk_fails", "person_dies",
    "person_freezes", "worker_dies", "partitions", "half_open", "matchmaker_dies", "diverges",
    "applied",
)  # fmt: skip


def live(lives: list[tuple[str, int]]) -> tuple[Counter[str], float, list[str]]:
    """What happened in some lives, how long they lasted, and how to see the bad ones again."""
    counts: Counter[str] = Counter()
    virtual_s, bad = 0.0, []
    for name, seed in lives:
        told = storm(name, seed)
        counts.update(told.counts)
        virtual_s += told.virtual_s
        if told.violation is not None:
            bad.append(f"{told.violation}\n  {told.replay}")
    return counts, virtual_s, bad


def main() -> int:
    args = arguments(__doc__)
    report = Report("storms", args.quick)
    lives = [
        (NAMES[n % len(NAMES)], n // len(NAMES)) for n in range(QUICK if args.quick else LIVES)
    ]
    parts = [lives[start : start + AT_ONCE] for start in range(0, len(lives), AT_ONCE)]
    counts: Counter[str] = Counter()
    virtual_s, bad = 0.0, []
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool() as pool:
        for more, lasted_s, wrong in pool.imap_unordered(live, parts):
            counts.update(more)
            virtual_s += lasted_s
            bad += wrong
            for one in wrong:
                print(one, file=sys.stderr)
    took_s = time.perf_counter() - began
    report.seeds = [0, max(seed for _, seed in lives)]
    report.add("seeds", [len(lives)])
    report.add("violations", [len(bad)])
    for kind in COUNTED:
        report.add(kind, [counts[kind]])
    report.add("virtual_hours", [virtual_s / 3600])
    report.add("lives_per_s", [len(lives) / took_s])
    report.write(args.json)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
