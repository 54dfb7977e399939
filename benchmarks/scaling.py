"""How the work of many volunteers adds up, and where it stops to.

Real processes over loopback: `crowdgrad host`, whose own worker is stopped before it joins
(`_quiet_host.py`), and `crowdgrad work`. What stands still is paused by its owner.

Two against two, 784-2048-2048-10, batches of 256, `overlap = 1`, windows alternating:
two_vs_two_plain         samples a second of two volunteers with their host, by those of two plain
                         PyTorch loops (`_plain.py`) at once on the same two cores; one batch a unit
two_vs_two_plain_push8   the same with eight batches a unit
…_ours_per_s, …_plain_per_s  the samples a second behind these ratios

Four against twelve, 64-64-10 with tanh, batches of 100, `overlap = 0`; trainers pause 6.4 ms after
a batch, as long as the paper's computed. An epoch is 550 batches for each volunteer, however many
there are, so it should always take as long. Epochs of both crowds alternate:
growth_4_to_12_downpour  an epoch's time with 12 volunteers by that with 4, less 1; Downpour, a push
                         and a fetch every 4 batches
growth_4_to_12_dc        the same with DC-ASGD, one batch a unit
epoch_N_RECIPE_s         the epochs' times
cores_N_RECIPE           cores taken by the host and all volunteers together: where that nears what
                         the machine has, the volunteers wait for each other, not for the host
WHO_ms_N_RECIPE          processor time for one batch: of the host, of its agent, of its trainer

The knee, 784-100-10 (318 kB): scripted volunteers that compute nothing, all in one process
(`_scripted.py`), lock-step. Greedy ones ask again at once; thoughtful ones after 10 ms:
exchanges_per_s_N        of N greedy volunteers together
fairness_N               the fewest exchanges of one of them by the most, in one window
median_ms_N, p99_ms_N    how long their exchanges took
host_cpu_N, crowd_cpu_N  cores that the host and the process of the volunteers took
knee_volunteers          how many thoughtful ones can be served before each has less than nine
                         tenths of what one alone has (linear between the numbers tried)

With `--json FILE` the knee is drawn beside it, as FILE with .png.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _processes import Host, new_home
from _quiet_host import LAYERS, Crew, Did, Recipe, crew, job_file, job_of, quiet_host
from _report import Report, arguments
from _windows import Player, Window, cpu_s, player

HERE = Path(__file__).parent
PARTS = ("two", "growth", "knee")
WIDE, NARROW = "23MB", "318kB"
WIDE_BATCH = 256
TWO: dict[str, Recipe] = {
    "two_vs_two_plain": {"name": "async_sgd", "lr": 0.01, "batch_size": WIDE_BATCH},
    "two_vs_two_plain_push8": {
        "name": "async_sgd", "lr": 0.01, "batch_size": WIDE_BATCH, "batches_per_unit": 8,
    },
}  # fmt: skip
BATCH, PACE_MS, EPOCH = 100, 6.4, 550
FEW, MANY = 4, 12
GROWTH: dict[str, Recipe] = {
    "downpour": {"name": "downpour", "batch_size": BATCH, "overlap": 0},
    "dc": {"name": "dc_asgd", "batch_size": BATCH, "overlap": 0},
}
TANH = """
import torch
from torch import nn

import crowdgrad as cg

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
task = cg.Task(
    model,
    nn.functional.cross_entropy,
    inputs=(torch.zeros(8, 64),),
    targets=(torch.zeros(8, dtype=torch.int64),),
)
"""
KNEE: Recipe = {"name": "async_sgd", "lr": 0.0001, "batch_size": BATCH, "overlap": 0}
CROWDS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 100)
TOLD = (1, 4, 16, 100)
Drawn = dict[str, list[float]]
THINK_MS = 10.0
NEARLY = 0.9


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="PART", nargs="+", choices=PARTS, default=list(PARTS),
                        help=", ".join(PARTS))  # fmt: skip


# -- two against two ----------------------------------------------------------------------------


def at_once(loops: Sequence[Player], seconds: float) -> float:
    """Samples a second of plain loops that run at the same time."""
    for loop in loops:
        loop.begin(seconds)
    return sum(WIDE_BATCH * loop.result().per_s for loop in loops)


def two(report: Report, folder: Path, home: Path, *, quick: bool) -> None:
    windows, seconds = (2, 3.0) if quick else (9, 8.0)
    widths = [str(width) for width in LAYERS[WIDE]]
    command = [sys.executable, str(HERE / "_plain.py"), "sgd", str(WIDE_BATCH), *widths]
    with contextlib.ExitStack() as stack:
        log = folder / "plain.log"
        loops = [stack.enter_context(player(command, log)) for _ in range(2)]
        for name, recipe in TWO.items():
            place = folder / name
            with crew(job_file(place, WIDE, recipe), place, home, 2) as ours:
                at_once(loops, 0.5)
                pairs = [(ours.window(seconds).samples_per_s, at_once(loops, seconds))
                         for _ in range(windows)]  # fmt: skip
            report.add(name, [o / p for o, p in pairs])
            report.add(f"{name}_ours_per_s", [o for o, _ in pairs])
            report.add(f"{name}_plain_per_s", [p for _, p in pairs])


# -- four against twelve ------------------------------------------------------------------------


def growth(report: Report, folder: Path, home: Path, *, quick: bool) -> None:
    for name, recipe in GROWTH.items():
        with contextlib.ExitStack() as stack, ThreadPoolExecutor() as starting:
            crews = [paced(folder / name, home, recipe, count) for count in (FEW, MANY)]
            few, many = starting.map(stack.enter_context, crews)
            epochs = [(epoch(few, quick=quick), epoch(many, quick=quick))
                      for _ in range(3 if quick else 15)]  # fmt: skip
        times = [(epoch_s(f, FEW), epoch_s(m, MANY)) for f, m in epochs]
        report.add(f"growth_4_to_12_{name}", [many_s / few_s - 1 for few_s, many_s in times])
        tell_crew(report, f"{FEW}_{name}", FEW, [few for few, _ in epochs])
        tell_crew(report, f"{MANY}_{name}", MANY, [many for _, many in epochs])


def tell_crew(report: Report, tail: str, volunteers: int, found: list[Did]) -> None:
    report.add(f"epoch_{tail}_s", [epoch_s(did, volunteers) for did in found])
    parts = {"host": [did.host_cpu_s for did in found],
             "agent": [did.agents_cpu_s for did in found],
             "trainer": [did.trainers_cpu_s for did in found]}  # fmt: skip
    cores = [sum(taken) for taken in zip(*parts.values(), strict=True)]
    report.add(f"cores_{tail}", [c / did.seconds for c, did in zip(cores, found, strict=True)])
    for who, taken in parts.items():
        each = [1000 * t / (did.samples / BATCH) for t, did in zip(taken, found, strict=True)]
        report.add(f"{who}_ms_{tail}", each)


def paced(
    folder: Path, home: Path, recipe: Recipe, volunteers: int
) -> contextlib.AbstractContextManager[Crew]:
    place = folder / f"of-{volunteers}"
    job = job_of(place, TANH, "noise.npz", recipe)
    random = np.random.default_rng(0)
    records = {"train": EPOCH * BATCH, "val": BATCH, "test": BATCH}
    arrays: dict[str, Any] = {}
    for split, count in records.items():
        arrays[f"{split}_x"] = random.normal(size=(count, 64)).astype(np.float32)
        arrays[f"{split}_y"] = random.integers(0, 10, count)
    np.savez(place / "noise.npz", **arrays)
    return crew(job, place, home, volunteers, pace_ms=PACE_MS)


def epoch(ours: Crew, *, quick: bool) -> Did:
    """About an epoch; `quick`: half of it."""
    return ours.window((0.5 if quick else 1.0) * EPOCH * PACE_MS / 1000 * 1.15)


def epoch_s(did: Did, volunteers: int) -> float:
    """Seconds for 550 batches of each, at the rate of the window."""
    return EPOCH * volunteers * did.seconds / (did.samples / BATCH)


# -- the knee -----------------------------------------------------------------------------------


def knee(report: Report, folder: Path, home: Path, *, quick: bool) -> Drawn:
    """What is drawn."""
    place = folder / "knee"
    crowds = TOLD if quick else CROWDS
    drawn: Drawn = {"greedy": [], "thoughtful": [], "median_ms": [], "p99_ms": []}
    with quiet_host(job_file(place, NARROW, KNEE), place, home) as host:
        for count in crowds:
            greedy = crowd(host, count, 0.0, place, quick=quick)
            if count in TOLD:
                tell_crowd(report, count, greedy)
            for kind in ("median_ms", "p99_ms"):
                drawn[kind].append(statistics.median(getattr(w, kind) for w, _ in greedy))
            thoughtful = crowd(host, count, THINK_MS, place, quick=quick)
            for kind, found in (("greedy", greedy), ("thoughtful", thoughtful)):
                drawn[kind].append(statistics.median(w.per_s for w, _ in found))
    report.add("knee_volunteers", [knee_of(crowds, drawn["thoughtful"])])
    return {"crowds": list(crowds), **drawn}


def crowd(
    host: Host, count: int, think_ms: float, logs: Path, *, quick: bool
) -> list[tuple[Window, float]]:
    """Windows of so many, each with the processor time of the volunteers' process."""
    windows, seconds = (2, 0.5 + count / 50) if quick else (5, 2.0 + count / 20)
    command = [sys.executable, str(HERE / "_scripted.py"), str(host.here["address"]), str(count),
               f"{think_ms:g}", str(BATCH)]  # fmt: skip
    found: list[tuple[Window, float]] = []
    with player(command, logs / "crowd.log") as one:
        one.window(0.5)
        for _ in range(windows):
            before = cpu_s(one.pid)
            window = one.window(seconds, host.pid)
            found.append((window, cpu_s(one.pid) - before))
    return found


def tell_crowd(report: Report, count: int, found: list[tuple[Window, float]]) -> None:
    windows = [window for window, _ in found]
    report.add(f"exchanges_per_s_{count}", [window.per_s for window in windows])
    report.add(f"median_ms_{count}", [window.median_ms for window in windows])
    report.add(f"p99_ms_{count}", [window.p99_ms for window in windows])
    report.add(f"fairness_{count}", [window.least / window.most for window in windows])
    report.add(f"host_cpu_{count}", [window.cpu_s / window.seconds for window in windows])
    report.add(f"crowd_cpu_{count}", [cpu / window.seconds for window, cpu in found])


def knee_of(counts: Sequence[int], rates: Sequence[float]) -> float:
    """How many are served before each has less than `NEARLY` of what one alone has."""
    alone = rates[0] / counts[0]
    shares = [rate / count / alone for count, rate in zip(counts, rates, strict=True)]
    for (low, before), (high, after) in pairwise(zip(counts, shares, strict=True)):
        if after < NEARLY:
            return low + (high - low) * max(0.0, before - NEARLY) / (before - after)
    return float(counts[-1])


def draw(drawn: Drawn, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (rates, waits) = plt.subplots(1, 2, figsize=(9.5, 4.2), constrained_layout=True)
    crowds = drawn["crowds"]
    rates.plot(crowds, drawn["greedy"], "o-", label="ask again at once")
    rates.plot(crowds, drawn["thoughtful"], "s-", label=f"after {THINK_MS:g} ms")
    alone = drawn["thoughtful"][0]
    top = max(drawn["greedy"])
    dense = np.geomspace(1, crowds[-1], 200)
    rates.plot(dense, np.minimum(alone * dense, top), "k:", label="nobody waits")
    rates.set_ylabel("exchanges a second")
    rates.legend()
    waits.plot(crowds, drawn["median_ms"], "o-", label="median")
    waits.plot(crowds, drawn["p99_ms"], "s-", label="99th percentile")
    waits.set_ylabel("round trip when all ask again at once, ms")
    waits.set_yscale("log")
    waits.legend()
    for axes in (rates, waits):
        axes.set_xscale("log", base=2)
        axes.set_xticks(crowds, [str(count) for count in crowds])
        axes.set_xlabel("connected volunteers")
        axes.grid(alpha=0.3)
    figure.suptitle("784-100-10, 318 kB each way, one host")
    figure.savefig(file, dpi=110)


def main() -> None:
    args = arguments(__doc__, options)
    report = Report("scaling", args.quick)
    drawn: Drawn = {}
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        folder = Path(name)
        home = new_home(folder / "home")
        if "two" in args.only:
            two(report, folder, home, quick=args.quick)
        if "growth" in args.only:
            growth(report, folder, home, quick=args.quick)
        if "knee" in args.only:
            drawn = knee(report, folder, home, quick=args.quick)
    report.write(args.json)
    if drawn and args.json not in (None, "-"):
        draw(drawn, Path(args.json).with_suffix(".png"))


if __name__ == "__main__":
    main()
