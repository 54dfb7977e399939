"""When a trainer is ended for what it does rather than for what it says."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest

from crowdgrad.volunteer.vitals import LENT_CPU_S, Allowed, Vitals, judge, lend_time, look

ALLOWED = Allowed(private_bytes=100_000_000, idle_cpu_s=5.0)


def seen(megabytes: float, cpu_s: float) -> Vitals:
    return Vitals(private_bytes=int(megabytes * 1e6), cpu_s=cpu_s)


@pytest.mark.parametrize(
    ("now", "idle_since", "why"),
    [
        (seen(99, 1000), None, None),  # at work, and within its memory
        (seen(101, 0), None, "it grew to 101 MB, and may have 100 MB"),
        (seen(50, 14.9), seen(50, 10), None),
        (seen(50, 15.1), seen(50, 10), "it went on computing though it was asked for nothing"),
    ],
)
def test_what_is_too_much(now: Vitals, idle_since: Vitals | None, why: str | None) -> None:
    assert judge(now, idle_since, ALLOWED) == why


def test_without_a_limit_it_may_have_as_much_as_it_likes() -> None:
    assert judge(seen(1e6, 0), None, Allowed(private_bytes=0)) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_process_is_seen_as_it_is() -> None:
    code = "b = bytearray(b'x' * 50_000_000); print('ready', flush=True)\nwhile True: b[0] = 1"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        first = look(child.pid)
        assert first is not None
        assert 50_000_000 < first.private_bytes < 100_000_000
        later = first
        for _ in range(10_000_000):
            later = look(child.pid) or later
            if later.cpu_s > first.cpu_s:
                break
        child.kill()
    assert later.cpu_s > first.cpu_s
    assert look(child.pid) is None, "it has gone"


def test_a_name_that_looks_like_numbers_changes_nothing() -> None:
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') R 1 1 9 9', 0, 0, 0)\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stdin=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = look(child.pid)
        child.kill()
    assert found is not None
    assert 0 <= found.cpu_s < 60
    assert look(os.getpid()) is not None


def test_computing_time_is_lent_and_runs_out() -> None:
    code = "print('ready', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = look(child.pid)
        assert found is not None
        lend_time(child.pid, found)
        soft, hard = resource.prlimit(child.pid, resource.RLIMIT_CPU)
        assert soft == int(found.cpu_s) + LENT_CPU_S
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (1, hard))  # as if nobody had renewed it
        assert child.wait(60) == -signal.SIGXCPU
