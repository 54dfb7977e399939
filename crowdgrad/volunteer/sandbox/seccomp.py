"""Handing the kernel our list of system calls. It cannot be taken back, and threads inherit it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from crowdgrad.volunteer.sandbox import rules
from crowdgrad.volunteer.sandbox.bpf import Rule, assemble
from crowdgrad.volunteer.sandbox.kernel import Kernel, step
from crowdgrad.volunteer.sandbox.walls import Step

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _SYNCHRONISE_THREADS = 1, 1
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def no_new_privileges(kernel: Kernel) -> Step:
    """No program it might start has more rights than it; also what lets us install filters."""
    return step("no new privileges", lambda: _forbid_privileges(kernel))


def enter(kernel: Kernel) -> Step:
    return step("seccomp", lambda: _install(kernel, rules.entered(os.getpid())))


def seal(kernel: Kernel, *, threads: bool) -> Step:
    return step("seal", lambda: _install(kernel, rules.sealed(os.getpid(), threads=threads)))


def _forbid_privileges(kernel: Kernel) -> None:
    kernel.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _install(kernel: Kernel, filter_rules: Iterable[Rule]) -> str:
    listed = list(filter_rules)
    code = assemble(listed, rules.DEFAULT, kernel.machine)
    program = _Program(len(code) // _INSTRUCTION_BYTES, code)
    stuck = kernel.call("seccomp", _SET_MODE_FILTER, _SYNCHRONISE_THREADS, ctypes.byref(program))
    if stuck:
        raise ValueError(f"thread {stuck} did not take the filter")
    return ""
