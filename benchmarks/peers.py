"""crowdgrad against what people use today, in one run on this machine, each as its makers advise.

<case>_<system>_samples_per_s    trained, by all workers together
<case>_<system>_updates_per_s    how often the parameters changed
<case>_<system>_round_trip_ms    from sending an update to having the parameters that came of it;
                                 only where there is such a moment
<case>_<system>_bytes_per_batch  on the wire for one batch of one worker, each byte counted once
<case>_<system>_memory_MB        of all its processes, pages they share counted once (PSS)
<case>_<system>_start_s          from starting it to the first update
<system>_install_MB              its environment on the disk; `volunteer`: ours without PyTorch
a2_vs_best_per_batch, a4_…       our samples/s over those of the best peer that updates the
                                 parameters at every batch
a2_vs_flower, a4_vs_flower       ours over Flower's, 10 local batches, ours at most as many
b2_vs_best, b4_vs_best           ours over those of the best peer with a network

A case is a work and a number of workers. A: 784-100-10, batches of 100; B: 784-2048-2048-10,
batches of 256; ReLU, cross-entropy, SGD, the same random data for all, in memory. A worker has one
thread; servers may take what they want. The host's own worker is one of ours. What a driver chose,
and why, is in its docstring: `benchmarks/peers/`. Peers that update at every batch: ddp, rpc, ray,
tensorflow. Plain PyTorch has no network: it says what the cores allow.

Rounds go through all systems in turn; a ratio is taken in each round, the figure is its median. A
system that cannot be built or run is in `notes` with its error. `--quick` leaves out one worker.

    python benchmarks/peers.py --build                 make all environments, measure nothing
    python benchmarks/peers.py --only ddp,crowdgrad    these alone
    python benchmarks/peers.py --docs                  write benchmarks/results/peers.json into
                                                       docs/results.md, and draw it
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _peers import SYSTEMS, Failed, Length, System, build, installed_MB, run
from _peers_page import draw, write_page
from _report import Report, arguments

RESULTS = Path(__file__).parent / "results" / "peers.json"
ROUNDS = 3
FULL = Length(warm_s=2.0, seconds=6.0)
QUICK = Length(warm_s=0.3, seconds=1.0, start="fork")

Rates = dict[tuple[str, str], float]
"""(case, system) → samples/s, of one round."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="NAME,…", help="these systems alone")
    parser.add_argument("--rounds", type=int, help=f"through all systems ({ROUNDS}; quick: 1)")
    parser.add_argument("--build", action="store_true", help="make the environments, then end")
    parser.add_argument("--docs", action="store_true", help="make page and plot of what is there")


def main() -> None:
    args = arguments(__doc__, options)
    if args.docs:
        write_page(Path(args.json) if args.json else RESULTS)
        return
    report = Report("peers", args.quick)
    systems = built(chosen(args.only), report)
    if args.build:
        return
    values: dict[str, list[float]] = defaultdict(list)
    for number in range(args.rounds or (1 if args.quick else ROUNDS)):
        rates = one_round(systems, args.quick, report, values, number)
        for figure, value in ratios(rates).items():
            values[figure].append(value)
    for figure in sorted(values):
        report.add(figure, values[figure])
    report.write(args.json)
    if args.json not in (None, "-"):
        draw(report.figures, Path(args.json).with_suffix(".png"))


def chosen(only: str | None) -> list[System]:
    if only is None:
        return list(SYSTEMS)
    names = only.split(",")
    unknown = set(names) - {system.name for system in SYSTEMS}
    if unknown:
        there = ", ".join(system.name for system in SYSTEMS)
        raise SystemExit(f"There is no {', '.join(sorted(unknown))}; there is: {there}.")
    return [system for system in SYSTEMS if system.name in names]


def built(systems: list[System], report: Report) -> list[System]:
    """Those whose environment is there or could be made, and what they weigh."""
    broken: set[str] = set()
    for environment in dict.fromkeys(system.environment for system in systems):
        try:
            build(environment)
        except Failed as error:
            broken.add(environment)
            report.notes[environment] = f"could not be installed: {error}"
            say(f"{environment}: {report.notes[environment]}")
    there = [system for system in systems if system.environment not in broken]
    for system in there:
        if system.name == system.environment or system.name == "plain":
            report.add(f"{system.name}_install_MB", [installed_MB(system.environment)])
        if system.name == "crowdgrad":
            report.add("volunteer_install_MB", [installed_MB("volunteer")])
    return there


def one_round(
    systems: list[System], quick: bool, report: Report, values: dict[str, list[float]], number: int
) -> Rates:
    """Every case of every system once; systems take turns, so that a noisy minute harms all."""
    rates: Rates = {}
    for case in ("A1", "A2", "A4", "B1", "B2", "B4"):
        for system in systems:
            if case not in system.cases.split() or (quick and case.endswith("1")):
                continue
            name = f"{case}_{system.name}"
            try:
                found = run(system, case, QUICK if quick else FULL)
            except Failed as error:
                report.notes[name] = str(error)
                say(f"round {number + 1}, {name}: {error}")
                continue
            for figure, value in found.items():
                values[f"{name}_{figure}"].append(value)
            rates[case, system.name] = found["samples_per_s"]
            say(f"round {number + 1}, {name}: {found['samples_per_s']:,.0f} samples/s")
    return rates


def ratios(rates: Rates) -> dict[str, float]:
    """Ours over theirs, where both were measured."""
    per_batch = [system.name for system in SYSTEMS if system.kind == "per_batch"]
    networked = [*per_batch, *(system.name for system in SYSTEMS if system.kind == "rounds")]
    wanted = {
        "a{}_vs_best_per_batch": ("A", "crowdgrad", per_batch),
        "a{}_vs_flower": ("A", "crowdgrad_10", ["flower"]),
        "b{}_vs_best": ("B", "crowdgrad", networked),
    }
    found = {}
    for name, (work, ours, peers) in wanted.items():
        for workers in (2, 4):
            case = f"{work}{workers}"
            theirs = [rates[case, peer] for peer in peers if (case, peer) in rates]
            if theirs and (case, ours) in rates:
                found[name.format(workers)] = rates[case, ours] / max(theirs)
    return found


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
