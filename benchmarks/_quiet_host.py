"""A real host without a worker of its own, so that nothing but the exchange takes its machine.

`crowdgrad host` starts its worker 0 as ever; that process is stopped (SIGSTOP) before it has
joined. To the host it is a volunteer that never came: nothing is evaluated, everything else goes on
as always, checkpoints every few seconds included.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from _processes import (
    POLL_S,
    START_S,
    Host,
    Process,
    Status,
    children_of,
    end,
    signal_all,
    volunteer,
    wait_for,
)
from _windows import cpu_s, resident_mb

from crowdgrad.host.remote.control import Wish
from crowdgrad.host.remote.steering import steer

SETTLE_S = 0.5
"""Until all are at work again, or what was under way has been taken; volunteers that were told to
wait ask again five times a second."""
LAYERS = {"318kB": (784, 100, 10), "23MB": (784, 2048, 2048, 10)}
"""The models of the benchmarks, by the size of their parameters."""
Recipe = Mapping[str, str | float]
TASK = """
from crowdgrad.capture.models import mlp

task = mlp((28, 28), {hidden}, 10)
"""


def bytes_of(size: str) -> int:
    return 4 * sum(a * b + b for a, b in pairwise(LAYERS[size]))


def job_file(folder: Path, size: str, recipe: Recipe) -> Path:
    """A job on MNIST that does not end by itself."""
    return job_of(folder, TASK.format(hidden=LAYERS[size][1:-1]), "mnist", recipe)


def job_of(folder: Path, model: str, data: str, recipe: Recipe) -> Path:
    """`model`: Python that makes a `task`. `data`: a name, or an .npz file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(model)
    rows = "\n".join(f"{name} = {value!r}" for name, value in recipe.items())
    job = folder / "job.toml"
    job.write_text(
        f'title = "bench"\ntask = "model:task"\ndata = "{data}"\n[recipe]\n{rows}\n'
        "[stop]\nepochs = 1000000\n"
    )
    return job


@contextlib.contextmanager
def quiet_host(
    job: Path,
    folder: Path,
    home: Path,
    *,
    listen: str = "127.0.0.1",
    more: Sequence[str] = (),
    before: Sequence[str] = (),
) -> Generator[Host]:
    host = Host(job, folder, home, listen=listen, more=more, before=before)
    host.start()
    stopped = 0
    try:
        host.await_start()
        stopped = still(host)
        yield host
    finally:
        if stopped:  # it would not hear that it is to go
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
        end([host.process])


def still(host: Host) -> int:
    """Stop worker 0 as soon as it is there; its process."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(SystemExit):
            pid = host.worker_0
            signal_all(pid, signal.SIGSTOP)
            return pid
        time.sleep(POLL_S / 4)
    raise SystemExit("The host's own worker never came.")


class Crew:
    """Real volunteers at work for a quiet host, in windows: in between the host is paused."""

    def __init__(self, host: Host, volunteers: list[Process]) -> None:
        self.host = host
        self.volunteers = volunteers

    def window(self, seconds: float) -> Did:
        """What all of them did in about so many seconds; then they stand still again."""
        self._wish("resume")
        time.sleep(SETTLE_S)
        before, taken = self._status(), self._cpu_s()
        time.sleep(seconds)
        after = self._status()
        host, agents, trainers = (b - a for a, b in zip(taken, self._cpu_s(), strict=True))
        self._wish("pause")
        time.sleep(SETTLE_S)
        return Did(
            samples=after["samples"] - before["samples"],
            updates=after["updates"] - before["updates"],
            seconds=after["elapsed_s"] - before["elapsed_s"],
            host_cpu_s=host,
            agents_cpu_s=agents,
            trainers_cpu_s=trainers,
        )

    def memory_mb(self) -> tuple[float, float]:
        """Of the first agent and of its trainer. The arena they share is in both."""
        agent = self.volunteers[0].pid
        return resident_mb(agent), sum(map(resident_mb, children_of(agent)))

    def _cpu_s(self) -> tuple[float, float, float]:
        """Of the host, of all agents, of all trainers."""
        agents = [volunteer.pid for volunteer in self.volunteers]
        trainers = [child for agent in agents for child in children_of(agent)]
        return cpu_s(self.host.pid), sum(map(cpu_s, agents)), sum(map(cpu_s, trainers))

    def _status(self) -> Status:
        status = self.host.status()
        assert status is not None, self.host.alive()
        return status

    def _wish(self, wish: Wish) -> None:
        answer = steer(self.host.folder, self._status()["job"], wish)
        if answer is None or not answer.holds:
            raise SystemExit(f"The host does not {wish}: {answer}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Did:
    """What a crew did in one window, as its host counts it: by its own clock, pauses left out."""

    samples: int
    updates: int
    seconds: float
    host_cpu_s: float
    agents_cpu_s: float
    trainers_cpu_s: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds


@contextlib.contextmanager
def crew(
    job: Path, folder: Path, home: Path, volunteers: int, *, pace_ms: float = 0.0
) -> Generator[Crew]:
    """A quiet host and `crowdgrad work` so many times, all with the data they need, paused."""
    with quiet_host(job, folder, home) as host:
        names = [f"{folder.name}-{number}" for number in range(volunteers)]
        address = str(host.here["address"])
        started = [volunteer(address, name, home, pace_ms=pace_ms, logs=folder) for name in names]
        try:
            all_at_work = lambda: _units(host) >= volunteers  # noqa: E731
            wait_for("the volunteers' first updates", all_at_work, host.alive)
            found = Crew(host, started)
            found.window(SETTLE_S)
            yield found
        finally:
            end(started)


def _units(host: Host) -> int:
    """How many have had an update accepted."""
    status = host.status()
    return sum(member["units"] > 0 for member in status["members"]) if status else 0
