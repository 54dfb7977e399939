"""Machines of their own for tests: network namespaces joined by switches, with faults at will.

    @needs_namespaces
    def test_it() -> None:
        with Net() as net:
            host = net.add("host", "10.77.0.2")
            guest = net.add("guest", "10.77.0.3")
            child = host.popen(["crowdgrad", "host", ...], log=folder / "host.log")
            host.drop_inbound()
            assert not guest.reaches("10.77.0.2", 8701)

Every machine has the interface `eth0` on the switch `lan`; `join` plugs it into another one.
The switches are bridges in a namespace of their own, and a cut cable is a rule there, so that a
machine notices nothing: what it sends is sent and never arrives, ARP included. Namespaces share the
file system: each machine has a `home` folder, given to its processes as HOME and CROWDGRAD_HOME.
Names are unique, so tests may run side by side; everything is removed at the end, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("ip", "nft", "tc", "nsenter")
MISSING = (
    "NO NETWORKS OF OUR OWN HERE: tests of reach were skipped. Run them as root on Linux, with "
    "what scripts/tools installs."
)
RUN_S = 30.0
"""No command of `run` takes longer."""
CLONE_NEWNET = 0x40000000

_numbers = itertools.count()


class Trouble(AssertionError):
    """A command that should have worked did not; says what it printed."""


def do(*command: str) -> str:
    """Run a command here, and give what it printed. Raises Trouble."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_S, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise Trouble(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@functools.cache
def obstacle(*more: str) -> str:
    """Why there are no namespaces here; '' where there are. `more`: further programs it takes."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are of Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in (*TOOLS, *more) if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    try:
        with Net() as net:
            machine = net.add("trial", "10.77.0.2")
            machine.drop_inbound()
            machine.rate("20mbit")
            machine.cut()
    except (Trouble, OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces here: {error}"
    return ""


def needs(*programs: str) -> pytest.MarkDecorator:
    """As `needs_namespaces`, for a test that needs further programs, too."""
    why = obstacle(*programs)
    return pytest.mark.skipif(bool(why), reason=f"{MISSING} ({why})")


class Net:
    """`folder`: where the machines' homes are (one of its own by default, removed at the end)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.name = f"cg{os.getpid()}x{next(_numbers)}{os.urandom(2).hex()}"
        self._own = None if folder else tempfile.TemporaryDirectory(prefix=self.name)
        self.folder = Path(folder or self._own.name)  # type: ignore[union-attr]
        self.machines: dict[str, Machine] = {}
        self.switch = f"{self.name}-switch"
        self.deaf: set[str] = set()
        """Ports out of which nothing goes."""
        self.mute: set[str] = set()
        """Ports of which nothing is taken in."""
        self._links: set[str] = set()
        self._ports = itertools.count()

    def __enter__(self) -> Net:
        try:
            do("ip", "netns", "add", self.switch)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing of it stays: processes, captures, namespaces, folder."""
        for machine in self.machines.values():
            machine.end()
        for name in (*(machine.netns for machine in self.machines.values()), self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=RUN_S)
        if self._own:
            self._own.cleanup()

    def add(self, name: str, address: str, *, link: str = "lan", gateway: str = "") -> Machine:
        """A machine with an address (of a /24 where none is said) on a link."""
        assert name not in self.machines
        machine = Machine(self, name)
        self.machines[name] = machine
        machine.begin(address, link, gateway)
        return machine

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def port(self, link: str) -> str:
        """The name of a free port of a link's switch, which is made with the first."""
        if link not in self._links:
            do("ip", "-n", self.switch, "link", "add", link, "type", "bridge",
               "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")  # fmt: skip
            do("ip", "-n", self.switch, "link", "set", link, "up")
            self._links.add(link)
        return f"p{next(self._ports)}"

    def obey(self) -> None:
        """Let the switches do as `deaf` and `mute` say, at once."""
        drops = [f'oifname "{port}" drop' for port in sorted(self.deaf)]
        drops += [f'iifname "{port}" drop' for port in sorted(self.mute)]
        rules = _SWITCH_RULES.replace("DROPS", "\n".join(drops))
        do("nsenter", f"--net=/run/netns/{self.switch}", "--", "nft", rules)


class Machine:
    """One namespace. All faults concern its first cable, `eth0`."""

    def __init__(self, net: Net, name: str) -> None:
        self.net = net
        self.name = name
        self.netns = f"{net.name}-{name}"
        self.home = net.folder / name
        self.address = ""
        self._prefix = "24"
        self._gateway = ""
        self._port = ""
        self._interfaces = itertools.count()
        self._children: list[subprocess.Popen[Any]] = []
        self._captures: list[Capture] = []

    # -- being ----------------------------------------------------------------------------------

    def begin(self, address: str, link: str, gateway: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        do("ip", "netns", "add", self.netns)
        self._ip("link", "set", "lo", "up")
        # Addresses that IPv6 gives itself are of use at once, not when a second has passed.
        self.run(["sh", "-c", "for i in all default; do f=/proc/sys/net/ipv6/conf/$i/accept_dad; "
                  "[ ! -e $f ] || echo 0 > $f; done"])  # fmt: skip
        self.address, _, prefix = address.partition("/")
        self._prefix = prefix or "24"
        self._gateway = gateway
        self.join(link, address)
        self._port = self._last_port
        self._ip("route", "add", "224.0.0.0/4", "dev", "eth0")
        self._default_route()

    def join(self, link: str, address: str) -> str:
        """Plug another cable in; the name of the interface: `eth1`, `eth2` …"""
        interface = f"eth{next(self._interfaces)}"
        port = self._last_port = self.net.port(link)
        do("ip", "-n", self.netns, "link", "add", interface, "type", "veth",
           "peer", "name", port, "netns", self.net.switch)  # fmt: skip
        do("ip", "-n", self.net.switch, "link", "set", port, "master", link, "up")
        self._ip("address", "add", address if "/" in address else f"{address}/24",
                 "brd", "+", "dev", interface)  # fmt: skip
        self._ip("link", "set", interface, "up")
        return interface

    def end(self) -> None:
        """Kill what runs in it, by process id, also what its processes started."""
        for capture in self._captures:
            capture.kill()
        for child in self._children:
            child.kill()
        pids = subprocess.run(
            ["ip", "netns", "pids", self.netns], capture_output=True, text=True, timeout=RUN_S
        )
        for pid in {int(word) for word in pids.stdout.split()} - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in self._children:
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe:
                    pipe.close()

    # -- processes ------------------------------------------------------------------------------

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        seconds: float = RUN_S,
    ) -> str:
        """Do it there, and give what it printed. Raises Trouble where it fails."""
        done = subprocess.run(
            self._there(command), capture_output=True, text=True, timeout=seconds, cwd=ROOT,
            env=self.environment(env), stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr + done.stdout).strip()
            raise Trouble(f"{self.name}: {' '.join(command)}: {said or done.returncode}")
        return done.stdout

    def popen(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start it there; `python` and `crowdgrad` are this environment's. Killed at the end.

        What it prints goes into `log`, else into a pipe (`stdout`), both streams into one.
        """
        where: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with contextlib.ExitStack() as stack:
            where["stdout"] = stack.enter_context(log.open("a")) if log else subprocess.PIPE
            child: subprocess.Popen[str] = subprocess.Popen(
                self._there(command), text=True, cwd=ROOT, env=self.environment(env),
                **{**where, **options},
            )  # fmt: skip
        self._children.append(child)
        return child

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What its processes get: a home of its own, and none of our CROWDGRAD_ variables."""
        ours = {
            name: text for name, text in os.environ.items() if not name.startswith("CROWDGRAD_")
        }
        programs = Path(sys.executable).parent
        return {
            **ours,
            "PATH": f"{programs}:{ours.get('PATH', '')}:/usr/sbin:/sbin",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.home),
            "CROWDGRAD_HOME": str(self.home / "crowdgrad"),
            **(more or {}),
        }

    @contextlib.contextmanager
    def inside(self) -> Generator[None, None, None]:
        """This thread lives there meanwhile: sockets it makes, threads and processes it starts.

        A socket stays where it was made; also a whole `asyncio.run` may be inside.
        """
        before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        there = -1
        try:
            there = os.open(f"/run/netns/{self.netns}", os.O_RDONLY)
            _set_namespace(there)
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)
            if there >= 0:
                os.close(there)

    def reaches(self, address: str, port: int, *, seconds: float = 1.0) -> bool:
        """Whether a TCP connection from here comes about within so long."""
        with (
            self.inside(),
            contextlib.suppress(OSError),
            socket.create_connection((address, port), timeout=seconds),
        ):
            return True
        return False

    # -- faults, and their end ------------------------------------------------------------------

    def drop_inbound(self) -> None:
        """As behind a router: what others begin is dropped, answers to what we began pass."""
        self.allow_inbound()
        self.run(["nft", _INBOUND_RULES])

    def allow_inbound(self) -> None:
        self.run(["nft", "add table inet cg; delete table inet cg"])

    def cut(self) -> None:
        """The cable carries nothing, either way, and the machine does not see it."""
        self.drop_incoming()
        self.drop_outgoing()

    def mend(self) -> None:
        """After `cut`, `drop_incoming` or `drop_outgoing`: the cable is whole again."""
        self.net.deaf.discard(self._port)
        self.net.mute.discard(self._port)
        self.net.obey()

    def drop_incoming(self) -> None:
        """Nothing reaches it; what it sends arrives."""
        self.net.deaf.add(self._port)
        self.net.obey()

    def drop_outgoing(self) -> None:
        """Nothing that it sends arrives; it still hears the others."""
        self.net.mute.add(self._port)
        self.net.obey()

    def readdress(self, address: str) -> None:
        """Another address, and no longer the old: connections from the old one are dead."""
        address, _, prefix = address.partition("/")
        self._ip("address", "del", f"{self.address}/{self._prefix}", "dev", "eth0")
        self.address, self._prefix = address, prefix or self._prefix
        self._ip("address", "add", f"{address}/{self._prefix}", "brd", "+", "dev", "eth0")
        self._ip("route", "replace", "224.0.0.0/4", "dev", "eth0")
        self._default_route()

    def rate(self, rate: str, *, latency: str = "400ms") -> None:
        """How much the cable carries each way, such as `20mbit`; '' for all it can."""
        for netns, device in ((self.netns, "eth0"), (self.net.switch, self._port)):
            shape = ["tbf", "rate", rate, "burst", "64kb", "latency", latency]
            if rate:
                do("tc", "-n", netns, "qdisc", "replace", "dev", device, "root", *shape)
            elif "tbf" in do("tc", "-n", netns, "qdisc", "show", "dev", device):
                do("tc", "-n", netns, "qdisc", "del", "dev", device, "root")

    def capture(self, path: Path, *expression: str) -> Capture:
        """Write down every packet from now on (those of a tcpdump expression), until `stop`.

        Needs tcpdump: `needs("tcpdump")`.
        """
        capture = Capture(self._there(
            ["tcpdump", "-i", "any", "-n", "-U", "--immediate-mode", "-B", "16384", "-Z", "root",
             "-w", str(path), *expression]
        ), path)  # fmt: skip
        self._captures.append(capture)
        return capture

    def addresses(self, interface: str = "eth0") -> list[str]:
        """All it has there, IPv6 too."""
        said = json.loads(do("ip", "-j", "-n", self.netns, "address", "show", "dev", interface))
        return [str(entry["local"]) for entry in said[0]["addr_info"]]

    # -- inside ---------------------------------------------------------------------------------

    def _there(self, command: Sequence[str]) -> list[str]:
        # Not `ip netns exec`, which hides what lies under /sys (control groups, say).
        return ["nsenter", f"--net=/run/netns/{self.netns}", "--", *command]

    def _ip(self, *words: str) -> None:
        do("ip", "-n", self.netns, *words)

    def _default_route(self) -> None:
        if self._gateway:
            self._ip("route", "replace", "default", "via", self._gateway)


class Capture:
    """A tcpdump at work; `stop` gives the bytes of its file, and may be called again."""

    def __init__(self, command: Sequence[str], path: Path) -> None:
        self.path = path
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert self._child.stderr is not None
        said = b""
        while b"listening on" not in said:
            line = self._child.stderr.readline()
            said += line
            if not line:
                self.kill()
                raise Trouble(f"tcpdump: {said.decode(errors='replace').strip()}")

    def stop(self) -> bytes:
        if self._child.poll() is None:
            time.sleep(0.1)  # for what has been sent and not yet been seen
            self._child.send_signal(signal.SIGINT)
            try:
                self._child.communicate(timeout=RUN_S)
            finally:
                self.kill()
        return self.path.read_bytes()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        if self._child.stderr:
            self._child.stderr.close()


_SWITCH_RULES = """
table bridge cg
delete table bridge cg
table bridge cg {
    chain forward {
        type filter hook forward priority 0; policy accept;
        DROPS
    }
}
"""
_INBOUND_RULES = """
table inet cg {
    chain input {
        type filter hook input priority 0; policy accept;
        iifname "lo" accept
        ct state new drop
    }
    chain output {
        type filter hook output priority 0; policy accept;
        ct state established,new accept
    }
}
"""


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


needs_namespaces = needs()
"""A mark: the test is skipped, with the reason, where there are no namespaces."""
