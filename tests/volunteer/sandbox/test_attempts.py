"""Each forbidden thing, really done: it works without walls, and does not behind them."""

from __future__ import annotations

import signal
import sys

import pytest

from crowdgrad.volunteer.sandbox.attempts import ATTEMPTS, DONE, REFUSED
from crowdgrad.volunteer.sandbox.examination import attempt, targets
from crowdgrad.volunteer.sandbox.walls import WALLS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")

STOPPED = {REFUSED, -signal.SIGSYS}
MAY_FAIL_ANYWAY = {"ptrace", "peek", "mem", "uring", "namespace", "user", "hurry"}
"""What many systems refuse their users without any walls of ours."""
NOT_YET = {"library", "exists", "limits"}
"""What libraries need while they are loaded: refused only once sealed."""
KILLED = {
    "tcp", "udp", "unix", "listen", "exec", "spawn", "fork", "ptrace", "peek", "signal", "uring",
    "namespace",
}  # fmt: skip
"""What no innocent library does, so that the agent is to see SIGSYS."""


def test_every_wall_that_can_be_attacked_is():
    assert {one.wall for one in ATTEMPTS.values()} == {wall.id for wall in WALLS} - {"ending"}


@pytest.mark.parametrize("name", sorted(set(ATTEMPTS) - MAY_FAIL_ANYWAY))
def test_without_walls_it_works(name, inside):
    ended = inside("none", name)
    assert ended.returncode == DONE, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ATTEMPTS)
def test_sealed_it_is_stopped(name, need):
    need(ATTEMPTS[name].wall)
    with targets() as to:
        outcome = attempt(name, to)
    assert outcome.stopped, outcome.how
    assert (outcome.how == "ended by the kernel") == (name in KILLED)


@pytest.mark.parametrize("name", sorted(set(ATTEMPTS) - NOT_YET))
def test_entered_it_is_stopped_before_it_is_sealed(name, inside, need):
    need("network", "seccomp")
    need("reading", "landlock")
    ended = inside("entered", name)
    assert ended.returncode in STOPPED, ended.stderr


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_entered_libraries_can_still_be_loaded(name, inside, need):
    need("reading", "landlock")
    assert inside("entered", name).returncode == DONE


@pytest.mark.parametrize(
    "name", ["passwd", "key", "list", "here", "folder", "change", "delete", "exec", "device"]
)
def test_landlock_stops_it_alone(name, inside, need):
    need("reading", "landlock")
    ended = inside("without:seccomp,unshare", name)
    assert ended.returncode == REFUSED, ended.stderr


@pytest.mark.parametrize("name", ["tcp", "udp"])
def test_the_network_namespace_stops_it_alone(name, inside, need):
    need("network", "namespaces")
    ended = inside("without:seccomp,landlock_create_ruleset", name)
    assert ended.returncode == REFUSED, ended.stderr


@pytest.mark.parametrize(
    "name",
    ["tcp", "udp", "unix", "passwd", "list", "here", "delete", "exec", "ptrace", "mem", "signal"],
)
def test_seccomp_stops_it_alone(name, inside, need):
    need("network", "seccomp")
    ended = inside("without:landlock_create_ruleset,unshare,capset", name)
    assert ended.returncode in STOPPED, ended.stderr
