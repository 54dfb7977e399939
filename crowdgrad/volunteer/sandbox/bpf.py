"""From rules to the bytes the kernel runs at every system call. Pure: nothing is installed here.

A seccomp filter is a little program over {number, architecture, address, six arguments}. Ours is a
list, asked from above: is it this call? Then are its arguments as they must be? Then this answer.
What no rule names gets the default. A foreign calling convention (32-bit calls, x32) ends the
process: its numbers mean other calls.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crowdgrad.volunteer.sandbox.syscalls import AUDIT_ARCH, NEWEST, NUMBERS

ALLOW = 0x7FFF0000
KILL = 0x80000000
"""Ends the whole process with SIGSYS: nothing innocent asks for this."""


def refuse(code: int) -> int:
    """The call fails with this errno, and is not made."""
    return 0x00050000 | code


X32_BIT = 0x40000000
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
MAX_INSTRUCTIONS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`argument & mask` is one of `values`.

    The low half of an argument is all the kernel reads where it takes an int; `high` asks for the
    other half, where it takes a pointer.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    high: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`action` if every check is true, else `otherwise`."""

    call: str
    action: int
    checks: tuple[Check, ...] = ()
    otherwise: int = KILL


Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, constant."""


def assemble(rules: Iterable[Rule], default: int, machine: str) -> bytes:
    """The filter for a machine. Calls it never had are passed over; unknown new ones do not exist.

    Raises ValueError for a machine whose calls we do not know.
    """
    if machine not in NUMBERS:
        raise ValueError(f"crowdgrad does not know the system calls of {machine or 'this system'}")
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, X32_BIT),
        (_RETURN, 0, 0, KILL),
    ]
    for rule in rules:
        code += _rule(rule, NUMBERS[machine])
    code += [
        # A library that tries a call newer than this table must hear what an old kernel says.
        (_AT_LEAST, 0, 1, NEWEST + 1),
        (_RETURN, 0, 0, refuse(errno.ENOSYS)),
        (_RETURN, 0, 0, default),
    ]
    assert len(code) <= MAX_INSTRUCTIONS
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _rule(rule: Rule, numbers: Mapping[str, int]) -> list[Instruction]:
    if rule.call not in numbers:
        return []
    body: list[Instruction] = []
    for check in reversed(rule.checks):  # from behind: a failed check jumps over what follows it
        body = _check(check, beyond=len(body) + 1) + body
    body += [(_RETURN, 0, 0, rule.action), (_RETURN, 0, 0, rule.otherwise)]
    return [(_EQUAL, 0, len(body), numbers[rule.call]), *body]


def _check(check: Check, beyond: int) -> list[Instruction]:
    """Falls through if true, else jumps over the `beyond` instructions that follow."""
    offset = _ARGUMENTS_AT + 8 * check.argument + (4 if check.high else 0)
    code: list[Instruction] = [(_LOAD, 0, 0, offset), (_AND, 0, 0, check.mask)]
    last = len(check.values) - 1
    for index, value in enumerate(check.values):
        code.append((_EQUAL, last - index, 0 if index < last else beyond, value))
    return code
