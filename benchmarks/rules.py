"""How fast the update rules go through vectors of 23 MB, against numpy's own addition.

NAME_GBps    bytes that the rule must move at least, by the time of a step: parameters read and
             written, update read, each vector of its memory that it uses read and written, the
             parameters the update came from read
NAME_vs_add  that, by add_GBps measured in turn with it
add_GBps     np.add(a, b, out=a): two vectors read, one written

Numpy makes a pass for every operation, so a rule of ten operations cannot be as fast as one
addition, which is a single pass; in blocks the further passes find their numbers in the cache.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _report import Report, arguments

from crowdgrad.numerics.rules import RULES, rule_from
from crowdgrad.numerics.rules.base import Step, begin
from crowdgrad.numerics.vectors import Vector

SIZE = 5_750_000
STEPS = 5
"""In a window."""


def a_vector(seed: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(SIZE, dtype=np.float32)


def seconds(step: Callable[[], None], update_D: Vector, gradient_D: Vector) -> float:
    """Of one step, in a window. A rule spoils the update, so each step gets a new one, untimed."""
    total = 0.0
    for _ in range(STEPS):
        np.copyto(update_D, gradient_D)
        began = time.perf_counter()
        step()
        total += time.perf_counter() - began
    return total / STEPS


def measure(report: Report, name: str, windows: int) -> list[float]:
    """Adds the rule's figures; returns the additions' GB/s."""
    rule = rule_from(name, {})
    parameters_D, update_D, gradient_D = a_vector(0), a_vector(1), a_vector(2)
    sum_D, addend_D = a_vector(3), a_vector(4)
    memory = begin(rule, SIZE)
    step = Step(rate=1e-3, base_D=a_vector(5) if rule.needs_base else None)

    def rule_step() -> None:
        rule.step(parameters_D, update_D, memory, step)

    def addition() -> None:
        np.add(sum_D, addend_D, out=sum_D)

    rule_step()  # the memory's pages exist from here on
    used = sum(bool(vector.any()) for vector in memory.vectors.values())
    moved = 4 * SIZE * (3 + 2 * used + rule.needs_base) / 1e9
    speeds, adds = [], []
    for _ in range(windows):
        adds.append(4 * SIZE * 3 / 1e9 / seconds(addition, addend_D, gradient_D))
        speeds.append(moved / seconds(rule_step, update_D, gradient_D))
    report.add(f"{name}_GBps", speeds)
    report.add(f"{name}_vs_add", [a / b for a, b in zip(speeds, adds, strict=True)])
    return adds


def main() -> None:
    args = arguments(__doc__)
    report = Report("rules", args.quick)
    report.seeds = list(range(6))
    adds: list[float] = []
    for name in RULES:
        adds += measure(report, name, 9 if args.quick else 25)
    report.add("add_GBps", adds)
    report.write(args.json)


if __name__ == "__main__":
    main()
