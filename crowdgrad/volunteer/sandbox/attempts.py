"""Every forbidden thing, really tried: from within the walls, one process for each.

    python -P -m crowdgrad.volunteer.sandbox.attempts NAME TARGETS

The process enters, is limited and sealed as a trainer is, and then does one thing. It leaves with
`DONE` if that worked, with `REFUSED` and the reason if not; where the kernel ends it, its starter
sees SIGSYS. `account` tries nothing: it loads the libraries and tells which walls stand.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from crowdgrad.volunteer.sandbox import limits
from crowdgrad.volunteer.sandbox.enter import enter, limit_memory, seal
from crowdgrad.volunteer.sandbox.kernel import this_kernel

DONE, REFUSED = 10, 11
ROOM_BYTES = 64 << 20
"""How much more memory the process gets for its attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What there is to attack, prepared by whoever looks on."""

    agent: int
    """The process that looks on, in place of a trainer's agent."""
    address: int
    """Where it has something in its memory."""
    tcp: int
    udp: int
    unix: str
    key: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    wall: str
    words: str
    act: Callable[[Targets], object]
    """Raises OSError, MemoryError or ValueError where it is stopped."""


def _call(name: str, *arguments: object) -> int:
    return this_kernel().call(name, *arguments)


def _read(path: str) -> object:
    with open(path, "rb") as file:
        return file.read(1)


def _write(path: str) -> object:
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)


def _connect_tcp(to: Targets) -> object:
    talking = socket.socket(socket.AF_INET)
    talking.connect(("127.0.0.1", to.tcp))
    return talking


def _send_udp(to: Targets) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", to.udp))


def _connect_unix(to: Targets) -> object:
    talking = socket.socket(socket.AF_UNIX)
    talking.connect(to.unix)
    return talking


def _listen(to: Targets) -> object:
    return socket.create_server(("127.0.0.1", 0))


def _execute(to: Targets) -> object:
    return os.execv(sys.executable, [sys.executable, "-c", f"raise SystemExit({DONE})"])  # noqa: S606


def _execute_from_memory(to: Targets) -> object:
    file = os.memfd_create("program", 0)  # kept open: its interpreter reads it
    os.write(file, b"#!/bin/sh\nexit 10\n")
    return os.execve(file, ["program"], {})  # noqa: S606


def _spawn(to: Targets) -> object:
    return os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], {})


def _fork(to: Targets) -> object:
    if os.fork() == 0:
        os._exit(0)
    return True


def _peek(to: Targets) -> object:
    """Another process's memory, by system call."""
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    there = (ctypes.c_size_t * 2)(to.address, 8)
    return _call("process_vm_readv", to.agent, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


def _allocate(to: Targets) -> object:
    return mmap.mmap(-1, 2 * ROOM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _allocate_shared(to: Targets) -> object:
    return mmap.mmap(-1, 2 * ROOM_BYTES, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


def _allocate_bit_by_bit(to: Targets) -> object:
    return len([bytearray(1 << 20) for _ in range(2 * ROOM_BYTES >> 20)])


def _make_code(to: Targets) -> object:
    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def _lift_limits(to: Targets) -> object:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (most // 2, most))
    return most


_LIBRARY = os.__file__
_HOME = os.path.expanduser("~")

ATTEMPTS = {
    "tcp": Attempt(wall="network", words="connect by TCP", act=_connect_tcp),
    "udp": Attempt(wall="network", words="send by UDP", act=_send_udp),
    "unix": Attempt(wall="network", words="connect to a local socket", act=_connect_unix),
    "listen": Attempt(wall="network", words="listen for others", act=_listen),
    "passwd": Attempt(
        wall="reading", words="read /etc/passwd", act=lambda to: _read("/etc/passwd")
    ),
    "key": Attempt(wall="reading", words="read the key file", act=lambda to: _read(to.key)),
    "library": Attempt(
        wall="reading", words="read its own libraries", act=lambda to: _read(_LIBRARY)
    ),
    "list": Attempt(wall="reading", words="list the home folder", act=lambda to: os.listdir(_HOME)),
    "exists": Attempt(
        wall="reading", words="ask whether a file exists", act=lambda to: os.stat(to.key)
    ),
    "here": Attempt(wall="writing", words="write where it was started", act=lambda to: _write("x")),
    "folder": Attempt(
        wall="writing",
        words="write in the temporary folder",
        act=lambda to: _write(os.path.join(to.folder, "x")),
    ),
    "change": Attempt(
        wall="writing", words="change the key file", act=lambda to: os.truncate(to.key, 0)
    ),
    "delete": Attempt(
        wall="writing", words="delete the key file", act=lambda to: os.unlink(to.key)
    ),
    "exec": Attempt(wall="programs", words="become another program", act=_execute),
    "memory-exec": Attempt(
        wall="programs", words="run a program from memory", act=_execute_from_memory
    ),
    "spawn": Attempt(wall="programs", words="start a program", act=_spawn),
    "fork": Attempt(wall="processes", words="copy itself", act=_fork),
    "ptrace": Attempt(
        wall="others",
        words="take over the agent",
        act=lambda to: _call("ptrace", 0x4206, to.agent, 0, 0),
    ),
    "peek": Attempt(wall="others", words="copy the agent's memory", act=_peek),
    "mem": Attempt(
        wall="others",
        words="open the agent's memory",
        act=lambda to: os.open(f"/proc/{to.agent}/mem", os.O_RDONLY),
    ),
    "environ": Attempt(
        wall="others",
        words="read the agent's environment",
        act=lambda to: _read(f"/proc/{to.agent}/environ"),
    ),
    "signal": Attempt(
        wall="others",
        words="signal the agent",
        act=lambda to: _call("kill", to.agent, int(signal.SIGCONT)),
    ),
    "slow": Attempt(
        wall="others",
        words="slow the agent down",
        act=lambda to: _call("setpriority", 0, to.agent, 1),
    ),
    "limit": Attempt(
        wall="others",
        words="ask for the agent's limits",
        act=lambda to: _call("prlimit64", to.agent, 7, None, ctypes.create_string_buffer(16)),
    ),
    "uring": Attempt(
        wall="kernel",
        words="open a second way to the kernel",
        act=lambda to: _call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
    ),
    "namespace": Attempt(
        wall="kernel", words="make a namespace", act=lambda to: _call("unshare", 0x10000000)
    ),
    "device": Attempt(
        wall="kernel", words="open a device", act=lambda to: os.open("/dev/null", os.O_RDONLY)
    ),
    "code": Attempt(wall="kernel", words="make memory into code", act=_make_code),
    "user": Attempt(wall="rights", words="become root", act=lambda to: _call("setresuid", 0, 0, 0)),
    "grow": Attempt(wall="memory", words="take too much memory at once", act=_allocate),
    "creep": Attempt(wall="memory", words="take too much bit by bit", act=_allocate_bit_by_bit),
    "share": Attempt(wall="memory", words="take memory nobody counts", act=_allocate_shared),
    "hurry": Attempt(
        wall="priority", words="raise its priority", act=lambda to: _call("setpriority", 0, 0, 0)
    ),
    "limits": Attempt(wall="traces", words="change its limits", act=_lift_limits),
}


def _account() -> str:
    """What stands, and what computes, as JSON."""
    enter()
    found: dict[str, object] = {}
    try:
        import numpy
        import onnxruntime

        found = {"numpy": numpy.__version__, "onnxruntime": onnxruntime.__version__}
    except ImportError as error:
        found = {"error": str(error)}
    limit_memory(limits.memory_in_use() + ROOM_BYTES)
    return json.dumps({**found, "held": [asdict(one) for one in seal()]})


def main() -> None:
    name, targets = sys.argv[1:]
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    if name == "account":
        print(_account())
        return
    to = Targets(**json.loads(targets))
    enter()
    limit_memory(limits.memory_in_use() + ROOM_BYTES)
    seal()
    try:
        ATTEMPTS[name].act(to)
    except (OSError, MemoryError, ValueError, AttributeError) as error:
        os.write(1, str(error or type(error).__name__).encode())
        os._exit(REFUSED)
    os._exit(DONE)


if __name__ == "__main__":
    main()
