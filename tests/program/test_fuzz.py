"""Ten thousand mutants of sound programs: each passes or is refused, and nothing else happens.

`crowdgrad bench fuzz` does the same with a million. What is looked for: any exception but ours, any
file, socket, process or module that the checker touches, memory that grows with what a file says.
Mutants that pass are real programs, so the runtime must be able to run them: in a child process,
because a crash there would be its own.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.domain.program import Program
from crowdgrad.errors import DataMalformed, ProgramRefused
from crowdgrad.program.artifact import decode, encode
from crowdgrad.program.check import check
from tests.program.hostile.draft import program as handmade
from tests.program.mutants import Mutator, mutants_of
from tests.program.watching import watched

MUTANTS = 10_000
SAMPLES = 64
MAX_MEMORY = 64 << 20
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def bases(captured) -> list[Program]:
    """Mostly the small one: what a mutant must get past is the same, and it is the faster."""
    return [handmade(), handmade(), handmade(), captured.program]


def verdict(program: Program) -> str:
    """'' where it passes; anything but our own refusals goes through."""
    try:
        check(program, SAMPLES)
    except (ProgramRefused, DataMalformed) as refusal:
        return str(refusal)
    return ""


def test_every_mutant_passes_or_is_refused_and_nothing_is_touched(bases):
    check(bases[-1], SAMPLES)  # what is imported at first use is imported here
    mutants = list(mutants_of(bases, MUTANTS, seed=1))
    with watched() as events:
        verdicts = [verdict(mutant) for mutant in mutants]
    assert events == []
    refused = [reason for reason in verdicts if reason]
    assert 0.5 < len(refused) / MUTANTS < 1.0, "a fuzzer that finds only one answer tests little"
    assert all(reason.isprintable() and len(reason) <= 400 for reason in refused)
    assert len({reason[:40] for reason in refused}) > 40, "they fail at many different places"


def test_artifacts_with_altered_bytes_are_refused_or_decode(captured):
    rng, mutator = random.Random(2), Mutator(())
    whole = encode(captured.program)
    with watched() as events:
        for _ in range(1000):
            try:
                decode(mutator.scrambled(whole, rng))
            except (ProgramRefused, DataMalformed):
                continue
    assert events == []


def test_no_mutant_takes_much_memory(bases):
    mutants = list(mutants_of(bases, 300, seed=3))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for mutant in mutants:
            verdict(mutant)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < MAX_MEMORY


def passing(bases: list[Program], count: int) -> Iterator[Program]:
    """Mutants that pass and are not what they were made from."""
    for mutant in mutants_of(bases, 100 * count, seed=4):
        if mutant not in bases and not verdict(mutant):
            yield mutant
            count -= 1
        if count == 0:
            return


@pytest.mark.slow
def test_what_passes_runs_in_the_runtime_without_a_crash(bases, tmp_path):
    files = []
    for index, mutant in enumerate(passing(bases, 100)):
        files.append(tmp_path / f"{index}.cgprog")
        files[-1].write_bytes(encode(mutant))
    assert len(files) == 100
    command = [sys.executable, "-m", "tests.program.run_mutants", *map(str, files)]
    child = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.count("ran") + child.stdout.count("declined") == 100, child.stdout
    assert child.stdout.count("ran") > 50, child.stdout


def test_a_mutant_is_not_the_program_it_came_from(bases):
    same = sum(mutant in bases for mutant in mutants_of(bases, 500, seed=5))
    assert same < 100
    with_change = replace(bases[0], gradient=bases[0].gradient + b"\0")
    assert verdict(with_change)
