"""Real processes to lose: a host that is killed and resumed, volunteers that are killed or stopped.

All are tied to the benchmark by their standard input: when it ends, however it ends, so do they.
What a host has done is read from its HTTP API, as anybody could.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdgrad.data import catalogue
from crowdgrad.process import Child
from crowdgrad.settings import load

Status = dict[str, Any]
START_S = 180.0
GOING_S = 30.0
ANSWER_S = 10.0
POLL_S = 0.02


def job_file(
    folder: Path,
    *,
    epochs: int = 1_000_000,
    seed: int = 0,
    lr: float = 0.05,
    batch_size: int = 100,
) -> Path:
    """784-100-10 on MNIST, one batch a unit, so that units are batches."""
    file = folder / f"mnist-{seed}.toml"
    file.write_text(
        f'title = "MNIST"\ntask = "crowdgrad.capture.models:mnist_mlp"\ndata = "mnist"\n'
        f'seed = {seed}\n[recipe]\nname = "async_sgd"\nlr = {lr}\nbatch_size = {batch_size}\n'
        f"batches_per_unit = 1\n[stop]\nepochs = {epochs}\n"
    )
    return file


def new_home(folder: Path) -> Path:
    """A home folder of its own, but with the data sets this machine has already."""
    cache = load().home / "data"
    catalogue.load("mnist", cache=cache)
    folder.mkdir(parents=True)
    (folder / "data").symlink_to(cache)
    return folder


def free_port() -> int:
    """One that is free now: a resumed host must be found where it was."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process(Child):
    """One of our commands as a process that can be stopped as a lid that is closed stops it."""

    def freeze(self) -> None:
        """SIGSTOP of all its processes."""
        signal_all(self.pid, signal.SIGSTOP)


def end(processes: Sequence[Process], patience_s: float = 5.0) -> None:
    """Ask all to go, kill who stays. One that is stopped hears nothing: it is killed at once."""
    for process in processes:
        if process.code is None and not _stopped(process.pid):
            process.ask_to_stop()
    deadline = time.monotonic() + patience_s
    for process in processes:
        if not _stopped(process.pid):
            process.wait(max(0.0, deadline - time.monotonic()))
        process.kill()


def signal_all(pid: int, number: signal.Signals) -> None:
    """To a process and those it started: a volunteer's agent and trainer."""
    for one in (pid, *children_of(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, number)


def children_of(pid: int) -> list[int]:
    """The processes that `pid` started: a volunteer's trainer."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class Host:
    """`crowdgrad host`, at one address through all its lives."""

    def __init__(
        self,
        job: Path,
        folder: Path,
        home: Path,
        *,
        listen: str = "127.0.0.1",
        supervised: bool = False,
        more: Sequence[str] = (),
        before: Sequence[str] = (),
    ) -> None:
        """It runs from `start` on. Its results go to `folder`. `more`: further options; `before`:
        what the command is put behind."""
        self._job = job
        self._folder = folder
        self._announced = folder / "here.json"
        self._outcome = folder / "outcome.json"
        self._process: Process | None = None
        self._http: http.client.HTTPConnection | None = None
        self.here: Mapping[str, Any] = {}
        self.port = free_port()
        self._options = ["--host", listen, "--port", str(self.port), "--yes", "--plain",
                         "--home", str(home), "--runs", str(folder / "runs"),
                         "--announce", str(self._announced),
                         "--json", str(self._outcome)]  # fmt: skip
        self._options += more
        self._before = before
        if not supervised:
            self._options.append("--no-supervise")
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> float:
        return self._start(["host", str(self._job), *self._options])

    def resume(self) -> float:
        """Start it again from what it left; when that was."""
        return self._start(["host", "--resume", str(self.folder), *self._options])

    def _start(self, arguments: Sequence[str]) -> float:
        self._announced.unlink(missing_ok=True)
        self._forget()
        began = time.monotonic()
        self._process = Process(arguments, log=self._folder / "host.log", before=self._before)
        return began

    def await_start(self, other_than: int = 0) -> None:
        """Until it has said where it is; `other_than`: a process that is known to be dead."""
        wait_for("the host to start", lambda: self._announcement(other_than), self.alive)
        self._forget()

    def _announcement(self, other_than: int) -> bool:
        try:
            here = json.loads(self._announced.read_text())
        except (OSError, ValueError):
            return False
        self.here = here
        return bool(here.get("pid", self.process.pid) != other_than)

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def pid(self) -> int:
        """Of the process that trains, not of one that watches over it."""
        return int(self.here.get("pid", self.process.pid))

    @property
    def worker_0(self) -> int:
        """The process of the host's own worker. Raises SystemExit where there is none."""
        for pid in children_of(self.pid):
            with contextlib.suppress(OSError):
                if b"worker-0" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return pid
        raise SystemExit("The host has no worker 0.")

    @property
    def folder(self) -> Path:
        """The run's."""
        return Path(self.here["folder"])

    def alive(self) -> str:
        """Empty while it runs, else what it said last."""
        return "" if self.process.code is None else self.process.last_words() or "ended"

    def status(self) -> Status | None:
        """None while it does not answer."""
        reused = self._http is not None
        found = self._ask()
        if found is None and reused:  # it may merely have closed a connection that was idle
            found = self._ask()
        return found

    def _ask(self) -> Status | None:
        try:
            if self._http is None:
                where = str(self.here["url"]).removeprefix("http://")
                self._http = http.client.HTTPConnection(where, timeout=ANSWER_S)
            self._http.request("GET", "/status")
            found = json.loads(self._http.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            self._forget()
            return None
        return found if isinstance(found, dict) else None

    def kill(self) -> float:
        """SIGKILL of the process that trains; when it was gone."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        if pid == self.process.pid:
            self.process.kill()
        self._forget()
        return time.monotonic()

    def finish(self, timeout_s: float) -> Status:
        """Wait for the end of training; the last status. Raises when it did not end well."""
        code = self.process.code if self.process.wait(timeout_s) else "nothing yet"
        if code != 0:
            raise SystemExit(f"The host ended with {code}:\n{self.process.last_words()}")
        found = json.loads(self._outcome.read_text())
        assert isinstance(found, dict)
        return found

    def _forget(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def volunteer(
    address: str,
    name: str,
    home: Path,
    *,
    pace_ms: float = 0.0,
    logs: Path,
    before: Sequence[str] = (),
) -> Process:
    """`crowdgrad work ADDRESS` with a key of its own."""
    return Process(
        ["work", address, "--guest", "--yes", "--plain", "--name", name, "--home", str(home),
         "--pace", f"{pace_ms:g}", "--cpu", "100%", "--on-battery"],
        log=logs / f"{name}.log",
        before=before,
    )  # fmt: skip


def units_of(status: Status) -> dict[str, int]:
    """Accepted units by name. Names are given once here, except to worker 0, which is replaced."""
    units: dict[str, int] = {}
    for member in status["members"]:
        units[member["name"]] = units.get(member["name"], 0) + member["units"]
    return units


def connected_of(status: Status) -> int:
    """How many are here; of a crowd the status does not name them all."""
    named = sum(member["connected"] for member in status["members"])
    return int(named + status["others"]["connected"])


def wait_for(
    what: str,
    condition: Callable[[], object],
    dead: Callable[[], str] = lambda: "",
    timeout_s: float = START_S,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if said := dead():
            raise SystemExit(f"Waited for {what}, but: {said}")
        if time.monotonic() > deadline:
            raise SystemExit(f"Waited {timeout_s:.0f} s in vain for {what}.")
        time.sleep(POLL_S)
