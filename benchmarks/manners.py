"""How exactly a volunteer keeps to what its owner allows: processor time and bandwidth.

A real host trains 784-100-10 on MNIST with one real volunteer, `crowdgrad work --cpu-idle SHARE`
and `--cpu SHARE`, for 25, 50 and 75 % of the time, each on a core of its own. What counts is the
processor time of the volunteer's trainer, as the kernel counts it, over the time that passed.

cpu_share_error   the largest deviation of any window from the share asked for, relative; the
                  promise is 0.1
kept_PERCENT      the share that was kept
starved           how much of the time the trainer wanted a core and others had it. It gives way to
                  all, and that counts as rest; but where share and starved together are more than
                  all the time there is, the share was out of reach and the window says nothing:
                  it is taken again, ten times at most
retaken           how many were
agent_PERCENT     what the volunteer's other process, which talks to the host, takes beside it: no
                  limit is kept there, so this is to be seen
bandwidth_error   the largest deviation from caps of 5 and 20 Mbit/s, up and down, over four
                  connections, measured as `caps` does; the promise is 0.05
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _processes import Host, Process, children_of, end, job_file, new_home, units_of, wait_for
from _report import Report, arguments
from _windows import cpu_s
from caps import FIRST_S, MBIT_BYTES, Place, deviation, ends

PERCENTS = (25, 50, 75)
CAPS_MBPS = (5, 20)
CONNECTIONS = 4
SETTLING_S = 2.0
IN_REACH = 0.95
"""Of all the time: where computing and waiting for a core take more, a share is out of reach."""
TRIES = 10


class Share:
    """What a process has done of something since this was made, as a share of the time."""

    def __init__(self, seconds: Callable[[int], float], pid: int) -> None:
        self._seconds, self._pid = seconds, pid
        self._before, self._began = seconds(pid), time.perf_counter()

    def so_far(self) -> float:
        passed_s = time.perf_counter() - self._began
        return (self._seconds(self._pid) - self._before) / passed_s


class Bench:
    def __init__(self, report: Report, *, quick: bool) -> None:
        self._report = report
        self._starved: list[float] = []
        self._retaken = 0
        self._out_of_reach = False
        self._windows, self._window_s = (1, 5.0) if quick else (3, 10.0)

    def shares(self, folder: Path) -> None:
        home = new_home(folder / "home")
        host = Host(_job(folder), folder / "runs", home, before=_on(0))
        host.start()
        host.await_start()
        try:
            errors = [error for percent in PERCENTS for error in self._share(host, folder, percent)]
        finally:
            end([host.process])
        self._report.add("cpu_share_error", [max(errors)])
        self._report.add("starved", self._starved)
        self._report.add("retaken", [self._retaken])
        if self._out_of_reach:
            self._report.notes["cpu_share_error"] = "not valid: others had the trainer's core"

    def _share(self, host: Host, folder: Path, percent: int) -> list[float]:
        name, share = f"at-{percent}", percent / 100
        asked = f"{percent}%"
        process = Process(
            ["work", host.here["address"], "--guest", "--yes", "--plain", "--name", name,
             "--home", str(folder / "home"), "--cpu", asked, "--cpu-idle", asked, "--on-battery"],
            log=folder / f"{name}.log",
            before=_on(1),
        )  # fmt: skip
        try:
            wait_for("a volunteer at work", lambda: _units(host, name), host.alive)
            trainer = _trainer_of(process.pid)
            time.sleep(SETTLING_S)
            agent = Share(cpu_s, process.pid)
            kept = [self._undisturbed(trainer, share) for _ in range(self._windows)]
            beside = agent.so_far()
        finally:
            end([process])
        self._report.add(f"kept_{percent}", kept)
        self._report.add(f"agent_{percent}", [beside])
        return [abs(found - share) / share for found in kept]

    def _undisturbed(self, trainer: int, share: float) -> float:
        for tries in range(TRIES):
            kept, starved = self._window(trainer)
            if share + starved <= IN_REACH:
                break
            self._retaken += tries < TRIES - 1
        else:
            self._out_of_reach = True
        self._starved.append(starved)
        return kept

    def _window(self, trainer: int) -> tuple[float, float]:
        """The share that was kept, and how much of the time it waited for a core."""
        computing, waiting = Share(cpu_s, trainer), Share(_waited_s, trainer)
        time.sleep(self._window_s)
        return computing.so_far(), waiting.so_far()

    def bandwidth(self) -> None:
        errors = [abs(self._cap(way, mbps)) for way in ("up", "down") for mbps in CAPS_MBPS]
        self._report.add("bandwidth_error", [max(errors)])

    def _cap(self, way: str, mbps: float) -> float:
        here = Place(name="", far_host="127.0.0.1")
        with ends(here, way, CONNECTIONS, mbps) as (near, far):
            receiver = far if way == "up" else near
            time.sleep(FIRST_S)
            looks = []
            for pause_s in (0.0, self._window_s):
                time.sleep(pause_s)
                found = receiver.counts()
                looks.append((found["at"], found["read"]))
        return deviation(looks, 0, 1, mbps * MBIT_BYTES)


def _job(folder: Path) -> Path:
    """Ten batches a unit, so that the trainer, not its host, says how fast it goes."""
    file = job_file(folder)
    file.write_text(file.read_text().replace("batches_per_unit = 1\n", "batches_per_unit = 10\n"))
    return file


def _on(core: int) -> tuple[str, ...]:
    """On a core of its own, where it may choose: a trainer gives way to whoever else computes."""
    mine = sorted(os.sched_getaffinity(0))
    taskset = shutil.which("taskset")
    return (taskset, "-c", str(mine[core])) if taskset and len(mine) > core else ()


def _trainer_of(pid: int) -> int:
    """A volunteer also asks programs of this machine whether somebody uses it, a moment each."""
    words = {child: Path(f"/proc/{child}/cmdline") for child in children_of(pid)}
    (trainer,) = (child for child, file in words.items() if "start_trainer" in _read(file))
    return trainer


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # it has ended meanwhile
        return ""


def _waited_s(pid: int) -> float:
    """How long its threads have waited for a core."""
    waited_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


def _units(host: Host, name: str) -> int:
    status = host.status()
    return units_of(status).get(name, 0) if status is not None else 0


def main() -> None:
    args = arguments(__doc__)
    report = Report("manners", args.quick)
    bench = Bench(report, quick=args.quick)
    with tempfile.TemporaryDirectory() as folder:
        bench.shares(Path(folder))
    bench.bandwidth()
    report.write(args.json)


if __name__ == "__main__":
    main()
