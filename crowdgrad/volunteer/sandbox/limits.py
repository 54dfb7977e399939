"""How much of the machine the trainer may take: memory, files, and its place in every queue.

The memory limit counts private writable memory (RLIMIT_DATA, since Linux 4.7), so what agent and
trainer share, which the agent laid out itself, is not in it. Address space is bounded too, but
widely: it only keeps page tables small.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from crowdgrad.volunteer.sandbox.kernel import Kernel, step
from crowdgrad.volunteer.sandbox.walls import Step

if sys.platform != "win32":
    import resource

LOW_PRIORITY = 10
OPEN_FILES = 64
TASKS = 1024
STACK_BYTES = 8 << 20
ADDRESSES_BYTES = 64 << 30
_IOPRIO_WHO_PROCESS, _IOPRIO_IDLE = 1, 3 << 13
_DATA_FIELD: Final = 5
_COUNTED_PER_NAMESPACE = (5, 14)
"""Since this Linux, threads are counted for each user namespace."""

_statm = -1  # /proc/self/statm, opened while that can be done


def step_back(kernel: Kernel) -> tuple[Step, ...]:
    """Let everything else on this machine go first."""
    return (
        step("low priority", _be_nice),
        step("idle disk", lambda: _idle_disk(kernel)),
        step("first to go", _first_to_go),
    )


def bound() -> Step:
    """No core, no file written, few files open, no locked memory, no message queues."""
    return step("limits", _bound)


def bound_tasks() -> Step:
    """Few threads. Only in a user namespace of its own: elsewhere all of a user's are counted."""
    return step("few threads", _bound_tasks)


def limit_memory(bytes: int) -> Step:
    """All private memory this process may have from now on, what it has already included."""
    return step("memory limit", lambda: _limit_memory(bytes))


def memory_in_use() -> int:
    """What the limit counts, now. 0 where the system does not say."""
    remember_memory()
    if _statm < 0:
        return 0
    fields = os.pread(_statm, 256, 0).split()
    return int(fields[_DATA_FIELD]) * resource.getpagesize()


def remember_memory() -> None:
    """Keep open what tells how much memory we use: later nothing can be opened."""
    global _statm
    if _statm < 0 and sys.platform == "linux":
        try:
            _statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            _statm = -1


def _be_nice() -> str:
    missing = LOW_PRIORITY - os.nice(0)
    return f"nice {os.nice(max(0, missing))}"


def _idle_disk(kernel: Kernel) -> None:
    kernel.call("ioprio_set", _IOPRIO_WHO_PROCESS, 0, _IOPRIO_IDLE)


def _first_to_go() -> None:
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _bound() -> None:
    if sys.platform == "win32":
        raise OSError(0, "Windows has no such limits")
    for kind, most in (
        ("RLIMIT_CORE", 0),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_NOFILE", OPEN_FILES),
        ("RLIMIT_MEMLOCK", 0),
        ("RLIMIT_MSGQUEUE", 0),
        ("RLIMIT_RTPRIO", 0),
        ("RLIMIT_STACK", STACK_BYTES),
    ):
        if hasattr(resource, kind):
            _lower(getattr(resource, kind), most)


def _bound_tasks() -> None:
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if release < _COUNTED_PER_NAMESPACE:
        raise OSError(0, "before Linux 5.14 all of a user's threads are counted")
    _lower(resource.RLIMIT_NPROC, TASKS)


def _limit_memory(bytes: int) -> str:
    if sys.platform != "linux":
        raise OSError(0, f"{sys.platform} does not limit a process's memory")
    _lower(resource.RLIMIT_DATA, bytes)
    _lower(resource.RLIMIT_AS, _addresses() + bytes + ADDRESSES_BYTES)
    return f"{bytes / 1e6:,.0f} MB"


def _addresses() -> int:
    """Address space taken now."""
    remember_memory()
    return int(os.pread(_statm, 256, 0).split()[0]) * resource.getpagesize() if _statm >= 0 else 0


def _lower(kind: int, most: int) -> None:
    """Soft and hard, never up: an administrator's lower limit stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))
