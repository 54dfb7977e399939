"""How the checker bears up: a million mutants of sound programs, and the corpus of hostile ones.

mutants_per_s         checked, all processes together
passed_share          of the mutants that are not what they were made from
refusals_known        different reasons, numbers and names left out
slowest_mutant_ms     the longest a check took, in processor time, and what was said then
slowest_by_size       that, by the time a check of the sound program takes
most_memory_MB        the most that a process grew while it checked, over two thousand mutants
exceptions            of any kind but our refusals: must be 0
touched               files, sockets, processes or modules, as Python's audit sees them: must be 0
hostile_cases         in tests/program/hostile, each received as a volunteer would
hostile_slowest_ms    the longest that refusing one of them took, in processor time; then the median
hostile_passed        must be 0

Mutants are functions of their seed, so what is found can be found again. Programs: one written by
hand, and six captured here, from a linear model to a transformer.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from _report import Report, arguments

from crowdgrad.domain.program import Program
from crowdgrad.errors import DataMalformed, ProgramRefused
from crowdgrad.program.check import check
from tests.program.hostile.corpus import CASES, attempt
from tests.program.hostile.draft import program as handmade
from tests.program.mutants import mutants_of
from tests.program.watching import forget_peak, peak_bytes, watched

SAMPLES = 64
PROCESSES = 2
BLOCK = 2_000
"""Mutants between two lines of progress."""


@dataclass(slots=True)
class Tally:
    mutants: int = 0
    unchanged: int = 0
    passed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    slowest: tuple[float, float, str] = (0.0, 0.0, "")
    """Seconds, by those of the sound program, and the verdict."""
    grown: int = 0

    def add(self, other: Tally) -> None:
        self.mutants += other.mutants
        self.unchanged += other.unchanged
        self.passed += other.passed
        self.reasons += other.reasons
        self.strange += other.strange
        self.touched += other.touched
        self.slowest = max(self.slowest, other.slowest)
        self.grown = max(self.grown, other.grown)


def sound_programs() -> list[Program]:
    """The one by hand, and what our capture makes of several models; small, since each is seen
    many thousand times."""
    import torch
    from torch import nn

    from crowdgrad.capture.capture import capture
    from crowdgrad.capture.task import Task

    torch.manual_seed(0)
    table, image, label = torch.randn(6, 8), torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2] * 2)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    models: list[tuple[nn.Module, torch.Tensor]] = [
        (nn.Linear(8, 3), table),
        (nn.Sequential(nn.Linear(8, 9), nn.Tanh(), nn.Dropout(0.2), nn.Linear(9, 3)), table),
        (nn.Sequential(nn.Linear(8, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3)), table),
        (
            nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
            ),
            image,
        ),
        (
            nn.Sequential(
                nn.Unflatten(1, (2, 4)), nn.LayerNorm(4), nn.Flatten(), nn.GELU(), nn.Linear(8, 3)
            ),
            table,
        ),
        (nn.Sequential(nn.Unflatten(1, (1, 8)), layer, nn.Flatten(), nn.Linear(8, 3)), table),
    ]
    loss = nn.functional.cross_entropy
    captured = [
        capture(Task(model, loss, inputs=(x,), targets=(label,))).program for model, x in models
    ]
    return [handmade(), *captured]


def check_block(programs: list[Program], count: int, seed: int) -> Tally:
    """One block of mutants, in this process."""
    tally = Tally()
    usual = {id(program): _seconds(program)[0] for program in programs}
    mutants = list(mutants_of(programs, count, seed))
    began = forget_peak()
    with watched() as events:
        for index, mutant in enumerate(mutants):
            base = programs[index % len(programs)]
            _one(tally, mutant, base, usual[id(base)])
    tally.grown = peak_bytes() - began
    tally.touched = list(events)
    return tally


def _one(tally: Tally, mutant: Program, base: Program, usual: float) -> None:
    tally.mutants += 1
    if mutant == base:
        tally.unchanged += 1
        return
    seconds, said = _seconds(mutant)
    if said.startswith("!"):
        tally.strange.append(said)
    elif said:
        tally.reasons[re.sub(r"'[^']*'|\(.*?\)|-?\d+", "_", said)[:80]] += 1
    else:
        tally.passed += 1
    tally.slowest = max(tally.slowest, (seconds, seconds / usual, said or "it passed"))


def _seconds(program: Program) -> tuple[float, str]:
    """A check's processor time, and what it says; after a `!` what it should never say."""
    said = ""
    began = time.thread_time()
    try:
        check(program, SAMPLES)
    except (ProgramRefused, DataMalformed) as refusal:
        said = str(refusal)
    except Exception as error:  # this is what we look for
        said = f"! {type(error).__name__}: {error}"
    return time.thread_time() - began, said


def _job(arguments: tuple[list[Program], int, int]) -> Tally:
    return check_block(*arguments)


def fuzz(programs: list[Program], total: int) -> Iterator[Tally]:
    """The tallies of all blocks, as they come."""
    jobs = ((programs, BLOCK, seed) for seed in range(total // BLOCK))
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        yield from pool.imap_unordered(_job, jobs)


def measure_mutants(report: Report, total: int) -> None:
    programs = sound_programs()
    tally, speeds = Tally(), []
    began = last = time.perf_counter()
    for block in fuzz(programs, total):
        tally.add(block)
        now = time.perf_counter()
        speeds.append(tally.mutants / (now - began))
        if now - last > 10 or tally.mutants == total:
            last = now
            print(f"{tally.mutants:,} of {total:,}: {tally.passed:,} passed, "
                  f"{len(tally.reasons)} reasons, {len(tally.strange)} exceptions",
                  file=sys.stderr)  # fmt: skip
    seconds, times, said = tally.slowest
    report.add("mutants", [tally.mutants])
    report.add("mutants_per_s", speeds[len(speeds) // 2 :])
    report.add("passed_share", [tally.passed / max(1, tally.mutants - tally.unchanged)])
    report.add("refusals_known", [len(tally.reasons)])
    report.add("slowest_mutant_ms", [1e3 * seconds])
    report.add("slowest_by_size", [times])
    report.add("most_memory_MB", [tally.grown / 1e6])
    report.add("exceptions", [len(tally.strange)])
    report.add("touched", [len(tally.touched)])
    print(f"the slowest was told: {said[:200]}", file=sys.stderr)
    for reason, count in tally.reasons.most_common(15):
        print(f"{count:>9,}  {reason}", file=sys.stderr)
    for line in (*tally.strange[:5], *tally.touched[:5]):
        print(line[:300], file=sys.stderr)


def measure_hostile(report: Report, rounds: int) -> None:
    """Each case's best of some rounds: the machine's own hiccups are not the checker's."""
    best = [min(attempt(case).seconds for _ in range(rounds)) for case in CASES]
    outcomes = [attempt(case) for case in CASES]
    report.add("hostile_cases", [len(CASES)])
    report.add("hostile_slowest_ms", [1e3 * max(best)])
    report.add("hostile_median_ms", [1e3 * statistics.median(best)])
    report.add("hostile_passed", [sum(not outcome.error for outcome in outcomes)])
    known = ("ProgramRefused", "DataMalformed", "")
    report.add("hostile_exceptions", [sum(o.error not in known for o in outcomes)])
    slowest = sorted(zip(best, CASES, strict=True), key=lambda pair: -pair[0])[:5]
    for seconds, case in slowest:
        print(f"{1e3 * seconds:>9.1f} ms  {case.name}: {case.says}", file=sys.stderr)


def main() -> None:
    args = arguments(__doc__)
    os.environ["OMP_NUM_THREADS"] = "1"
    report = Report("fuzz", args.quick)
    total = 20_000 if args.quick else 1_000_000
    report.seeds = [0, total // BLOCK - 1]
    measure_hostile(report, 1 if args.quick else 3)
    measure_mutants(report, total)
    report.write(args.json)


if __name__ == "__main__":
    main()
