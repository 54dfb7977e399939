"""How fast this machine computes and how it is reached, measured and remembered for a day.

Matchmakers share out machines by their speed, so it is measured the way a trainer works: float32,
on one thread. How fast data comes in is known once a job's data has come.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from crowdgrad.files import write_whole

logger = logging.getLogger(__name__)

NAME = "machine.json"
MAX_FILE_BYTES = 4096
VALID_S = 86_400.0
SIDE = 64
"""Of the matrices: libraries multiply such small ones on one thread."""
PRODUCTS = 2000
"""Multiplied between two looks at the clock."""
ROUNDS, MOST_S = 9, 0.25
"""How often, and how long at most."""
LEAST_BYTES = 1_000_000
"""Fewer bytes say more about the way there and back than about the link's width."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    """When it was measured, seconds since 1970."""
    gflops: float = 0.0
    download_mbps: float = 0.0
    """The most that was seen; 0: no data has come yet."""
    reachable: bool | None = None
    """Whether others could dial it; None: nobody has tried."""

    def __post_init__(self) -> None:
        if not all(0 <= number < 1e12 for number in (self.at, self.gflops, self.download_mbps)):
            raise ValueError("a machine's numbers are between 0 and 10¹²")


_decoder = msgspec.json.Decoder(Measured)


def known(home: Path, now: float, measure: Callable[[], float] | None = None) -> Measured:
    """What was measured within a day, or is measured now."""
    found = recall(home, now)
    if found is None:
        found = Measured(at=now, gflops=(measure or gflops)())
        _remember(home, found)
    return found


def note_download(home: Path, now: float, received_bytes: int, seconds: float) -> None:
    """So much data has come in so many seconds."""
    if received_bytes < LEAST_BYTES or seconds <= 0:
        return
    found = recall(home, now)
    mbps = 8 * received_bytes / seconds / 1e6
    if found is not None and found.download_mbps < mbps < 1e12:
        _remember(home, msgspec.structs.replace(found, download_mbps=round(mbps, 3)))


def note_reachable(home: Path, now: float, reachable: bool) -> None:
    """A matchmaker has tried to dial us."""
    found = recall(home, now)
    if found is not None:
        _remember(home, msgspec.structs.replace(found, reachable=reachable))


def recall(home: Path, now: float) -> Measured | None:
    """None: nothing is known, it is too old, or it cannot be read."""
    try:
        if (home / NAME).stat().st_size > MAX_FILE_BYTES:
            return None
        found = _decoder.decode((home / NAME).read_bytes())
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if 0 <= now - found.at < VALID_S else None


def _remember(home: Path, measured: Measured) -> None:
    try:
        write_whole(home / NAME, msgspec.json.encode(measured), sync=False)
    except OSError as error:  # then it is measured again
        logger.warning("what was measured cannot be kept: %s", error.strerror)


def gflops(clock: Callable[[], float] = time.perf_counter) -> float:
    """10⁹ multiplications and additions a second on one thread: the median of a few rounds."""
    left = np.linspace(-1, 1, SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    right, product = left.T.copy(), np.empty((SIDE, SIDE), np.float32)
    began, took = clock(), []
    for _ in range(ROUNDS):
        start = clock()
        for _ in range(PRODUCTS):
            np.matmul(left, right, out=product)
        took.append(clock() - start)
        if clock() - began > MOST_S:
            break
    seconds = max(statistics.median(took), 1e-9)
    return round(2 * SIDE**3 * PRODUCTS / seconds / 1e9, 3)
