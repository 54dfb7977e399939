"""Every hostile program is refused, for its own reason, in one readable line, within 64 MB.

The cases are in `tests/program/hostile/`. One child process receives them all, each under a limit
of the address space: a crash of it, or memory without end, fails the test instead of the machine.
How long refusing takes is measured by `crowdgrad bench fuzz`, not here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crowdgrad.program.artifact import decode, encode
from crowdgrad.program.check import check
from tests.program.hostile.corpus import CASES, Outcome
from tests.program.hostile.draft import Case, program

MAX_REASON = 400


@pytest.fixture(scope="session")
def outcomes() -> dict[str, Outcome]:
    """What became of every case, by its name; those after a crash are missing."""
    command = [sys.executable, "-m", "tests.program.hostile.corpus"]
    child = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    found = [Outcome(**json.loads(line)) for line in child.stdout.splitlines()]
    return {outcome.name: outcome for outcome in found}


def test_what_they_are_made_from_is_sound():
    """Otherwise every case would be refused for what is wrong with all of them."""
    check(decode(encode(program())), 1 << 16)


def test_there_are_enough_and_each_has_its_own_name_and_description():
    names = Counter(case.name for case in CASES)
    assert len(CASES) >= 900
    assert not [name for name, count in names.items() if count > 1]
    assert all(case.says and case.reason for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_for_its_own_reason(case: Case, outcomes: dict[str, Outcome]):
    outcome = outcomes.get(case.name)
    assert outcome is not None, "the child ended before it, or at it"
    assert outcome.error in ("ProgramRefused", "DataMalformed"), outcome
    assert re.search(case.reason, outcome.reason), outcome.reason
    assert outcome.reason.isprintable()
    assert len(outcome.reason) <= MAX_REASON
    assert not re.search(r"Traceback|Error\b|0x[0-9a-f]{6}|<\w+ object", outcome.reason)
