"""What training through crowdgrad costs against a plain PyTorch loop on the same machine.

784-2048-2048-10 (23 MB of parameters), batches of 256, MNIST. Ours: `crowdgrad host` and one
`crowdgrad work`, real processes over loopback, one batch a unit, so that every batch's gradient is
sent, checked and applied and new parameters come back. The host's own worker is stopped before it
joins (`_quiet_host.py`): it would take part of what is measured. Plain: one process, eager mode,
the same rule from `torch.optim`, the records in memory (`_plain.py`). One thread computes in each.
Windows alternate; while one side computes, the other stands still (ours is paused by its owner).
Samples a second are what the host accepted, by its own clock.

vs_plain_pytorch           samples a second, ours by plain, with SGD and `overlap = 1`: the next
                           unit is computed while the last one's numbers travel
vs_plain_pytorch_lockstep  the same with `overlap = 0`
vs_plain_pytorch_RULE      the same with `overlap = 1` and another rule at the host: adagrad, adam
                           (plain with the same), dc_asgd (plain with SGD)
ours_NAME_per_s            samples a second of ours; NAME is sgd, lockstep or a RULE
plain_NAME_per_s           of the plain loop beside it
host_cpu_NAME              cores that the host takes meanwhile
host_NAME_MB               memory of the host in RAM
agent_MB, trainer_MB       of the volunteer's two processes; the memory they share is in both
plain_MB                   of the plain loop
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _processes import new_home
from _quiet_host import LAYERS, Crew, Did, Recipe, crew, job_file
from _report import Report, arguments
from _windows import Player, Window, player, resident_mb

HERE = Path(__file__).parent
SIZE = "23MB"
BATCH = 256
COMMON: Recipe = {"name": "async_sgd", "lr": 0.01, "batch_size": BATCH, "batches_per_unit": 1}
RECIPES: dict[str, Recipe] = {
    "sgd": COMMON,
    "lockstep": {**COMMON, "overlap": 0},
    "adagrad": {**COMMON, "rule": "adagrad"},
    "adam": {**COMMON, "rule": "adam", "lr": 0.001},
    "dc_asgd": {**COMMON, "name": "dc_asgd"},
}
PLAIN = {"lockstep": "sgd", "dc_asgd": "sgd"}
"""The plain loop's rule, where it is not the same."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=list(RECIPES),
                        default=list(RECIPES), help=", ".join(RECIPES))  # fmt: skip
    parser.add_argument("--windows", type=int, help="of each")
    parser.add_argument("--seconds", type=float, help="that a window takes")


@contextmanager
def side_by_side(name: str, folder: Path, home: Path) -> Generator[tuple[Crew, Player]]:
    """Both sides, ready; they start at the same time."""
    place, rule = folder / name, PLAIN.get(name, name)
    widths = [str(width) for width in LAYERS[SIZE]]
    command = [sys.executable, str(HERE / "_plain.py"), rule, str(BATCH), *widths]
    with ExitStack() as stack, ThreadPoolExecutor() as starting:
        plain = starting.submit(stack.enter_context, player(command, folder / "plain.log"))
        job = job_file(place, SIZE, RECIPES[name])
        ours = starting.submit(stack.enter_context, crew(job, place, home, 1))
        yield ours.result(), plain.result()


def in_turns(ours: Crew, plain: Player, windows: int, seconds: float) -> list[tuple[Did, Window]]:
    plain.window(0.5)
    return [(ours.window(seconds), plain.window(seconds)) for _ in range(windows)]


def tell(report: Report, name: str, pairs: list[tuple[Did, Window]]) -> None:
    tail = {"sgd": "", "lockstep": "_lockstep"}.get(name, f"_{name}")
    ours = [did.samples_per_s for did, _ in pairs]
    plain = [BATCH * window.per_s for _, window in pairs]
    report.add(f"vs_plain_pytorch{tail}", [o / p for o, p in zip(ours, plain, strict=True)])
    report.add(f"ours_{name}_per_s", ours)
    report.add(f"plain_{name}_per_s", plain)
    report.add(f"host_cpu_{name}", [did.host_cpu_s / did.seconds for did, _ in pairs])


def main() -> None:
    args = arguments(__doc__, options)
    windows = args.windows or (3 if args.quick else 9)
    seconds = args.seconds or (2.0 if args.quick else 8.0)
    report = Report("overhead", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as folder:
        home = new_home(Path(folder) / "home")
        for name in args.only:
            with side_by_side(name, Path(folder), home) as (ours, plain):
                tell(report, name, in_turns(ours, plain, windows, seconds))
                report.add(f"host_{name}_MB", [resident_mb(ours.host.pid)])
                if name == args.only[0]:
                    agent, trainer = ours.memory_mb()
                    report.add("agent_MB", [agent])
                    report.add("trainer_MB", [trainer])
                    report.add("plain_MB", [resident_mb(plain.pid)])
    report.write(args.json)


if __name__ == "__main__":
    main()
