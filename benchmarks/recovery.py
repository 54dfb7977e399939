"""A host that is killed again and again, and what that costs.

back_s               from the start of `crowdgrad host --resume` to the first accepted update
back_max_s           the longest of these
lost_s               training time undone by a kill: from the moment whose state the resumed host
                     has to the kill
lost_max_s           the most of these; `checkpoint_s` is 5 s
accuracy_gap_points  test accuracy against that of fault-free runs of the same job and seed, the
                     largest difference, in points
accuracy_change      the mean of these differences, with its sign
double_counted       samples in the ledger that are none of records × epochs, over all jobs
told_twice           lines of metrics.jsonl that go back behind an earlier one, over all jobs
kills                SIGKILLs of the host process in all
kills_in_a_write     of these, how many left a half-written checkpoint behind
volunteers_lost      volunteers that did not come back by themselves
auto_back_s          from the SIGKILL of a host under `crowdgrad host`'s own watch to the first
                     accepted update, nobody resuming it
auto_back_max_s      the longest of these

MNIST, 784-100-10, real processes: a host with its own worker and two volunteers. Kills fall on
random points of the training; every other one waits there for the next checkpoint and falls into
its writing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _processes import Host, Process, Status, end, job_file, new_home, volunteer, wait_for
from _report import Report, arguments

from crowdgrad.files import PART

VOLUNTEERS = 2
BATCH = 25
RATE = 0.02
LOOK_S = 0.02
WRITE_SOON_S = 15.0
"""A checkpoint is written within this time, or something is wrong."""
PATIENCE_S = 600.0


@dataclass(slots=True)
class Found:
    back: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    auto_back: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    double_counted: int = 0
    told_twice: int = 0
    in_a_write: int = 0
    volunteers_lost: int = 0


class Diary(threading.Thread):
    """When how many updates had been accepted, in one life of a host."""

    def __init__(self, host: Host) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, int]] = []
        self.progress = 0.0
        self.over = False
        self._host = host
        self._enough = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._enough.is_set() and not self.over:
            asked, status = time.monotonic(), self._host.status()
            if status is not None:
                self.seen.append((asked, status["updates"]))
                self.progress = status["progress"]
                self.over = status["phase"] != "training"
            time.sleep(LOOK_S)

    def close(self) -> None:
        self._enough.set()
        self.join()

    def last_at_or_below(self, updates: int) -> float:
        """The last moment known to have had no more updates than these."""
        return max((at for at, count in self.seen if count <= updates), default=self.seen[0][0])


class Trial:
    """One job from beginning to end, its host killed at some points of progress."""

    def __init__(self, folder: Path, home: Path, *, seed: int, epochs: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._home = home
        self._epochs = epochs
        job = job_file(folder, epochs=epochs, seed=seed, lr=RATE, batch_size=BATCH)
        self._host = Host(job, folder / "host", home)
        self._volunteers: list[Process] = []

    def run(self, kills: list[float], chance: random.Random, found: Found) -> float:
        """Accuracy at the end, in per cent. `kills`: at which progress, 0 to 1."""
        try:
            self._host.start()
            self._host.await_start()
            where = f"127.0.0.1:{self._host.port}"
            self._volunteers = [
                volunteer(where, f"v{number}", self._home, logs=self._folder)
                for number in range(1, VOLUNTEERS + 1)
            ]
            for number, point in enumerate(kills):
                self._kill_and_resume(point, chance, found, in_a_write=number % 2 == 0)
            found.volunteers_lost += sum(one.code is not None for one in self._volunteers)
            status = self._host.finish(PATIENCE_S)
        finally:
            end([self._host.process, *self._volunteers])
        found.double_counted += self._miscounted(status)
        found.told_twice += told_twice(self._host)
        return 100 * float(status["test"]["metrics"]["accuracy"])

    def _kill_and_resume(
        self, point: float, chance: random.Random, found: Found, *, in_a_write: bool
    ) -> None:
        host, diary = self._host, Diary(self._host)
        checkpoints = host.folder / "resume" / "checkpoints"
        wait_for(
            f"progress of {point:.0%}",
            lambda: diary.over or (diary.progress >= point and diary.seen and any_in(checkpoints)),
            host.alive,
            PATIENCE_S,
        )
        if in_a_write:
            wait_for_a_draft(checkpoints)
            time.sleep(chance.uniform(0.0, 0.001))
        if diary.over:
            raise SystemExit("The job ended before all kills: give it more epochs.")
        killed = host.kill()
        diary.close()
        found.in_a_write += bool(drafts(checkpoints))
        began = host.resume()
        host.await_start()
        first = first_answer(host)
        found.lost.append(killed - diary.last_at_or_below(first["updates"]))
        await_more(host, first["updates"])
        found.back.append(time.monotonic() - began)
        lost, back = found.lost[-1], found.back[-1]
        print(f"killed at {point:.0%}: {lost:.2f} s lost, back in {back:.2f} s", file=sys.stderr)

    def _miscounted(self, status: Status) -> int:
        """Samples too many or too few, whoever counts them."""
        records = status_records(self._host)
        samples = int(status["samples"])
        members = sum(int(member["samples"]) for member in status["members"])
        return abs(samples - records * self._epochs) + abs(members - samples)


def told_twice(host: Host) -> int:
    lines = map(json.loads, (host.folder / "metrics.jsonl").read_text().splitlines())
    updates = [line["updates"] for line in lines if line["kind"] == "training"]
    return sum(later < earlier for earlier, later in itertools.pairwise(updates))


def status_records(host: Host) -> int:
    """Records of the training split, as the run folder tells."""
    told = json.loads((host.folder / "job.json").read_text())
    return int(told["data"]["records"]["train"])


def any_in(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(name.endswith(".pack") for name in os.listdir(folder))
    return False


def drafts(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(PART)]


def wait_for_a_draft(folder: Path) -> None:
    """Until a checkpoint is being written; it takes milliseconds, so we look often."""
    deadline = time.monotonic() + WRITE_SOON_S
    while not drafts(folder):
        if time.monotonic() > deadline:
            raise SystemExit(f"No checkpoint was written within {WRITE_SOON_S:.0f} s.")
        time.sleep(0.0002)


def first_answer(host: Host) -> Status:
    while (status := host.status()) is None:
        if said := host.alive():
            raise SystemExit(f"The host ended: {said}")
        time.sleep(LOOK_S)
    return status


def await_more(host: Host, updates: int) -> None:
    def grown() -> bool:
        status = host.status()
        return status is not None and status["updates"] > updates

    wait_for("an accepted update", grown, host.alive)


def automatically(folder: Path, home: Path, times: int, found: Found) -> None:
    """Kill a supervised host and only watch."""
    folder.mkdir()
    host = Host(job_file(folder), folder / "host", home, supervised=True)
    try:
        host.start()
        host.await_start()
        for _ in range(times):
            checkpoints = host.folder / "resume" / "checkpoints"
            await_more(host, first_answer(host)["updates"])
            wait_for("a checkpoint", lambda: any_in(checkpoints), host.alive)  # noqa: B023
            dead = host.pid
            began = host.kill()
            host.await_start(other_than=dead)
            await_more(host, first_answer(host)["updates"])
            found.auto_back.append(time.monotonic() - began)
    finally:
        end([host.process])


def measure(folder: Path, *, seeds: list[int], kills: int, epochs: int, autos: int) -> Found:
    found, home = Found(), new_home(folder / "home")
    for seed in seeds:
        chance = random.Random(seed)
        points = sorted(chance.uniform(0.08, 0.95) for _ in range(kills))
        killed = Trial(folder / f"killed-{seed}", home, seed=seed, epochs=epochs)
        accuracy = killed.run(points, chance, found)
        spared = Trial(folder / f"spared-{seed}", home, seed=seed, epochs=epochs)
        usual = spared.run([], chance, found)
        print(f"seed {seed}: {accuracy:.2f} %, fault-free {usual:.2f} %", file=sys.stderr)
        found.gaps.append(accuracy - usual)
    automatically(folder / "auto", home, autos, found)
    return found


def main() -> None:
    args = arguments(__doc__)
    seeds = [0] if args.quick else [0, 1, 2, 3, 4]
    report = Report("recovery", args.quick, seeds=seeds)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        found = measure(
            Path(name),
            seeds=seeds,
            kills=5 if args.quick else 10,
            epochs=10 if args.quick else 20,
            autos=2 if args.quick else 4,
        )
    report.add("back_s", found.back)
    report.add("back_max_s", [max(found.back)])
    report.add("lost_s", found.lost)
    report.add("lost_max_s", [max(found.lost)])
    report.add("accuracy_gap_points", [max(map(abs, found.gaps))])
    report.add("accuracy_change", [statistics.mean(found.gaps)])
    report.add("double_counted", [found.double_counted])
    report.add("told_twice", [found.told_twice])
    report.add("kills", [len(found.back)])
    report.add("kills_in_a_write", [found.in_a_write])
    report.add("volunteers_lost", [found.volunteers_lost])
    report.add("auto_back_s", found.auto_back)
    report.add("auto_back_max_s", [max(found.auto_back)])
    report.write(args.json)


if __name__ == "__main__":
    main()
