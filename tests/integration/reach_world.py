"""crowdgrad's processes on machines of their own, and what to wait for while the network fails.

    with world(tmp_path) as there:
        relay = there.relay(there.add("relay", "10.77.0.2"))
        host = there.host(there.add("host", "10.77.0.3"), "--relay", relay.address)
        ada = there.volunteer(there.add("ada", "10.77.0.4"), host.link)
        host.await_units("ada", 3)

Volunteers do all the training: the host's own worker is stopped (SIGSTOP) as soon as it is there,
and goes on when there is nothing left to train, to validate and test. So how long a job lasts is up
to `pace_ms`, and a batch that counts came over the network.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.namespaces import Machine, Net

Status = dict[str, Any]
P = TypeVar("P", bound="Process")

RELAY_PORT, MATCHMAKER_PORT, HOST_PORT = 8702, 8700, 8701
PATIENCE_S = 90.0
LOOK_S = 0.02
PARTING_S = 10.0
AGAIN = " Trying again in "
"""What a volunteer says that has lost its host."""
RECORDS = 1294
"""Of the digits, to train on."""
TITLE = "Ziffern, im Dunkeln gelesen"
JOB = """
title = "{title}"
task = "crowdgrad.capture.models:digits_mlp"
data = "digits"
[recipe]
name = "async_sgd"
lr = 0.05
batch_size = 50
batches_per_unit = 1
[stop]
epochs = {epochs}
[volunteers]
minimum = {volunteers}
start = "all"
"""


class Process:
    """One of our commands on a machine; what it says is in its log."""

    def __init__(
        self, there: World, machine: Machine, name: str, *arguments: str, env: dict[str, str]
    ) -> None:
        self.machine = machine
        self.name = name
        self.log = there.folder / f"{name}.log"
        self._there = there
        self._arguments = arguments
        self._env = env
        self._child = self._started()

    def _started(self) -> Any:
        return self.machine.popen(["crowdgrad", *self._arguments], log=self.log, env=self._env)

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        code: int | None = self._child.poll()
        return code

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def await_words(self, words: str) -> None:
        self._there.until(f"{self.name} says {words!r}", lambda: words in self.said, self)

    def await_end(self) -> int:
        self._there.until(f"{self.name} ends", lambda: self.code is not None)
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def ask_to_stop(self) -> None:
        self._child.send_signal(signal.SIGTERM)

    def start_again(self) -> None:
        """With the same words, when it has ended."""
        assert self.code is not None
        self._child = self._started()


class Service(Process):
    """A relay or a matchmaker: it writes where it is once it listens."""

    def __init__(self, there: World, machine: Machine, kind: str, port: int, *options: str) -> None:
        self._file = there.folder / f"{machine.name}.json"
        self.address = f"{machine.address}:{port}"
        self.port = port
        super().__init__(
            there, machine, machine.name, kind, "--host", "0.0.0.0", "--port", str(port),
            "--json", str(self._file), *options, env={},
        )  # fmt: skip
        self._await_start()

    def start_again(self) -> None:
        self._file.unlink()
        super().start_again()
        self._await_start()

    def _await_start(self) -> None:
        self._there.until(f"{self.name} listens", self._file.exists, self)

    @property
    def pairs(self) -> int:
        """Of a relay: how many it has joined so far."""
        return self.said.count(": pair host=")

    @property
    def open_pairs(self) -> int:
        """… and how many still are."""
        return self.pairs - self.said.count(": pair over host=")


class Host(Process):
    def __init__(
        self,
        there: World,
        machine: Machine,
        *options: str,
        epochs: int,
        volunteers: int,
        env: dict[str, str],
        more: str = "",
    ) -> None:
        """`more`: further lines of the job file."""
        self.epochs = epochs
        self._announced = there.folder / "here.json"
        self._outcome = there.folder / "outcome.json"
        job = there.folder / "job.toml"
        job.write_text(JOB.format(title=TITLE, epochs=epochs, volunteers=volunteers) + more)
        super().__init__(
            there, machine, machine.name, "host", str(job), "--yes", "--plain", "--no-supervise",
            "--runs", str(there.folder / "runs"), "--announce", str(self._announced),
            "--json", str(self._outcome), *options, env=env,
        )  # fmt: skip
        there.until("the host is there", self._announced.exists, self)
        self.here: dict[str, Any] = json.loads(self._announced.read_text())
        there.until("worker 0 is ready", self._worker_0_waits, self)
        self._signal_worker_0(signal.SIGSTOP)

    def _worker_0_waits(self) -> bool:
        """It has asked for a unit, and was told to wait for the volunteers."""
        member = self.member("worker-0")
        return member is not None and "it begins when" in member["state"]

    @property
    def link(self) -> str:
        return str(self.here["link"])

    @property
    def run(self) -> Path:
        return Path(self.here["folder"])

    @property
    def journal(self) -> str:
        """What it has logged, with what people are not shown."""
        return (self.run / "logs" / "host.jsonl").read_text()

    def status(self) -> Status:
        return self.ask("/status")

    def ask(self, path: str) -> Status:
        """Of its API."""
        with self.machine.inside():
            web = http.client.HTTPConnection(
                str(self.here["url"]).removeprefix("http://"), timeout=30
            )
            with contextlib.closing(web):
                web.request("GET", path)
                found: Status = json.loads(web.getresponse().read())
                return found

    def member(self, name: str) -> Status | None:
        return next((m for m in self.status()["members"] if m["name"] == name), None)

    def units_of(self, name: str) -> int | None:
        """Accepted so far; None: it never came."""
        member = self.member(name)
        return None if member is None else int(member["units"])

    def await_units(self, *names: str, more: int = 3) -> float:
        """Until each of them has had so many more accepted; how many seconds that took."""
        goals = {name: (self.units_of(name) or 0) + more for name in names}

        def reached() -> bool:
            units = {member["name"]: member["units"] for member in self.status()["members"]}
            return all(units.get(name, 0) >= goal for name, goal in goals.items())

        return self._there.until(f"units {goals}", reached, self)

    def joined(self, name: str) -> int:
        """How often it has come."""
        return self.journal.count(f'"{name} joined as')

    def await_return(self, **before: int) -> float:
        """Until all of them have come once more than so often, and have had a unit accepted since;
        how many seconds that took."""
        began = time.monotonic()
        self._there.until(
            f"they come back: {before}",
            lambda: all(self.joined(name) > count for name, count in before.items()),
            self,
        )
        self.await_units(*before, more=1)
        return time.monotonic() - began

    def await_gone(self, name: str) -> None:
        """Until it has noticed that a volunteer's connection is dead."""
        self._there.until(
            f"{name} is gone", lambda: not (self.member(name) or {})["connected"], self
        )

    def to_the_end(self, *, with_worker_0: bool = False) -> Status:
        """Let them train all of it, then worker 0 judge; what came of it, every batch once.

        `with_worker_0`: it trains the rest with them.
        """
        wanted = self.epochs * RECORDS
        if not with_worker_0:
            self._there.until("all is trained", lambda: self.status()["samples"] >= wanted, self)
            assert self.status()["phase"] != "over", "worker 0 was to be stopped"
        self._signal_worker_0(signal.SIGCONT)
        assert self.await_end() == 0, self._there.told()
        found: Status = json.loads(self._outcome.read_text())
        assert found["state"] == "finished"
        assert found["samples"] == sum(m["samples"] for m in found["members"]) == wanted
        assert (found["epochs_done"], found["set_aside"], found["setbacks"]) == (self.epochs, 0, 0)
        # Who comes back may be given the very unit whose update it brings: that one is refused.
        assert set(found["refused_by_reason"]) <= {"wrong_base"}, found["refused_by_reason"]
        assert found["test"] is not None
        return found

    def _signal_worker_0(self, number: signal.Signals) -> None:
        for pid in _children_of(self.pid):
            with contextlib.suppress(OSError):
                if b"worker-0" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    for one in (pid, *_children_of(pid)):
                        os.kill(one, number)


class World:
    def __init__(self, net: Net) -> None:
        self.net = net
        self.folder = net.folder
        self.processes: list[Process] = []

    def add(self, name: str, address: str, *, link: str = "lan", gateway: str = "") -> Machine:
        return self.net.add(name, address, link=link, gateway=gateway)

    def relay(self, machine: Machine) -> Service:
        return self._kept(Service(self, machine, "relay", RELAY_PORT))

    def matchmaker(self, machine: Machine, *options: str) -> Service:
        url = f"http://{machine.address}:{MATCHMAKER_PORT}"
        options = ("--database", "memory:", "--plain-http", "--public-url", url, *options)
        return self._kept(Service(self, machine, "matchmaker", MATCHMAKER_PORT, *options))

    def host(
        self,
        machine: Machine,
        *options: str,
        epochs: int = 4,
        volunteers: int = 1,
        lan: bool = False,
        silence_s: float = 10.0,
        more: str = "",
    ) -> Host:
        """It trains once so many volunteers are there. `lan`: it announces itself by mDNS.

        `silence_s`: after which a connection is dead; the default is everybody's.
        """
        env = {} if lan else {"CROWDGRAD_LAN": "no"}
        env |= {"CROWDGRAD_SILENCE_S": str(silence_s), "CROWDGRAD_HEARTBEAT_S": str(silence_s / 5)}
        options = ("--port", str(HOST_PORT), *options)
        made = functools.partial(Host, epochs=epochs, volunteers=volunteers, env=env, more=more)
        return self._kept(made(self, machine, *options))

    def volunteer(
        self, machine: Machine, *arguments: str, pace_ms: float = 10.0, lan: bool = False
    ) -> Process:
        env = {} if lan else {"CROWDGRAD_LAN": "no"}
        return self._kept(
            Process(
                self, machine, machine.name, "work", *arguments, "--yes", "--plain", "--once",
                "--name", machine.name, "--pace", str(pace_ms), env=env,
            )
        )  # fmt: skip

    def named(self, name: str) -> Process:
        (found,) = [process for process in self.processes if process.name == name]
        return found

    def until(
        self, what: str, condition: Callable[[], object], alive: Process | None = None
    ) -> float:
        """Wait until it is so; how long that took. `alive`: whoever has to live meanwhile."""
        began = time.monotonic()
        while not condition():
            if alive is not None and alive.code is not None:
                raise AssertionError(f"{alive.name} ended before {what}\n{self.told()}")
            if time.monotonic() - began > PATIENCE_S:
                raise AssertionError(f"waited in vain: {what}\n{self.told()}")
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def told(self) -> str:
        """The last words of everybody, for whoever reads a failure."""
        logs = sorted((*self.folder.glob("*.log"), *self.folder.rglob("host.jsonl")))
        return "\n".join(f"== {log.stem}\n{_last_of(log.read_text())}" for log in logs)

    def _kept(self, process: P) -> P:
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Politely, so that nothing is left in shared memory; the network kills who stays."""
        for process in self.processes:
            if process.code is None:
                process.ask_to_stop()
        deadline = time.monotonic() + PARTING_S
        while time.monotonic() < deadline and any(p.code is None for p in self.processes):
            time.sleep(LOOK_S)


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    with Net(folder) as net:
        there = World(net)
        try:
            yield there
        finally:
            there.end()


# -- misfortunes: each returns when the network works again ----------------------------------------

Misfortune = Callable[[World, Host, Process], None]


def readdressed(there: World, host: Host, volunteer: Process) -> None:
    """Another address, as after a walk from one room to the next."""
    last = int(volunteer.machine.address.rpartition(".")[2])
    volunteer.machine.readdress(f"10.77.0.{last + 100 if last < 100 else last - 100}")


def outage(there: World, host: Host, volunteer: Process, seconds: float = 0.0) -> None:
    """Nothing passes, for so long, or until both sides have noticed."""
    began, tried = time.monotonic(), volunteer.said.count(AGAIN)
    volunteer.machine.cut()
    host.await_gone(volunteer.name)
    there.until("both have noticed", lambda: volunteer.said.count(AGAIN) > tried, host)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    volunteer.machine.mend()


def half_open(there: World, host: Host, volunteer: Process) -> None:
    """The volunteer's end breaks, and the host hears nothing of it: it believes in the old one."""
    tried = volunteer.said.count(AGAIN)
    volunteer.machine.run(["nft", _RESETS])
    there.until("it has noticed", lambda: volunteer.said.count(AGAIN) > tried, host)
    assert (host.member(volunteer.name) or {})["connected"]
    volunteer.machine.run(["nft", "delete table inet resets"])


def one_way_in(there: World, host: Host, volunteer: Process) -> None:
    """What the volunteer says arrives, and it hears nothing."""
    tried = volunteer.said.count(AGAIN)
    volunteer.machine.drop_incoming()
    there.until("it has noticed", lambda: volunteer.said.count(AGAIN) > tried, host)
    volunteer.machine.mend()


def one_way_out(there: World, host: Host, volunteer: Process) -> None:
    """It hears everything, and nobody hears it."""
    volunteer.machine.drop_outgoing()
    host.await_gone(volunteer.name)
    volunteer.machine.mend()


MISFORTUNES: dict[str, Misfortune] = {
    "readdressed": readdressed,
    "outage": outage,
    "half_open": half_open,
    "one_way_in": one_way_in,
    "one_way_out": one_way_out,
}
_RESETS = """
table inet resets {
    chain output {
        type filter hook output priority 0; policy accept;
        oifname "eth0" meta l4proto tcp reject with tcp reset
    }
}
"""


def _children_of(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _last_of(log: str) -> str:
    lines = [line for line in log.splitlines() if "samples/s" not in line]
    return "\n".join(lines[-25:])
