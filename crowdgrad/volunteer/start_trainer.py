"""The trainer's first breath: the walls go up before any library, and any thread, is there.

    python -P -m crowdgrad.volunteer.start_trainer ARENA_FD WALLS

WALLS is `on`; `off` is for an owner's own model, which is their own code, and for measuring what
the walls cost. Nothing is imported here that is not needed for the walls.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from crowdgrad.volunteer.sandbox import limits, namespaces
from crowdgrad.volunteer.sandbox.enter import enter
from crowdgrad.volunteer.sandbox.kernel import this_kernel


def main() -> None:
    arena_fd, walls = int(sys.argv[1]), sys.argv[2]
    if walls not in ("on", "off"):
        raise SystemExit(f"walls are on or off, not {walls!r}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to answer
    # The runtime would note this machine's hardware in the home folder and report it to its maker.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    if walls == "on":
        close_all_but(arena_fd)
        enter()
    else:
        kernel = this_kernel()
        limits.step_back(kernel)
        namespaces.end_with_parent(kernel, os.getppid())
    from crowdgrad.volunteer import trainer

    trainer.main(arena_fd, walled=walls == "on")


def close_all_but(arena_fd: int) -> None:
    """Nothing the agent may have left open by mistake is ours to hold."""
    if not os.path.isdir("/proc/self/fd"):
        return
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > 2 and file != arena_fd:
            with contextlib.suppress(OSError):  # the one that listed them has gone by itself
                os.close(file)


if __name__ == "__main__":
    main()
