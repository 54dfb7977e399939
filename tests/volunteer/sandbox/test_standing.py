"""What the kernel has is used. Other tests here are skipped where a wall does not hold; so that a
fault of ours cannot skip them all, this one asks the kernel itself, by other ways than the walls'.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from crowdgrad.volunteer.sandbox.walls import WALLS, Held

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
LANDLOCK_CREATE_RULESET, VERSION = 444, 1
OWN_NETWORK = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000 | 0x40000000) != 0)"
)


def test_where_the_kernel_filters_calls_every_essential_wall_holds(
    standing: dict[str, Held],
) -> None:
    if "Seccomp:" not in Path("/proc/self/status").read_text():
        pytest.skip("this kernel has no seccomp")
    lacking = [wall.id for wall in WALLS if wall.essential and not standing[wall.id].holds]
    assert lacking == []
    assert "seccomp" in standing["network"].how
    assert "seal" in standing["reading"].how


def test_where_the_kernel_has_landlock_it_stands(standing: dict[str, Held]) -> None:
    if ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION) < 1:
        pytest.skip("this kernel has no Landlock")
    for wall in ("network", "reading", "writing", "programs", "others"):
        assert "landlock" in standing[wall].how, wall


def test_where_a_process_may_have_a_network_of_its_own_it_has(standing: dict[str, Held]) -> None:
    if subprocess.run([sys.executable, "-c", OWN_NETWORK], check=False).returncode != 0:
        pytest.skip("user namespaces are switched off here")
    assert "namespaces (user, network" in standing["network"].how


def test_limits_need_nothing_special(standing: dict[str, Held]) -> None:
    for wall in ("memory", "priority", "traces", "ending", "rights"):
        assert standing[wall].holds, standing[wall].how
