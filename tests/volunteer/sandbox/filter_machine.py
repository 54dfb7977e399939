"""The kernel's filter machine, slow and obvious, for the few operations our filters use."""

from __future__ import annotations

import struct

from crowdgrad.volunteer.sandbox.syscalls import AUDIT_ARCH


def run(code: bytes, number: int, arguments: tuple[int, ...] = (), architecture: int = 0) -> int:
    """The answer of the filter to one system call."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(one % (1 << 64) for one in padded))
    accumulator, at = 0, 0
    while True:
        operation, yes, no, constant = struct.unpack_from("=HBBI", code, 8 * at)
        at += 1
        if operation == 0x20:  # load a word
            accumulator = struct.unpack_from("<I", data, constant)[0]
        elif operation == 0x54:  # and
            accumulator &= constant
        elif operation == 0x15:  # jump if equal
            at += yes if accumulator == constant else no
        elif operation == 0x35:  # jump if at least
            at += yes if accumulator >= constant else no
        elif operation == 0x06:  # return
            return constant
        else:
            raise AssertionError(f"unknown operation {operation:#x}")


def answer(code: bytes, machine: str, number: int, *arguments: int) -> int:
    return run(code, number, arguments, AUDIT_ARCH[machine])
