"""What the walls around the trainer cost: speed with all of them against none, and the start.

Two real trainers live side by side, one within its walls and one without, and take turns: a window
of units each, in an order that changes from pair to pair, so that a busy machine slows both. The
ratio of a pair is units a second with walls over units a second without. The start is from the
process's birth to Ready, with the same program, again in turns.

mlp    784-100-10, batches of 100: tiny units, where every system call would show
cnn    LeNet on 28 x 28 images, batches of 64
gru    12 steps unrolled, batches of 64: many small operators
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import numpy as np
from _models import cnn, gru, mlp
from _report import Report, arguments
from _trainer import laid_out

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.trainer_link import TrainerLink

MODELS = {"mlp": mlp, "cnn": cnn, "gru": gru}
WINDOW_S = 0.5


def main() -> None:
    args = arguments(__doc__)
    report = Report("sandbox", args.quick)
    pairs, starts = (4, 3) if args.quick else (40, 15)
    for name, make in MODELS.items():
        task, (x, y) = make()
        fields = from_arrays(x.numpy(), y.numpy().astype(np.uint8))
        captured = capture(task, fields.fields)
        ratios = asyncio.run(_ratios(captured, fields, pairs))
        report.add(f"{name} speed with walls / without", ratios)
        if name == "mlp":
            walled, bare = asyncio.run(_starts(captured, fields, starts))
            report.add("start with walls, ms", walled)
            report.add("start without, ms", bare)
            added = statistics.median(walled) - statistics.median(bare)
            report.add("walls add to the start, ms", [added])
    report.write(args.json)


async def _ratios(captured: Captured, data: DataSet, pairs: int) -> list[float]:
    """Units a second with walls over without, for every pair of windows."""
    benches = {
        walls: laid_out(captured, data, data.records("train"), walls=walls)
        for walls in (True, False)
    }
    try:
        for _, link, ask in benches.values():
            await link.start()
            await _window(link, ask)
        ratios = []
        for pair in range(pairs):
            order = (True, False) if pair % 2 else (False, True)
            speed = {walls: await _window(*benches[walls][1:]) for walls in order}
            ratios.append(speed[True] / speed[False])
            print(f"\r{pair + 1} of {pairs}", end="", file=sys.stderr, flush=True)
        print("\r", end="", file=sys.stderr)
        return ratios
    finally:
        for arena, link, _ in benches.values():
            await link.close()
            arena.close()


async def _window(link: TrainerLink, ask: talk.Compute) -> float:
    """Units a second, over half a second."""
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < WINDOW_S:
        await link.compute(ask)
        done += 1
    return done / (time.perf_counter() - began)


async def _starts(
    captured: Captured, data: DataSet, starts: int
) -> tuple[list[float], list[float]]:
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * starts + 2):
        walls = number % 2 == 0
        arena, link, _ = laid_out(captured, data, data.records("train"), walls=walls)
        began = time.perf_counter()
        await link.start()
        if number >= 2:  # the first of each reads the libraries from the disk
            took[walls].append(1e3 * (time.perf_counter() - began))
        await link.close()
        arena.close()
    return took[True], took[False]


if __name__ == "__main__":
    main()
