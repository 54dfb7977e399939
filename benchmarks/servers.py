"""When several parameter servers pay, and what copies that are averaged cost in accuracy.

Real processes throughout: `crowdgrad host` (its own worker stopped), parameter servers, and four
scripted volunteers that answer every unit at once, in lock-step, with small random numbers (in two
processes, `_scripted.py`; they use the real volunteer's way to hosts and servers). The parameters
are those of 784-2048-2048-10, 23 MB; each exchange carries them both ways. “One” is a host that
keeps them itself. With *parts* every server has its share of the words and each volunteer talks to
all; with *copies* each has everything, each volunteer talks to one, and the copies are averaged
every 100 updates. Windows of both alternate; a ratio is accepted updates a second of two
neighbouring windows, its figure the median. Checkpoints are written as ever: with servers they
travel, too.

On loopback everything shares this machine's cores and memory. At links each machine is in a network
namespace of its own behind 200 Mbit/s each way (`tbf`), the host too; the volunteers' link is not
shaped. There the servers are started by hand, as on other machines. With `--quick` two volunteers.

parts_2_vs_1_loopback     two servers on this machine, by one host
copies_2_vs_1_loopback    the same with two copies
parts_2_vs_1_link         two servers, each behind its own link, by one host behind such a link
parts_4_vs_1_link         the same with four
copies_2_vs_1_link        the same with two copies
one_link_per_s            exchanges a second of one host behind its link. It carries 1.07 each way;
                          volunteers in lock-step that push together pull together, which is half

Accuracy: real MNIST, 784-100-10, asynchronous SGD, one batch of 100 a unit, four volunteers of the
same speed in virtual time (`_crowd.py`, `_copies.py`: real gradients, host and servers, no
waiting), two copies averaged every K updates, against one host, after equal samples; test accuracy
of the parameters the run ends with (of copies: their mean), in percentage points, a value a seed.

copies_gap_points_K       one host's accuracy less that with copies; negative: copies did better
copies_gap_points_100_twice_the_rate
                          the same where copies learn at twice the rate: an update moves only one of
                          two copies, and so the mean by half
one_accuracy              of one host, in percent
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _copies import SECRET, ServedCrowd
from _crowd import Crowd, mnist
from _fleets import Fleet, Layout, at_links, on_loopback
from _links import Links
from _processes import new_home
from _report import Report, arguments

from crowdgrad.host.job import Prepared
from crowdgrad.host.servers.hiring import Wanted
from crowdgrad.recipes.async_sgd import AsyncSGD

MBIT = 200.0
VOLUNTEERS, FEW = 4, 2
ONE = Layout(name="one")
LOOPBACK = (
    Layout(name="parts_2", servers=2),
    Layout(name="copies_2", servers=2, average_every=100),
)
LINK = (
    Layout(name="parts_2", servers=2),
    Layout(name="parts_4", servers=4),
    Layout(name="copies_2", servers=2, average_every=100),
)
EVERY = (10, 100, 1000)
RECIPE = AsyncSGD(lr=0.05, batch_size=100, batches_per_unit=1)
TWICE = replace(RECIPE, lr=2 * RECIPE.lr)
BATCH_S = 0.02
Start = Callable[[Layout, Path], AbstractContextManager[Fleet]]


class Bench:
    def __init__(self, report: Report, folder: Path, *, quick: bool) -> None:
        self._report = report
        self._folder = folder
        self._home = new_home(folder / "home")
        self._quick = quick

    def speed(self) -> None:
        loopback: Start = lambda layout, folder: on_loopback(  # noqa: E731
            layout, folder, self._home, VOLUNTEERS
        )
        how = (3, 1.2) if self._quick else (9, 3.0)
        self._against_one("loopback", LOOPBACK, loopback, *how)
        with Links() as links:
            link: Start = lambda layout, folder: at_links(  # noqa: E731
                layout, folder, self._home, FEW if self._quick else VOLUNTEERS, links, MBIT
            )
            how = (1, 5.0) if self._quick else (5, 20.0)
            self._report.add("one_link_per_s", self._against_one("link", LINK, link, *how))

    def _against_one(
        self, where: str, layouts: Sequence[Layout], start: Start, windows: int, seconds: float
    ) -> list[float]:
        """Every layout against one host that stays; what that one reached."""
        reached: list[float] = []
        with start(ONE, self._folder / f"{where}-one") as one:
            one.window(seconds / 2)
            for layout in layouts:
                with start(layout, self._folder / f"{where}-{layout.name}") as fleet:
                    fleet.window(seconds / 2)
                    pairs = [(one.window(seconds), fleet.window(seconds)) for _ in range(windows)]
                self._report.add(f"{layout.name}_vs_1_{where}", [b / a for a, b in pairs])
                reached += [a for a, _ in pairs]
        return reached

    def accuracy(self) -> None:
        seeds = (0,) if self._quick else tuple(range(8))
        epochs = 2 if self._quick else 10
        self._report.seeds = list(seeds)
        jobs = [mnist(seed, RECIPE) for seed in seeds]

        def all_seeds(recipe: AsyncSGD, every: int = 0) -> list[float]:
            return [
                asyncio.run(learned(job, recipe, seed, epochs, every))
                for seed, job in zip(seeds, jobs, strict=True)
            ]

        alone = all_seeds(RECIPE)
        self._report.add("one_accuracy", alone)
        cases = [(f"copies_gap_points_{every}", RECIPE, every) for every in EVERY]
        cases.append(("copies_gap_points_100_twice_the_rate", TWICE, 100))
        for figure, recipe, every in cases:
            copies = all_seeds(recipe, every)
            self._report.add(figure, [a - b for a, b in zip(alone, copies, strict=True)])


async def learned(job: Prepared, recipe: AsyncSGD, seed: int, epochs: int, every: int = 0) -> float:
    """Test accuracy in percent, with two copies averaged so often, or with one host."""
    how = {"batch_s": [BATCH_S] * 4, "epochs": epochs, "seed": seed}
    if every:
        wanted = Wanted(
            elsewhere=("copy:1", "copy:2"), hold="copies", average_every=every, secret=SECRET
        )
        crowd: Crowd = ServedCrowd(job, recipe, wanted, **how)  # type: ignore[arg-type]
    else:
        crowd = Crowd(job, recipe, **how)  # type: ignore[arg-type]
    return 100 * (await crowd.run()).accuracy


def main() -> None:
    args = arguments(__doc__)
    report = Report("servers", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        bench = Bench(report, Path(name), quick=args.quick)
        bench.speed()
        bench.accuracy()
    report.write(args.json)


if __name__ == "__main__":
    main()
