"""Machines whose uplinks are narrow: namespaces at one switch, gone however the benchmark ends.

A machine is a process that waits for the end of its standard input, first of its own network and
process namespaces. When this process goes, killed or not, those inputs end, and with the first
process of a namespace the kernel kills all others there, stopped ones too; interfaces go with their
namespaces. Nothing has a name that could stay behind.

What a machine sends passes a token bucket (`tbf`); what it receives is not shaped, as at home,
where the uplink is the narrow one. Needs root, and `unshare`, `nsenter`, `ip` and `tc` on Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from _processes import children_of

TOOLS = ("unshare", "nsenter", "ip", "tc")
BURST = "32kb"
LATENCY = "100ms"
"""How long a packet may wait at a narrow uplink before it is dropped."""
NET = "10.91.0"
MOST = 250
ROOT = Path(__file__).parents[1]
CLONE_NEWNET = 0x40000000
HOLD = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "cat"]


def obstacle() -> str:
    """Why there are no such machines here; '' where there are."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are of Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)}"
    try:
        with Machines() as machines:
            machines.add(mbit=20.0)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or error
        return f"no namespaces here: {str(said).strip()}"
    return ""


@contextlib.contextmanager
def working_folder() -> Generator[Path]:
    """A folder for everything, removed however this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="crowdgrad-bench-"))
    script = 'cat >/dev/null; sleep "$2"; rm -rf -- "$1"'
    with subprocess.Popen(
        ["sh", "-c", script, "sh", str(folder), "0.5"], stdin=subprocess.PIPE, process_group=0
    ):
        yield folder


class Machines:
    """As a context manager: all of it is gone afterwards."""

    def __init__(self) -> None:
        self._switch = Machine(address="")
        self._there: dict[int, Machine] = {}

    def __enter__(self) -> Machines:
        try:
            # With an address of its own: else it has a port's, another whenever ports come and go.
            self._switch.ip("link add lan address 02:63:67:00:00:01 type bridge mcast_snooping 0",
                            "link set lan up")  # fmt: skip
        except BaseException:
            self._switch.end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for machine in [*self._there.values(), self._switch]:
            machine.end()

    def add(self, *, mbit: float = 0.0) -> Machine:
        """`mbit`: how much it can send, in Mbit/s; 0: all it likes."""
        number = next(n for n in range(2, MOST) if n not in self._there)
        machine = Machine(address=f"{NET}.{number}")
        self._there[number] = machine
        self._switch.ip(
            f"link add p{number} type veth peer name eth0 netns {machine.pid}",
            f"link set p{number} master lan up",
        )
        machine.ip("link set lo up", f"addr add {machine.address}/24 dev eth0", "link set eth0 up")
        if mbit:
            rule = f"tbf rate {mbit:g}mbit burst {BURST} latency {LATENCY}"
            machine.do(["tc", "qdisc", "add", "dev", "eth0", "root", *rule.split()])
        return machine

    def remove(self, machine: Machine) -> None:
        del self._there[int(machine.address.rpartition(".")[2])]
        machine.end()
        with contextlib.suppress(subprocess.CalledProcessError):  # it may be gone by itself
            self._switch.ip(f"link del p{machine.address.rpartition('.')[2]}")


class Machine:
    def __init__(self, *, address: str) -> None:
        self.address = address
        self._holder = subprocess.Popen(
            HOLD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        try:
            self._holder.stdin.write(b"here\n")
            self._holder.stdin.flush()
            answer = self._holder.stdout.readline()
        except OSError:
            answer = b""
        if not answer:
            self.end()
            raise OSError("`unshare` makes no network and process namespaces")
        self.pid = children_of(self._holder.pid)[0]
        """Of its first process, as seen from here."""

    @property
    def before(self) -> list[str]:
        """What to put before a command to run it there."""
        return ["nsenter", f"--target={self.pid}", "--net", "--pid", "--mount", "--"]

    def do(self, command: Sequence[str], said: str = "") -> None:
        """Arrange its network, by a process that is not of the machine: it knows all pids."""
        there = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *command]
        subprocess.run(there, check=True, capture_output=True, text=True, input=said)

    def ip(self, *lines: str) -> None:
        self.do(["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def start(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] = {}
    ) -> subprocess.Popen[str]:
        """A process there, with pipes to and from; what it says besides goes to the log."""
        with log.open("ab") as errors:
            return subprocess.Popen(
                [*self.before, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                process_group=0,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            )

    def processes(self) -> list[int]:
        """What runs there, as seen from here; not the one that keeps the machine."""
        mine, found = os.stat(f"/proc/{self.pid}/ns/pid").st_ino, []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "ns/pid").stat().st_ino == mine:
                    found.append(int(folder.name))
        return [pid for pid in found if pid != self.pid]

    def kill(self) -> None:
        """SIGKILL of all that runs there, as a power cut; the machine stays."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def inside(self) -> Generator[None]:
        """This thread's new sockets are of that machine meanwhile; they stay so afterwards."""
        own = f"/proc/self/task/{threading.get_native_id()}/ns/net"
        with open(own) as before, open(f"/proc/{self.pid}/ns/net") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def sent(self) -> int:
        """Bytes that have left it, headers included."""
        return self._counter(8)

    def received(self) -> int:
        return self._counter(0)

    def _counter(self, column: int) -> int:
        text = Path(f"/proc/{self.pid}/net/dev").read_text()
        found = re.search(r"^\s*eth0:(.*)$", text, re.MULTILINE)
        assert found is not None
        return int(found[1].split()[column])

    def end(self) -> None:
        """With all that runs there."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        with contextlib.suppress(OSError):
            self._holder.stdin.close()
        try:
            self._holder.wait(10)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        self._holder.stdout.close()


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
