"""What it costs to hand a unit to the trainer process and hear back, beside the computing itself.

A real trainer under a real `TrainerLink`, with a program so small that the crossing shows.
Parameters, data and update lie in the memory they share: only two short messages go over.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from _trainer import laid_out

from crowdgrad.capture.capture import capture
from crowdgrad.capture.models import mlp
from crowdgrad.data.dataset import from_arrays
from crowdgrad.process import run_async
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.trainer_link import TrainerLink

BATCH = 20
UNITS = 300
"""In a window."""


def boundary_us(windows: int) -> list[float]:
    """The median of each window: the round trip without the trainer's own computing."""
    return run_async(_measure(windows))


async def _measure(windows: int) -> list[float]:
    random = np.random.default_rng(0)
    data = from_arrays(
        random.normal(size=(60, 3)).astype(np.float32), random.integers(0, 2, 60).astype(np.uint8)
    )
    arena, link, ask = laid_out(capture(mlp((3,), (8,), 2), data.fields), data, BATCH)
    try:
        await link.start()
        await _window(link, ask)
        return [await _window(link, ask) for _ in range(windows)]
    finally:
        await link.close()
        arena.close()


async def _window(link: TrainerLink, ask: talk.Compute) -> float:
    crossings = []
    for _ in range(UNITS):
        began = time.perf_counter()
        answer = await link.compute(ask)
        crossings.append(1e6 * (time.perf_counter() - began - answer.compute_s))
    return statistics.median(crossings)
