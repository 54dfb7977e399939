"""What is lost when volunteers are lost, and how soon a killed host is back.

goodput                 accepted batches, each counted once, by what the volunteers could have done:
                        the seconds of each from its first accepted update to its death × 20 a
                        second, the rate of one that takes 50 ms a batch
goodput_vs_undisturbed  the same by the rate that an undisturbed one of them has in the same run
                        (`--pace` pauses 50 ms after every batch, so it is below 20)
undisturbed_rate        that rate, batches a second
longest_stall_s         the longest time without an accepted update of any volunteer after the first
host_recovery_s         from the start of `crowdgrad host --resume` after a SIGKILL to the first
                        accepted update
volunteers_recovery_s   the same to the first accepted update of a volunteer, worker 0 left out

Five volunteers, one lost every 5 s and replaced at once; a third of the losses are SIGKILL, a third
SIGSTOP, a third the link taken down so that the connection stays half-open. Worker 0 is stopped
(SIGSTOP) until the host is killed: volunteers have machines of their own, and what it does would
hide a stall. Doubts go against us: a volunteer's time begins at the last look before its first
update was seen, and ends when its loss has been done.
"""

from __future__ import annotations

import itertools
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _links import Link, Links
from _processes import (
    Host,
    Process,
    Status,
    end,
    job_file,
    new_home,
    signal_all,
    units_of,
    volunteer,
    wait_for,
)
from _report import Report, arguments

VOLUNTEERS = 5
PACE_MS = 50.0
RATE = 1000 / PACE_MS
LOST_EVERY_S = 5.0
BURIED_AFTER_S = 25.0
"""How long one that is stopped or cut off stays around: longer than the host waits for it."""
WARM_UP_S = 10.0
LOOK_S = 0.02
LOSSES = ("SIGKILL", "SIGSTOP", "link down")


@dataclass(slots=True)
class Life:
    """One volunteer, as far as the figures go. Times are those of this process's clock."""

    name: str
    process: Process
    link: Link
    began: float | None = None
    """Its first accepted update, or when the losses began."""
    died: float | None = None
    units: int = 0
    before: int = 0
    """Units that do not count: from before the losses began."""

    def lived_s(self, now: float) -> float:
        return 0.0 if self.began is None else (self.died or now) - self.began


@dataclass(slots=True)
class Crowd:
    """Five volunteers in the care of a clumsy hand, and what the host has counted of them."""

    host: Host
    links: Links
    folder: Path
    home: Path
    numbers: itertools.count[int]
    lives: list[Life] = field(default_factory=list)
    longest_stall_s: float = 0.0
    _looked: float = 0.0
    _grew: float | None = None
    _total: int = 0

    def join(self) -> None:
        name, link = f"v{next(self.numbers)}", self.links.add()
        where = f"{self.links.host}:{self.host.port}"
        process = volunteer(
            where, name, self.home, pace_ms=PACE_MS, logs=self.folder, before=link.before
        )
        self.lives.append(Life(name, process, link))

    def look(self) -> None:
        """Ask the host who has done what."""
        before, self._looked = self._looked, time.monotonic()
        status = self.host.status()
        if status is None:
            raise SystemExit(f"The host does not answer: {self.host.alive()}")
        units = units_of(status)
        for life in self.lives:
            life.units = units.get(life.name, 0)
            if life.units and life.began is None:
                life.began = before
        self._note_stall(sum(life.units for life in self.lives))

    def _note_stall(self, total: int) -> None:
        if total > self._total:
            if self._grew is not None:
                self.longest_stall_s = max(self.longest_stall_s, time.monotonic() - self._grew)
            self._grew, self._total = self._looked, total

    def begin(self) -> None:
        """Count from now on: what was undisturbed is no merit."""
        self.look()
        for life in self.lives:
            life.began, life.before = self._looked, life.units

    def watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(LOOK_S)

    @property
    def alive(self) -> list[Life]:
        return [life for life in self.lives if life.died is None]

    def lose(self, life: Life, how: str) -> None:
        if how == "SIGKILL":
            life.process.kill()
        elif how == "SIGSTOP":
            life.process.freeze()
        else:
            self.links.down(life.link)
        life.died = time.monotonic()

    def bury(self, after_s: float = 0.0) -> None:
        """Take away what has long been lost: processes that are stopped or cut off, links."""
        now = time.monotonic()
        for life in self.lives:
            gone = life.process.code is not None
            if life.died is not None and not gone and now - life.died >= after_s:
                life.process.kill()

    def goodput(self, now: float, rate: float) -> float:
        possible = rate * sum(life.lived_s(now) for life in self.lives)
        return sum(life.units - life.before for life in self.lives) / possible

    def dismiss(self) -> None:
        self.bury()
        end([life.process for life in self.alive])
        for life in self.lives:
            self.links.remove(life.link)


@dataclass(slots=True)
class Found:
    goodputs: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    volunteers_recoveries: list[float] = field(default_factory=list)


def repeat(crowd: Crowd, losses: int, chance: random.Random, found: Found) -> None:
    """Five volunteers undisturbed for a while, then one loss after another."""
    for _ in range(VOLUNTEERS):
        crowd.join()
    wait_for("five volunteers at work", lambda: _all_at_work(crowd), crowd.host.alive)
    rate = undisturbed_rate(crowd)
    found.rates.append(rate)
    crowd.begin()
    for how in shuffled(losses, chance):
        due = time.monotonic() + LOST_EVERY_S
        lost = chance.choice(crowd.alive)
        crowd.lose(lost, how)
        crowd.join()
        crowd.bury(BURIED_AFTER_S)
        crowd.watch(due - time.monotonic())
    crowd.look()
    now = time.monotonic()
    found.goodputs.append(crowd.goodput(now, RATE))
    found.relative.append(crowd.goodput(now, rate))
    found.stalls.append(crowd.longest_stall_s)


def _all_at_work(crowd: Crowd) -> bool:
    crowd.look()
    for life in crowd.lives:
        if life.process.code is not None:
            raise SystemExit(f"{life.name} ended: {life.process.last_words()}")
    return all(life.began is not None for life in crowd.lives)


def undisturbed_rate(crowd: Crowd) -> float:
    """Batches a second of one volunteer while nobody is lost."""
    crowd.look()
    before, began = {life.name: life.units for life in crowd.lives}, time.monotonic()
    crowd.watch(WARM_UP_S)
    took = time.monotonic() - began
    return statistics.median((life.units - before[life.name]) / took for life in crowd.lives)


def shuffled(losses: int, chance: random.Random) -> list[str]:
    """As many of each kind, in any order."""
    kinds = [LOSSES[number % len(LOSSES)] for number in range(losses)]
    chance.shuffle(kinds)
    return kinds


def recover(host: Host, chance: random.Random, times: int, found: Found) -> None:
    """Kill the host, start it again, wait for the first updates."""
    for _ in range(times):
        time.sleep(chance.uniform(3.0, 9.0))
        host.kill()
        began = host.resume()
        host.await_start()
        first = _answer(host)
        _grown(host, first, worker_0=True)
        found.recoveries.append(time.monotonic() - began)
        _grown(host, first, worker_0=False)
        found.volunteers_recoveries.append(time.monotonic() - began)


def _answer(host: Host) -> Status:
    found: list[Status] = []

    def asked() -> bool:
        found.extend(filter(None, [host.status()]))
        return bool(found)

    wait_for("the host to answer", asked, host.alive)
    return found[-1]


def _grown(host: Host, first: Status, *, worker_0: bool) -> None:
    """Until there are more accepted updates than at first."""

    def count(status: Status) -> int:
        return sum(m["units"] for m in status["members"] if worker_0 or m["position"] != 0)

    before = count(first)
    wait_for("an accepted update", lambda: count(_answer(host)) > before, host.alive)


def measure(folder: Path, *, quick: bool, seed: int) -> Found:
    found, chance = Found(), random.Random(seed)
    home = new_home(folder / "home")
    with Links() as links:
        host = Host(job_file(folder), folder / "host", home, listen="0.0.0.0")
        crowd = None
        try:
            host.start()
            host.await_start()
            _freeze_worker_0(host)
            numbers = itertools.count(1)
            for _ in range(2 if quick else 5):
                if crowd is not None:
                    crowd.dismiss()
                crowd = Crowd(host, links, folder, home, numbers)
                repeat(crowd, 6 if quick else 15, chance, found)
            recover(host, chance, 3 if quick else 9, found)
        finally:
            if crowd is not None:
                crowd.dismiss()
            end([host.process])
    return found


def _freeze_worker_0(host: Host) -> None:
    wait_for("worker 0", lambda: units_of(host.status() or {"members": []}), host.alive)
    signal_all(host.worker_0, signal.SIGSTOP)


def main() -> None:
    args = arguments(__doc__)
    report = Report("faults", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        found = measure(Path(name), quick=args.quick, seed=report.seeds[0])
    report.add("goodput", found.goodputs)
    report.add("goodput_vs_undisturbed", found.relative)
    report.add("undisturbed_rate", found.rates)
    report.add("longest_stall_s", found.stalls)
    report.add("host_recovery_s", found.recoveries)
    report.add("volunteers_recovery_s", found.volunteers_recoveries)
    report.write(args.json)


if __name__ == "__main__":
    main()
