"""Putting the walls up, in the order that works, and telling which stand.

    enter()           before any thread and any library: namespaces, rights, files, system calls
    limit_memory(n)   once it is known how much the job may take
    seal()            when everything is loaded, before a stranger's graph reaches the runtime

None of them raises: what this system refuses is told in the answer, and whoever started the process
decides whether that is enough. What was done stays done, so the account of it is the process's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from crowdgrad.volunteer.sandbox import landlock, limits, namespaces, seccomp
from crowdgrad.volunteer.sandbox.kernel import Kernel, this_kernel
from crowdgrad.volunteer.sandbox.walls import Held, Step, held

_taken: dict[str, Step] = {}


def enter(readable: Sequence[str] = (), *, kernel: Kernel | None = None) -> tuple[Held, ...]:
    """`readable`: files and folders it may read besides its libraries, until it is sealed."""
    kernel = kernel or this_kernel()
    parent = os.getppid()
    limits.remember_memory()
    _note(*limits.step_back(kernel), limits.bound())  # needs /proc, and rights root may have
    _note(namespaces.separate(kernel))  # only one thread may ask
    if _taken["namespaces"].ok and namespaces.USER in _taken["namespaces"].note:
        _note(limits.bound_tasks())
    _note(seccomp.no_new_privileges(kernel))
    _note(namespaces.drop_capabilities(kernel))
    _note(landlock.enter(kernel, readable))  # still has to open the folders it gives
    _note(namespaces.end_with_parent(kernel, parent))
    _note(seccomp.enter(kernel))  # last: it forbids all of the above
    return held(_taken.values())


def limit_memory(bytes: int) -> Held:
    """All private memory it may have, with what it has already (`limits.memory_in_use`)."""
    _note(limits.limit_memory(bytes))
    return next(one for one in held(_taken.values()) if one.wall == "memory")


def seal(*, threads: bool = False, kernel: Kernel | None = None) -> tuple[Held, ...]:
    """`threads`: whether it may still start threads; a runtime makes them with its session."""
    _note(seccomp.seal(kernel or this_kernel(), threads=threads))
    return held(_taken.values())


def _note(*steps: Step) -> None:
    _taken.update({step.name: step for step in steps})
