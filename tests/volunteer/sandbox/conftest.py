from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from crowdgrad.volunteer.sandbox.examination import examine, targets
from crowdgrad.volunteer.sandbox.walls import Held

ROOT = Path(__file__).parents[3]
Ended = subprocess.CompletedProcess[str]
Inside = Callable[[str, str], Ended]


@pytest.fixture
def inside() -> Iterator[Inside]:
    """Run `inside.py` behind some walls."""
    with targets() as to:

        def run(walls: str, name: str) -> Ended:
            script = str(Path(__file__).with_name("inside.py"))
            return subprocess.run(
                [sys.executable, "-P", script, walls, name, json.dumps(asdict(to))],
                cwd=to.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=60,
            )

        yield run


@pytest.fixture(scope="session")
def standing() -> dict[str, Held]:
    """The walls of this machine; tests of one it does not have are skipped."""
    return {one.wall: one for one in examine(()).held}


@pytest.fixture
def need(standing: dict[str, Held]) -> Callable[[str, str], None]:
    """Skip, with the reason, where a wall is not held here, or not by what the test is about."""

    def check(wall: str, by: str = "") -> None:
        held = standing[wall]
        if not held.holds or by not in held.how.partition("; without")[0]:
            pytest.skip(f"{wall} by {by or 'anything'}: {held.how}")

    return check
