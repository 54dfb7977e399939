"""Which system calls the trainer may make: two lists, and why each answer is what it is.

`entered` is what Python, numpy and onnxruntime need to load. `sealed` is what they need to compute;
it is laid over the first before a stranger's graph reaches the runtime. What is on no list is
refused with EPERM, which libraries survive. What no innocent library does ends the process, and
whoever started it sees SIGSYS.
"""

from __future__ import annotations

import errno

from crowdgrad.volunteer.sandbox.bpf import ALLOW, KILL, Check, Rule, refuse

EPERM, EACCES, ENOSYS = refuse(errno.EPERM), refuse(errno.EACCES), refuse(errno.ENOSYS)
ENOTTY, EAGAIN = refuse(errno.ENOTTY), refuse(errno.EAGAIN)
DEFAULT = EPERM

NETWORK = """
socket socketpair connect bind listen accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg
recvmmsg getsockname getpeername setsockopt getsockopt shutdown
"""
PROGRAMS = "execve execveat"
PROCESSES = "fork vfork"
OTHERS = """
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_open pidfd_getfd
pidfd_send_signal kcmp tkill rt_sigqueueinfo rt_tgsigqueueinfo
"""
KERNEL = """
mount umount2 pivot_root chroot setns unshare fsopen fsconfig fsmount fspick move_mount open_tree
mount_setattr bpf io_uring_setup io_uring_enter io_uring_register perf_event_open userfaultfd keyctl
add_key request_key init_module finit_module delete_module kexec_load kexec_file_load reboot swapon
swapoff acct quotactl quotactl_fd iopl ioperm syslog settimeofday clock_settime open_by_handle_at
name_to_handle_at sethostname setdomainname
"""
FORBIDDEN = f"{NETWORK} {PROGRAMS} {PROCESSES} {OTHERS} {KERNEL}"
"""No innocent library does these: they end the process."""

COMPUTING = """
read readv pread64 write writev lseek close fstat poll ppoll select pselect6 munmap mremap madvise
brk membarrier futex set_robust_list rseq gettid getpid getppid exit exit_group sched_yield
sched_getaffinity getcpu clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time
times getrusage rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall getuid
geteuid getgid getegid uname sysinfo getrandom getrlimit
"""
"""Nothing of these names anything outside the process but what it was given open."""

LOOKING = """
stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents getdents64
getcwd
"""
"""Where files are and what is in folders: what an import asks."""

LOADING = """
close_range dup dup2 dup3 fadvise64 statfs fstatfs mincore set_tid_address
rt_sigpending rt_sigtimedwait rt_sigsuspend pause getresuid getresgid getgroups
getpgrp getpgid getsid setrlimit sched_getscheduler sched_getparam sched_get_priority_max
sched_get_priority_min
"""

_WRITE_ACCESS = 0o3
_CREATE, _EXCLUSIVE, _TRUNCATE, _APPEND, _TEMPORARY = 0o100, 0o200, 0o1000, 0o2000, 0o20000000
_OPEN_FOR_WRITING = _WRITE_ACCESS | _CREATE | _EXCLUSIVE | _TRUNCATE | _APPEND | _TEMPORARY

_PROT_WRITE, _PROT_EXEC = 2, 4
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_GROWSDOWN = 0x1, 0x20, 0x100
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020000 | 0x00000080
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}"""

_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 1030
_TCGETS, _TCGETS2, _TIOCGWINSZ, _FIONREAD = 0x5401, 0x802C542A, 0x5413, 0x541B
_FIOCLEX, _FIONCLEX = 0x5451, 0x5450
_PR_SET_NAME, _PR_GET_NAME, _PR_SVE_GET_VL, _PR_SET_VMA = 15, 16, 51, 0x53564D41
_ARCH_XCOMP = (0x1021, 0x1022, 0x1023)
"""Asking for the processor's matrix registers, which the runtime may want."""
_SECCOMP_SET_MODE_FILTER = 1


def entered(pid: int) -> list[Rule]:
    """What may be asked while libraries are loaded. `pid` is the process's own number."""
    return [
        *_all(ALLOW, f"{COMPUTING} {LOOKING} {LOADING}"),
        *_only_reading(),
        *_memory(writable_or_executable=(0, _PROT_WRITE, _PROT_EXEC)),
        *_threads(ALLOW),
        *_about_itself(pid),
        Rule(call="sched_setaffinity", action=ALLOW, checks=(_is(0, 0),), otherwise=EPERM),
        Rule(call="prlimit64", action=ALLOW, checks=(_is(0, 0, pid),), otherwise=EPERM),
        _choice(
            "ioctl", 1, (_TCGETS, _TCGETS2, _TIOCGWINSZ, _FIONREAD, _FIOCLEX, _FIONCLEX), ENOTTY
        ),
        _choice("fcntl", 1, (_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC), EPERM),
        _choice("seccomp", 0, (_SECCOMP_SET_MODE_FILTER,), EPERM),
        *_all(KILL, FORBIDDEN),
    ]


def sealed(pid: int, *, threads: bool) -> list[Rule]:
    """What may still be asked once a stranger's graph is there. `threads`: may it start threads?"""
    return [
        *_all(ALLOW, COMPUTING),
        *_all(EACCES, f"open openat {LOOKING}"),
        *_memory(writable_or_executable=(0, _PROT_WRITE)),
        *_threads(ALLOW if threads else EAGAIN),
        *_about_itself(pid),
        Rule(
            call="prlimit64",
            action=ALLOW,
            checks=(_is(0, 0, pid), _is(2, 0), _is(2, 0, high=True)),
            otherwise=EPERM,
        ),
        _choice("ioctl", 1, (_TCGETS, _TCGETS2), ENOTTY),
        _choice("fcntl", 1, (_F_GETFD, _F_GETFL), EPERM),
        *_all(KILL, FORBIDDEN),
    ]


def _only_reading() -> list[Rule]:
    for_reading = (_is(1, 0, mask=_OPEN_FOR_WRITING),)
    at_reading = (_is(2, 0, mask=_OPEN_FOR_WRITING),)
    return [
        Rule(call="open", action=ALLOW, checks=for_reading, otherwise=EPERM),
        Rule(call="openat", action=ALLOW, checks=at_reading, otherwise=EPERM),
        Rule(call="openat2", action=ENOSYS),  # its flags lie where a filter cannot look
    ]


def _memory(writable_or_executable: tuple[int, ...]) -> list[Rule]:
    """No memory that is both; and none that escapes the memory limit, which counts only private
    writable memory that is no stack."""
    protection = _is(2, *writable_or_executable, mask=_PROT_WRITE | _PROT_EXEC)
    counted = (
        _is(3, 0, _MAP_SHARED, _MAP_ANONYMOUS, mask=_MAP_SHARED | _MAP_ANONYMOUS),
        _is(3, 0, mask=_MAP_GROWSDOWN),
    )
    return [
        Rule(call="mmap", action=ALLOW, checks=(protection, *counted), otherwise=EPERM),
        Rule(call="mprotect", action=ALLOW, checks=(protection,), otherwise=EPERM),
    ]


def _threads(allowed: int) -> list[Rule]:
    thread = (_is(0, _CLONE_THREAD, mask=_CLONE_THREAD | _CLONE_NEW),)
    return [
        Rule(call="clone", action=allowed, checks=thread, otherwise=KILL),
        Rule(call="clone3", action=ENOSYS),  # as openat2; the C library then falls back to clone
    ]


def _about_itself(pid: int) -> list[Rule]:
    return [
        Rule(call="kill", action=ALLOW, checks=(_is(0, pid),), otherwise=KILL),
        Rule(call="tgkill", action=ALLOW, checks=(_is(0, pid),), otherwise=KILL),
        _choice("prctl", 0, (_PR_SET_NAME, _PR_GET_NAME, _PR_SVE_GET_VL, _PR_SET_VMA), EPERM),
        _choice("arch_prctl", 0, _ARCH_XCOMP, EPERM),
    ]


def _choice(call: str, argument: int, values: tuple[int, ...], otherwise: int) -> Rule:
    return Rule(call=call, action=ALLOW, checks=(_is(argument, *values),), otherwise=otherwise)


def _all(action: int, calls: str) -> list[Rule]:
    return [Rule(call=call, action=action) for call in calls.split()]


def _is(argument: int, *values: int, mask: int = 0xFFFFFFFF, high: bool = False) -> Check:
    return Check(argument=argument, values=values, mask=mask, high=high)
