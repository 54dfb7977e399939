"""The few system calls the standard library has no function for, by ctypes.

Four calls by number are less to trust than a library that makes them. A `Kernel` is an argument
everywhere above, so that tests can take one that refuses.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from crowdgrad.volunteer.sandbox.syscalls import NUMBERS
from crowdgrad.volunteer.sandbox.walls import Step


class Kernel(Protocol):
    @property
    def machine(self) -> str:
        """The processor, as `os.uname()` names it."""
        ...

    def call(self, name: str, *arguments: Any) -> int:
        """Numbers and ctypes pointers in, a number out. Raises OSError."""
        ...


class Linux:
    """The kernel this process runs on."""

    def __init__(self) -> None:
        self.machine = os.uname().machine
        self._numbers: Mapping[str, int] = NUMBERS.get(self.machine, {})
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long

    def call(self, name: str, *arguments: Any) -> int:
        if name not in self._numbers:
            raise OSError(errno.ENOSYS, f"its number is not known on {self.machine}", name)
        words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
        answer = int(self._syscall(ctypes.c_long(self._numbers[name]), *words))
        if answer == -1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), name)
        return answer


class Elsewhere:
    """Not Linux: there is no such call."""

    machine = ""

    def call(self, name: str, *arguments: Any) -> int:
        raise OSError(errno.ENOSYS, f"only Linux has it, and this is {sys.platform}", name)


def this_kernel() -> Kernel:
    return Linux() if sys.platform == "linux" else Elsewhere()


def step(name: str, act: Callable[[], str | None]) -> Step:
    """Do it, and say whether it held: what the system refuses is reported, never raised.

    `act` may return what is worth adding to the name.
    """
    try:
        detail = act()
    except (OSError, ValueError, AttributeError) as error:
        return Step(name=name, ok=False, note=_reason(error))
    return Step(name=name, ok=True, note=detail or "")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        call = f"{error.filename}: " if error.filename else ""
        return f"{call}{error.strerror}"
    return str(error) or type(error).__name__
