"""Every hostile case there is, and what becomes of each.

`python -m tests.program.hostile.corpus` tries them all in this one process and prints a line of
JSON for each: how it was refused, how long that took and how much memory. Every single refusal runs
under a limit of the address space, so that one that would take more fails instead.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from crowdgrad.domain.program import Program
from crowdgrad.errors import DataMalformed, ProgramRefused
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import check
from tests.program.hostile import (
    artifacts,
    attributes,
    constants,
    dependent,
    elements,
    external,
    memory,
    names,
    operators,
    shapes,
    smuggled,
    topology,
    wire_format,
    work,
)
from tests.program.hostile.draft import Case

FAMILIES = (
    external, smuggled, elements, operators, attributes, shapes, memory, work, dependent, names,
    topology, constants, wire_format, artifacts,
)  # fmt: skip
CASES: tuple[Case, ...] = tuple(case for family in FAMILIES for case in family.cases())
MAX_MEMORY = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    name: str
    error: str
    """The class of the exception; '' where the program passed."""
    reason: str
    seconds: float
    """Of processor time."""


def attempt(case: Case) -> Outcome:
    """Receive one case as a volunteer would, with no more memory than it may take."""
    made = case.make()
    error, reason = "", ""
    began = time.thread_time()
    try:
        with limited(MAX_MEMORY):
            program = made if isinstance(made, Program) else decode(made)
            check(program, case.samples)
    except (ProgramRefused, DataMalformed) as refusal:
        error, reason = type(refusal).__name__, str(refusal)
    except Exception as other:  # whatever it is, the test says so
        error, reason = type(other).__name__, str(other)
    return Outcome(name=case.name, error=error, reason=reason, seconds=time.thread_time() - began)


@contextmanager
def limited(more: int) -> Iterator[None]:
    """Let this process's address space grow by so many bytes and no further."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main() -> None:
    for case in CASES:
        print(json.dumps(asdict(attempt(case))), flush=True)


if __name__ == "__main__":
    main()
