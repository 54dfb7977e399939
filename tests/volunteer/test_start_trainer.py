"""A trainer's first breath: what it keeps, what it gives up, and in which order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")

STARTED = """
import json, os, signal, sys, types

from crowdgrad.volunteer import start_trainer

def main(arena_fd, *, walled):
    def can(act, *arguments):
        try:
            act(*arguments)
        except OSError:
            return False
        return True
    os.write(1, json.dumps({
        "walled": walled,
        "arena": can(os.fstat, arena_fd),
        "other": can(os.fstat, int(sys.argv[3])),
        "reads": can(open, "/etc/passwd"),
        "interrupted": signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
        "reports home": os.environ.get("ORT_DISABLE_TELEMETRY") != "1",
        "polite": walled or os.nice(0) >= 10,
    }).encode())

fake = types.ModuleType("crowdgrad.volunteer.trainer")
fake.main = main
sys.modules["crowdgrad.volunteer.trainer"] = sys.modules["crowdgrad.volunteer"].trainer = fake
start_trainer.main()
"""


def started(walls: str) -> subprocess.CompletedProcess[str]:
    arena, other = (os.memfd_create(name) for name in ("arena", "other"))
    try:
        return subprocess.run(
            [sys.executable, "-P", "-c", STARTED, str(arena), walls, str(other)],
            pass_fds=(arena, other),
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(arena)
        os.close(other)


def test_with_walls_it_keeps_the_arena_and_nothing_else():
    ended = started("on")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "walled": True,
        "arena": True,
        "other": False,
        "reads": False,
        "interrupted": False,
        "reports home": False,
        "polite": True,
    }


def test_without_walls_it_is_still_polite():
    ended = started("off")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["walled"], said["reads"], said["other"]) == (False, True, True)
    assert (said["interrupted"], said["reports home"], said["polite"]) == (False, False, True)


def test_walls_are_on_or_off():
    ended = started("perhaps")
    assert ended.returncode != 0
    assert "walls are on or off" in ended.stderr
