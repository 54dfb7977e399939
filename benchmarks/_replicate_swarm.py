"""A real host and real volunteers on shaped machines: one spreading of its data, by any plan.

The host is `crowdgrad host` with its own worker stopped before it has joined (it is on the host's
machine and needs no network); volunteers are `_replicate_node.py`. All connections leave their
machine, so all are encrypted. Volunteers listen for each other, as the setting `share` asks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _processes import Host
from _replicate_job import Spread, job_file
from _shaped import Machine
from _spreading import Receiver, Spreading, spread
from _windows import cpu_s

NODE = Path(__file__).parent / "_replicate_node.py"
UNIT_S = 2.0
"""How long a volunteer computes a unit: data comes meanwhile, as where people train."""
WORKER_S = 30.0
SHARING = {"CROWDGRAD_SHARE": "listen", "CROWDGRAD_SHARE_PORT": "0", "CROWDGRAD_LAN": "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One spreading."""

    plan: str
    volunteers: int
    liars: int = 0
    """The last so many serve wrong bytes; nobody waits for them."""
    killed: int = 0
    """The first so many are killed with SIGKILL …"""
    kill_after_s: float = 0.0
    """… when so much time has passed; nobody waits for them."""
    late: bool = False
    """One more comes when all have everything."""
    limit_s: float = 600.0
    listen: str = ""
    """The host's address; '': its machine's on the network."""

    @property
    def title(self) -> str:
        more = [f"{self.killed} killed"] * bool(self.killed)
        more += [f"{self.liars} of them liars"] * bool(self.liars)
        return ", ".join([self.plan or "as by default", f"{self.volunteers} volunteers", *more])


@dataclass(slots=True, kw_only=True)
class Went:
    """How it went."""

    spreading: Spreading
    late_s: float = 0.0
    """What the late one took."""
    told: list[dict[str, float]] = field(default_factory=list)
    """By each volunteer that counts, at the end."""
    host_cpu_s: float = 0.0
    """What its host computed meanwhile."""
    crowd_cpu_s: float = 0.0
    """What the volunteers that lived on computed, all together, from their beginning."""

    @property
    def bad_units(self) -> int:
        """Units that a trainer was given with wrong records."""
        return int(sum(said["bad_units"] for said in self.told))

    @property
    def refused_bytes(self) -> int:
        """Bytes that came and were wrong."""
        return int(sum(said["refused_bytes"] for said in self.told))

    @property
    def twice_bytes(self) -> int:
        """Bytes that came and were here already."""
        return int(sum(said["twice_bytes"] for said in self.told))


def run(case: Case, machines: Sequence[Machine], data: Spread, folder: Path, home: Path) -> Went:
    """From a host on the first machine to volunteers on the others, one each, the late one on the
    last. `home`: the host's. What they kept is removed afterwards."""
    source, *others = machines
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        host = stack.enter_context(_host(case, source, data, folder, home))
        nodes = []
        for number in range(case.volunteers + case.late):
            node = _node(case, number, others[number], str(host.here["link"]), data, folder)
            stack.callback(node.close)
            nodes.append(node)
        return _measure(case, source, nodes, data)


def _node(
    case: Case, number: int, machine: Machine, target: str, data: Spread, folder: Path
) -> Receiver:
    name = f"volunteer-{number}"
    own, wanted = folder / name, folder / "wanted.json"
    own.mkdir(parents=True)
    wanted.write_text(json.dumps(data.names))
    command = [sys.executable, str(NODE), target, str(wanted), str(UNIT_S)]
    if case.volunteers - case.liars <= number < case.volunteers:
        command.append("liar")
    environment = {"CROWDGRAD_HOME": str(own), "CROWDGRAD_NAME": name, **SHARING}
    return Receiver(name, machine, command, folder / f"{name}.log", environment)


@contextlib.contextmanager
def _host(case: Case, machine: Machine, data: Spread, folder: Path, home: Path) -> Iterator[Host]:
    host = Host(
        job_file(folder / "job", data, case.plan),
        folder / "host",
        home,
        listen=case.listen or machine.address,
        more=["--no-router", "--admit", "anyone"],
        before=machine.before,
    )
    host.start()
    try:
        host.await_start()
        _still(machine)
        yield host
    finally:
        machine.kill()
        host.process.kill()


def _still(machine: Machine) -> None:
    """Stop the host's own worker as soon as it is there."""
    deadline = time.monotonic() + WORKER_S
    while time.monotonic() < deadline:
        if pid := _with(b"worker-0", machine):
            os.kill(pid, signal.SIGSTOP)
            return
        time.sleep(0.01)
    raise SystemExit("The host's own worker never came.")


def _with(word: bytes, machine: Machine) -> int:
    """A process there with this word in its command line; 0: there is none."""
    for pid in machine.processes():
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    return 0


def _measure(case: Case, source: Machine, nodes: Sequence[Receiver], data: Spread) -> Went:
    crowd, late = nodes[: case.volunteers], nodes[case.volunteers :]
    doomed = list(crowd[: case.killed])
    honest = crowd[: case.volunteers - case.liars]

    def tend(seconds: float) -> None:
        while doomed and seconds >= case.kill_after_s:
            doomed.pop().kill()

    host = _with(b"--announce", source)
    before_s = cpu_s(host)
    found = spread(
        case.title, source, crowd, chunks=len(data.names), limit_s=case.limit_s, tend=tend,
        counts=lambda node: node in honest and node not in crowd[: case.killed],
    )  # fmt: skip
    went = Went(spreading=found, host_cpu_s=cpu_s(host) - before_s)
    if late:
        came = spread("late joiner", source, late, chunks=len(data.names), limit_s=case.limit_s)
        went.late_s = came.seconds
    for node in crowd:
        if not node.killed:
            node.ask()
    time.sleep(0.3)  # they answer at once
    went.crowd_cpu_s = sum(node.said["cpu_s"] for node in crowd if not node.killed)
    went.told = [dict(node.said) for node in honest if not node.killed]
    return went
