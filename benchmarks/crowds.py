"""What 4, 16 and 64 volunteers do to each recipe, at a fixed number of samples.

<recipe>_<volunteers>_accuracy   on MNIST's test split after so many epochs, at the end
<recipe>_<volunteers>_diverged   share of the seeds whose test loss ended above nine tenths of that
                                 before training, or whose numbers were not finite on the way

784-100-10, every recipe with its own defaults, volunteers in virtual time with speeds 1:4. More
volunteers at the same number of samples means fewer versions and older gradients: what is lost here
must be won back by their speed. The default recipe must not diverge at 64.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _crowd import Crowd, Found, mnist, paced
from _report import Report, arguments

from crowdgrad.recipes import RECIPES

VOLUNTEERS = (4, 16, 64)
SLOWEST = 4.0


def main() -> None:
    args = arguments(__doc__)
    seeds = [0] if args.quick else [0, 1, 2]
    epochs = 2 if args.quick else 8
    report = Report("crowds", args.quick, seeds=seeds)
    medians: dict[str, list[float]] = {}
    prepared = {seed: mnist(seed, RECIPES["crowd"]()) for seed in seeds}
    for name, kind in RECIPES.items():
        for volunteers in VOLUNTEERS:
            found: list[Found] = []
            for seed in seeds:
                crowd = Crowd(
                    prepared[seed], kind(), batch_s=paced(SLOWEST, volunteers), epochs=epochs,
                    seed=seed,
                )  # fmt: skip
                found.append(asyncio.run(crowd.run()))
            accuracies = [one.accuracy for one in found]
            report.add(f"{name}_{volunteers}_accuracy", accuracies)
            diverged = statistics.mean(one.diverged for one in found)
            report.add(f"{name}_{volunteers}_diverged", [diverged])
            medians.setdefault(name, []).append(statistics.median(accuracies))
    report.write(args.json)
    if args.json not in (None, "-"):
        draw(medians, epochs, Path(args.json).with_suffix(".png"))


def draw(medians: dict[str, list[float]], epochs: int, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), constrained_layout=True)
    for name, accuracies in medians.items():
        bold = 3.0 if name == "crowd" else 1.5
        axes.plot(VOLUNTEERS, [100 * a for a in accuracies], marker="o", lw=bold, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(VOLUNTEERS, [str(n) for n in VOLUNTEERS])
    axes.set_xlabel("volunteers (simulated, speeds 1:4)")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"MNIST after {epochs} epochs, whoever computed them (medians)")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
