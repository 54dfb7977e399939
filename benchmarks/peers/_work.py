"""The work that every system is given, and how a driver says what it saw. numpy alone is needed.

A driver is a script that trains with one system:

    driver.py --work A --workers 2 --warm 2 --seconds 6

It prints one line of JSON, `Seen`, then holds everything as it is until its standard input ends,
so that whoever started it can look at the memory of all its processes.

Throughput is counted between two moments that lie `seconds` apart, `warm` seconds after the last
worker's first update. All clocks are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

RECORDS = 10_000
INPUTS = 784
CLASSES = 10
LR = 0.01


@dataclass(frozen=True)
class Work:
    """A classifier of fully connected layers with ReLU between them, and its batch."""

    widths: tuple[int, ...]
    batch: int

    @property
    def parameters(self) -> int:
        return sum((a + 1) * b for a, b in zip(self.widths, self.widths[1:]))  # noqa: B905


WORKS = {
    "A": Work((INPUTS, 100, CLASSES), 100),
    "B": Work((INPUTS, 2048, 2048, CLASSES), 256),
}


@dataclass(frozen=True)
class Seen:
    """What a driver saw."""

    samples_per_s: float
    updates_per_s: float
    """How often the parameters changed."""
    bytes_per_batch: float
    """Payload on the wire for one batch of one worker; what is sent is counted once."""
    first_update_at: float
    """Seconds since 1970."""
    round_trip_ms: float | None = None
    """From sending an update to having the parameters it led to; None where nobody sees that."""


class Case(NamedTuple):
    work: Work
    workers: int
    warm_s: float
    seconds: float
    batches: int
    start: str


def case(claim: str | None) -> Case:
    """From the command line."""
    parser = argparse.ArgumentParser(description=claim)
    parser.add_argument("--work", choices=sorted(WORKS), required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--warm", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--batches", type=int, default=1, help="local batches, where it has them")
    parser.add_argument("--start", choices=("spawn", "fork"), default="spawn", help="of workers")
    args = parser.parse_args()
    work = WORKS[args.work]
    return Case(work, args.workers, args.warm, args.seconds, args.batches, args.start)


def records(count: int = RECORDS) -> tuple[np.ndarray, np.ndarray]:
    """The same random images and labels for everybody, of MNIST's shape."""
    random = np.random.default_rng(0)
    images = random.random((count, INPUTS), dtype=np.float32)
    return images, random.integers(0, CLASSES, count)


def rate(streams: Sequence[Sequence[float]], begin: float, seconds: float) -> float:
    """Events a second of all streams together; of each from the first event after `begin` to the
    first after the end, so that none is counted in part. There are at least two."""
    total = 0.0
    for stream in streams:
        last = len(stream) - 1
        first = min(bisect_left(stream, begin), last - 1)
        stop = min(max(bisect_left(stream, begin + seconds), first + 1), last)
        total += (stop - first) / (stream[stop] - stream[first])
    return total


def median_ms(seconds: Sequence[float]) -> float | None:
    return 1000 * statistics.median(seconds) if seconds else None


def wall(monotonic: float) -> float:
    """The same moment in seconds since 1970."""
    return time.time() - (time.monotonic() - monotonic)


def tell(seen: Seen) -> None:
    """Print it and hold until standard input ends."""
    line = json.dumps(dataclasses.asdict(seen)) + "\n"
    os.write(1, line.encode())
    sys.stdin.read()
