"""The two lists of system calls, on both processors, asked call by call."""

from __future__ import annotations

import errno
import os

import pytest

from crowdgrad.volunteer.sandbox import rules
from crowdgrad.volunteer.sandbox.bpf import ALLOW, KILL, assemble, refuse
from crowdgrad.volunteer.sandbox.syscalls import NEWEST, NUMBERS
from tests.volunteer.sandbox.filter_machine import answer

PID, OTHER = 4321, 4322
EPERM, EACCES, EAGAIN = refuse(errno.EPERM), refuse(errno.EACCES), refuse(errno.EAGAIN)
ENOSYS, ENOTTY = refuse(errno.ENOSYS), refuse(errno.ENOTTY)
STAGES = {
    "entered": rules.entered(PID),
    "sealed": rules.sealed(PID, threads=False),
    "sealed, threads": rules.sealed(PID, threads=True),
}
FILTERS = {
    (machine, stage): assemble(listed, rules.DEFAULT, machine)
    for machine in NUMBERS
    for stage, listed in STAGES.items()
}
THREAD, NEW_NETWORK, PROCESS = 0x3D0F00, 0x40000000, 17
READ, WRITE, EXECUTE = 1, 2, 4
PRIVATE, SHARED, ANONYMOUS, GROWS_DOWN = 2, 1, 0x20, 0x100
FILE = 0x11223344_55667788
"""A pointer: a filter cannot look where it points."""
HERE = -100

REFUSED = """
setpriority ioprio_set memfd_create ftruncate truncate fallocate renameat2 linkat symlinkat
unlinkat mkdirat mknodat fchmodat fchownat utimensat setxattr setresuid setgroups capset shmget
msgget mq_open mbind personality modify_ldt splice vmsplice landlock_restrict_self
sched_setscheduler rename unlink chmod creat
"""

TABLE = [
    # call, arguments, entered, sealed
    ("read", (0,), ALLOW, ALLOW),
    ("openat", (HERE, FILE, os.O_RDONLY | os.O_CLOEXEC), ALLOW, EACCES),
    ("openat", (HERE, FILE, os.O_WRONLY), EPERM, EACCES),
    ("openat", (HERE, FILE, os.O_RDWR), EPERM, EACCES),
    ("openat", (HERE, FILE, os.O_RDONLY | os.O_CREAT), EPERM, EACCES),
    ("openat", (HERE, FILE, os.O_RDONLY | os.O_TRUNC), EPERM, EACCES),
    ("openat", (HERE, FILE, 0o20200000 | os.O_RDWR), EPERM, EACCES),
    ("open", (FILE, os.O_RDONLY), ALLOW, EACCES),
    ("open", (FILE, os.O_WRONLY | os.O_CREAT), EPERM, EACCES),
    ("openat2", (HERE, FILE), ENOSYS, EPERM),
    ("newfstatat", (HERE, FILE), ALLOW, EACCES),
    ("stat", (FILE,), ALLOW, EACCES),
    ("getdents64", (3,), ALLOW, EACCES),
    ("readlinkat", (HERE, FILE), ALLOW, EACCES),
    ("mmap", (0, 4096, READ | WRITE, PRIVATE | ANONYMOUS), ALLOW, ALLOW),
    ("mmap", (0, 4096, READ | WRITE, SHARED), ALLOW, ALLOW),
    ("mmap", (0, 4096, READ | EXECUTE, PRIVATE), ALLOW, EPERM),
    ("mmap", (0, 4096, READ | WRITE | EXECUTE, PRIVATE | ANONYMOUS), EPERM, EPERM),
    ("mmap", (0, 4096, READ | WRITE, SHARED | ANONYMOUS), EPERM, EPERM),
    ("mmap", (0, 4096, READ | WRITE, 3 | ANONYMOUS), EPERM, EPERM),
    ("mmap", (0, 4096, READ | WRITE, PRIVATE | ANONYMOUS | GROWS_DOWN), EPERM, EPERM),
    ("mprotect", (0, 4096, READ | WRITE), ALLOW, ALLOW),
    ("mprotect", (0, 4096, READ | EXECUTE), ALLOW, EPERM),
    ("mprotect", (0, 4096, READ | WRITE | EXECUTE), EPERM, EPERM),
    ("clone", (THREAD,), ALLOW, EAGAIN),
    ("clone", (THREAD | NEW_NETWORK,), KILL, KILL),
    ("clone", (PROCESS,), KILL, KILL),
    ("clone", (0x4100 | PROCESS,), KILL, KILL),  # how the C library starts programs
    ("clone3", (FILE, 88), ENOSYS, ENOSYS),
    ("kill", (PID, 6), ALLOW, ALLOW),
    ("kill", (OTHER, 0), KILL, KILL),
    ("kill", (-1, 9), KILL, KILL),
    ("kill", (0, 9), KILL, KILL),
    ("tgkill", (PID, 5000, 6), ALLOW, ALLOW),
    ("tgkill", (OTHER, OTHER, 9), KILL, KILL),
    ("ioctl", (1, 0x5401), ALLOW, ALLOW),
    ("ioctl", (1, 0x5412), ENOTTY, ENOTTY),  # typing into somebody's terminal
    ("fcntl", (1, 3), ALLOW, ALLOW),
    ("fcntl", (1, 8, OTHER), EPERM, EPERM),  # sending signals to others
    ("fcntl", (1, 1033, 0), EPERM, EPERM),  # sealing the shared memory
    ("prctl", (15, FILE), ALLOW, ALLOW),
    ("prctl", (4, 1), EPERM, EPERM),
    ("prctl", (1, 0), EPERM, EPERM),  # outliving the agent
    ("prlimit64", (0, 2, FILE, 0), ALLOW, EPERM),
    ("prlimit64", (0, 2, FILE & ~0xFFFFFFFF, 0), ALLOW, EPERM),
    ("prlimit64", (0, 2, 0, FILE), ALLOW, ALLOW),
    ("prlimit64", (PID, 2, 0, FILE), ALLOW, ALLOW),
    ("prlimit64", (OTHER, 2, 0, FILE), EPERM, EPERM),
    ("setrlimit", (2, FILE), ALLOW, EPERM),
    ("seccomp", (1, 1, FILE), ALLOW, EPERM),
    ("sched_setaffinity", (0,), ALLOW, EPERM),
    ("sched_setaffinity", (OTHER,), EPERM, EPERM),
    ("arch_prctl", (0x1023, 18), ALLOW, ALLOW),
    ("arch_prctl", (0x1002, FILE), EPERM, EPERM),
    *((call, (), EPERM, EPERM) for call in REFUSED.split()),
    *((call, (), KILL, KILL) for call in rules.FORBIDDEN.split()),
]


def asked(machine: str, stage: str, call: str, arguments: tuple[int, ...]) -> int:
    return answer(FILTERS[machine, stage], machine, NUMBERS[machine][call], *arguments)


@pytest.mark.parametrize("machine", NUMBERS)
def test_every_call_gets_the_answer_of_the_table(machine):
    here = [row for row in TABLE if row[0] in NUMBERS[machine]]
    assert len(here) > 140
    for call, arguments, entered, sealed in here:
        assert asked(machine, "entered", call, arguments) == entered, (call, arguments)
        assert asked(machine, "sealed", call, arguments) == sealed, (call, arguments)


@pytest.mark.parametrize("machine", NUMBERS)
def test_threads_are_the_only_thing_more_that_can_be_asked_for(machine):
    assert asked(machine, "sealed, threads", "clone", (THREAD,)) == ALLOW
    assert asked(machine, "sealed, threads", "clone", (PROCESS,)) == KILL
    for call, arguments, _, sealed in TABLE:
        if call in NUMBERS[machine] and (call, arguments) != ("clone", (THREAD,)):
            assert asked(machine, "sealed, threads", call, arguments) == sealed


@pytest.mark.parametrize("machine", NUMBERS)
def test_sealing_gives_nothing_that_entering_did_not(machine):
    names = {number: name for name, number in NUMBERS[machine].items()}
    for number in range(NEWEST + 1):
        for filled in (0, 1, PID, FILE):
            entered, sealed = (
                answer(FILTERS[machine, stage], machine, number, *(filled,) * 6)
                for stage in ("entered", "sealed, threads")
            )
            if sealed == ALLOW:
                assert entered == ALLOW, names[number]


@pytest.mark.parametrize("machine", NUMBERS)
def test_what_no_list_names_is_refused(machine):
    named = {NUMBERS[machine].get(rule.call) for rule in STAGES["entered"]}
    unnamed = [number for number in range(NEWEST + 1) if number not in named]
    assert len(unnamed) > 100
    for number in unnamed:
        for stage in STAGES:
            assert answer(FILTERS[machine, stage], machine, number) == EPERM


@pytest.mark.parametrize("stage", STAGES)
def test_every_name_is_a_call_some_processor_has(stage):
    known = {name for numbers in NUMBERS.values() for name in numbers}
    assert {rule.call for rule in STAGES[stage]} <= known


@pytest.mark.parametrize("stage", STAGES)
def test_no_call_has_two_rules(stage):
    calls = [rule.call for rule in STAGES[stage]]
    assert len(calls) == len(set(calls))
