"""DC-ASGD against plain asynchronous and sequential SGD when volunteers differ 1:20 in speed.

<method>_lr<η>_error   test error in % (784-100-10, MNIST, parameters best on the validation split)
<method>_staleness     mean staleness of the accepted updates
<method>_slowest       mean staleness of those of the slowest volunteer

Real processes over real sockets: the host's own worker and four volunteers whose trainers pause, so
that a batch takes about 5, 5, 10, 25 and 100 ms. Sequential is the host's own worker alone in
lock-step. Each method at each learning rate with the same seeds (first weights and orders); every
seed's error is in `spread` and in the plot.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _crowd import mnist
from _report import Report, arguments

from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared, new_id
from crowdgrad.host.options import Options
from crowdgrad.host.serve import Run
from crowdgrad.host.telling.status import Status
from crowdgrad.process import run_async
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe, hyperparameters
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.settings import Settings

PACES_MS = (4.0, 4.0, 9.0, 24.0, 99.0)
"""Worker 0 first; a batch itself takes about a millisecond."""
METHODS = ("sequential", "asgd", "dc_constant", "dc_adaptive")


def recipe_of(method: str, lr: float) -> Recipe:
    if method == "sequential":
        return AsyncSGD(lr=lr, overlap=0)
    if method == "asgd":
        return AsyncSGD(lr=lr)
    return DCASGD(lr=lr, mode="constant" if method == "dc_constant" else "adaptive")


async def train(prepared: Prepared, recipe: Recipe, epochs: int, *, alone: bool) -> Status:
    job = replace(
        prepared.job,
        id=new_id("delay"),
        recipe=recipe.name,
        hyperparameters=hyperparameters(recipe),
        local=recipe.local(),
        stop=StoppingRule(epochs=epochs),
    )
    paces = (0.0,) if alone else PACES_MS
    helpers = len(paces) - 1
    ready = replace(
        prepared,
        job=job,
        recipe=recipe,
        minimum=helpers,
        start="any" if alone else "all",
        initial=prepared.initial.copy(),  # it becomes the run's own
    )
    with tempfile.TemporaryDirectory() as folder:
        options = Options(runs=Path(folder), helpers=helpers, paces_ms=paces)
        run = Run(ready, options, Settings(home=Path(folder) / "home"))
        return (await run.to_the_end(asyncio.Event())).status


def main() -> None:
    args = arguments(__doc__)
    seeds = [0, 1] if args.quick else [0, 1, 2, 3, 4]
    rates = (0.15,) if args.quick else (0.05, 0.1, 0.15)
    epochs = 2 if args.quick else 5
    report = Report("delay", args.quick, seeds=seeds)
    prepared = {seed: mnist(seed, AsyncSGD()) for seed in seeds}
    errors: dict[tuple[str, float], list[float]] = {}
    for method in METHODS:
        staleness: list[float] = []
        slowest: list[float] = []
        for lr in rates:
            found = errors[method, lr] = []
            for seed in seeds:
                recipe = recipe_of(method, lr)
                alone = method == "sequential"
                status = run_async(train(prepared[seed], recipe, epochs, alone=alone))
                assert status.test is not None, status.reason
                found.append(100 * (1 - status.test.metrics["accuracy"]))
                staleness.append(status.mean_staleness)
                slowest.append(max(member.mean_staleness for member in status.members))
                print(f"{method} lr {lr} seed {seed}: {found[-1]:.2f} %, "
                      f"staleness {staleness[-1]:.1f}, slowest {slowest[-1]:.1f}, "
                      f"{status.elapsed_s:.0f} s",
                      file=sys.stderr)  # fmt: skip
            report.add(f"{method}_lr{lr}_error", found)
            report.spread[f"{method}_lr{lr}_error"] = [round(error, 4) for error in found]
        report.add(f"{method}_staleness", staleness)
        report.add(f"{method}_slowest", slowest)
    report.write(args.json)
    if args.json not in (None, "-"):
        draw(errors, rates, epochs, Path(args.json).with_suffix(".png"))


def draw(
    errors: dict[tuple[str, float], list[float]], rates: tuple[float, ...], epochs: int, file: Path
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        1, len(rates), figsize=(4.4 * len(rates), 4.2), sharey=True, squeeze=False,
        constrained_layout=True,
    )  # fmt: skip
    for axes, lr in zip(panels[0], rates, strict=True):
        for place, method in enumerate(METHODS):
            found = errors[method, lr]
            axes.scatter([place] * len(found), found, alpha=0.6, zorder=3)
            axes.hlines(statistics.median(found), place - 0.3, place + 0.3, color="black", lw=2)
        axes.set_xticks(range(len(METHODS)), [name.replace("_", "\n") for name in METHODS])
        axes.set_title(f"lr {lr}")
        axes.grid(axis="y", alpha=0.3)
    panels[0][0].set_ylabel(f"test error after {epochs} epochs, % (dots: seeds, bar: median)")
    figure.suptitle("MNIST, five real workers, speeds 1:20")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
