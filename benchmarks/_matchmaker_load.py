"""The load on a matchmaker: its own process, so that it takes nothing from what it measures.

    python _matchmaker_load.py PLAN.json FOUND.json

Four phases: people come until so many wait; they rest; hosts ask for eight while others come and
leave; and far more come than before, for a while. It is an open loop: who comes when is decided
beforehand and does not depend on how long anybody takes. How late the load itself was is part of
what it found.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

from _matchmaker_callers import Book, Host, Stage, Volunteer
from _matchmaker_figures import (
    REFUSED,
    WELCOMED,
    Second,
    by_second,
    impoliteness,
    quantile,
    recovery_s,
    waits,
)
from _matchmaker_people import Town
from _processes import children_of

from crowdgrad.net import rooms
from crowdgrad.process import die_with_parent, run_async

SPARE_SOCKETS = 1500
"""For those who come and leave while hosts ask."""
MOST_AT_ONCE = 32
"""When we are late, so many come before anything else is looked at."""
MORE = 1.03
"""So many come to wait, since some always work for a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    where: str
    """The matchmaker's address: host:port."""
    pid: int
    database_pid: int = 0
    """0: the database is part of the matchmaker."""
    seed: int = 0
    waiting: int = 10_000
    joins_per_s: float = 500.0
    rest_s: float = 20.0
    repetitions: int = 3
    requests: int = 200
    requests_per_s: float = 4.0
    unhelped: int = 20
    """Jobs that nobody suits, all the time."""
    calm_per_s: float = 50.0
    calm_s: int = 10
    surge_per_s: float = 1000.0
    surge_s: int = 60
    after_s: int = 45
    stay_s: float = 5.0
    """How long those of a surge stay."""


@dataclass(slots=True, kw_only=True)
class Phase:
    """What was seen; shares are of one core."""

    seconds: float
    knocks: int
    """Attempts to join, second ones too."""
    admitted: int
    refused: int
    impolite: dict[str, int]
    join_p50_s: float = 0.0
    join_p99_s: float = 0.0
    lost: int
    lag_p99_s: float
    lag_most_s: float
    own_share: float
    service_share: float
    database_share: float
    service_delayed: float
    """Share of the time in which the service was ready to run and others had the core."""
    own_delayed: float
    service_bytes: int
    waiting: int = 0
    """The fewest that the service counted at any time."""
    filled: list[float] = field(default_factory=list)
    """Seconds from "host needs 8" to "all eight told", of every request."""
    dialled: list[float] = field(default_factory=list)
    """… from the host's first dialling."""
    unfilled: int = 0
    hosts_refused: int = 0
    gave_up: int = 0


@dataclass(slots=True, kw_only=True)
class Found:
    empty_bytes: int
    fill: Phase
    rest: Phase
    matching: list[Phase]
    surge: Phase
    seconds: list[Second]
    recovery_s: float | None


class Usage:
    """Processor time and memory of a process and those it started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def _family(self) -> list[int]:
        return [self._pid, *children_of(self._pid)] if self._pid else []

    def cpu_s(self) -> float:
        return sum(map(_cpu_s, self._family()))

    def delayed_s(self) -> float:
        """How long its first thread could have run but others had the core."""
        return _delayed_s(self._pid)

    def resident_bytes(self) -> int:
        return sum(map(_resident_bytes, self._family()))


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100  # clock ticks; Linux has 100 everywhere


def _delayed_s(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


class Load:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._town = Town(plan.seed)
        self._stage = Stage(plan.where, plan.seed)
        self._service = Usage(plan.pid)
        self._database = Usage(plan.database_pid)
        self._chance = self._stage.dice

    async def run(self) -> Found:
        empty_bytes = self._service.resident_bytes()
        fill = await self._fill()
        rest = await self._rest()
        matching = [await self._match(number) for number in range(self._plan.repetitions)]
        surge, seconds, recovered_s = await self._surge()
        return Found(empty_bytes=empty_bytes, fill=fill, rest=rest, matching=matching, surge=surge,
                     seconds=seconds, recovery_s=recovered_s)  # fmt: skip

    # The phases

    async def _fill(self) -> Phase:
        """Until so many wait, and the jobs are here that suit none of them."""
        people = self._town.volunteers(int(MORE * self._plan.waiting))
        hosts = [
            Host(self._stage, caller, hold_s=None)
            for caller in self._town.unhelped(self._plan.unhelped)
        ]
        with self._measured("fill") as measured:
            for host in hosts:
                host.come()
            await self._until(lambda: all(host.done.done() for host in hosts), "the first hosts")
            crowd = iter([Volunteer(self._stage, person, patient=True) for person in people])
            times = self._arrivals(self._plan.joins_per_s, count=len(people))
            await self._pace(times, lambda: next(crowd).come())
            await self._until(lambda: len(self._stage.here) == len(people), "everybody to be in")
        return measured()

    async def _rest(self) -> Phase:
        with self._measured("rest") as measured:
            await asyncio.sleep(self._plan.rest_s)
        waiting = await self._waiting()
        phase = measured()
        phase.waiting = waiting
        return phase

    async def _match(self, number: int) -> Phase:
        """Hosts ask for eight; others come and leave, half of them without a word."""
        plan = self._plan
        requests = self._arrivals(plan.requests_per_s, count=plan.requests)
        hosts = [
            Host(self._stage, caller, hold_s=self._chance.uniform(0.5, 1.5))
            for caller in self._town.hosts(plan.requests)
        ]
        comings = self._arrivals(plan.joins_per_s, seconds=requests[-1] + 1.0)
        crowd = iter(self._visitors(len(comings), longest_s=3.0))
        asking = iter(hosts)
        fewest = [1 << 31]
        with self._measured(f"match {number + 1}") as measured:
            watching = asyncio.create_task(self._watch(fewest))
            await asyncio.gather(
                self._pace(comings, lambda: next(crowd).come()),
                self._pace(requests, lambda: next(asking).come()),
            )
            await asyncio.gather(*[host.done for host in hosts])
            watching.cancel()
        await self._close()
        phase = measured()
        phase.waiting = fewest[0]
        await self._until(lambda: len(self._stage.here) <= 1.05 * plan.waiting, "visitors to leave")
        return phase

    async def _surge(self) -> tuple[Phase, list[Second], float | None]:
        plan = self._plan
        over_at_s = plan.calm_s + plan.surge_s
        length_s = over_at_s + plan.after_s
        times = [
            *self._arrivals(plan.calm_per_s, seconds=plan.calm_s),
            *(plan.calm_s + at for at in self._arrivals(plan.surge_per_s, seconds=plan.surge_s)),
            *(over_at_s + at for at in self._arrivals(plan.calm_per_s, seconds=plan.after_s)),
        ]
        crowd = iter(self._visitors(len(times), longest_s=2 * plan.stay_s - 1.0))
        with self._measured("surge") as measured:
            book = self._stage.book
            await self._pace(times, lambda: next(crowd).come())
            await asyncio.sleep(max(0.0, length_s - (time.perf_counter() - book.began)))
        await self._close()
        recovered_s = recovery_s(
            book.attempts, before_s=plan.calm_s, over_at_s=over_at_s, end_s=length_s
        )
        return measured(), by_second(book.attempts, length_s), recovered_s

    # What they are made of

    def _visitors(self, count: int, *, longest_s: float) -> list[Volunteer]:
        people = self._town.volunteers(count)
        return [
            Volunteer(self._stage, person, stay_s=self._chance.uniform(1.0, longest_s),
                      polite=self._chance.random() < 0.5)
            for person in people
        ]  # fmt: skip

    def _arrivals(
        self, per_s: float, *, count: int | None = None, seconds: float | None = None
    ) -> list[float]:
        """When each comes, at random: so many, or as many as come in that time."""
        times: list[float] = []
        at = self._chance.expovariate(per_s)
        while len(times) < count if count is not None else at < (seconds or 0.0):
            times.append(at)
            at += self._chance.expovariate(per_s)
        return times

    async def _pace(self, times: Sequence[float], act: Callable[[], None]) -> None:
        began, lags, at_once = time.perf_counter(), self._stage.book.lags, 0
        for due in times:
            early_s = due - (time.perf_counter() - began)
            at_once = at_once + 1 if early_s <= 0 else 0
            if early_s > 0 or at_once % MOST_AT_ONCE == 0:
                await asyncio.sleep(max(early_s, 0.0))
            lags.append(max(0.0, time.perf_counter() - began - due))
            act()

    async def _close(self) -> None:
        """Nobody knocks any more; those who have are answered."""
        self._stage.closed = True
        await self._until(lambda: self._stage.knocking == 0, "the last answers")
        self._stage.closed = False

    async def _until(self, condition: Callable[[], bool], what: str, within_s: float = 120) -> None:
        deadline = time.perf_counter() + within_s
        while not condition():
            if time.perf_counter() > deadline:
                raise SystemExit(f"Waited {within_s:.0f} s in vain for {what}: {self._state()}")
            await asyncio.sleep(0.05)

    async def _watch(self, fewest: list[int]) -> None:
        while True:
            fewest[0] = min(fewest[0], await self._waiting())
            await asyncio.sleep(1.0)

    async def _waiting(self) -> int:
        """How many wait, as the service says."""
        reader, writer = await asyncio.open_connection(self._stage.address, self._stage.port)
        try:
            writer.write(
                f"GET /healthz HTTP/1.1\r\nHost: {self._stage.authority}\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            body = (await reader.read()).partition(b"\r\n\r\n")[2]
        finally:
            writer.close()
        return msgspec.json.decode(body, type=rooms.Health).waiting

    # What is measured

    @contextlib.contextmanager
    def _measured(self, name: str) -> Iterator[Callable[[], Phase]]:
        """A new page in the book; what is yielded tells, afterwards, what stands there."""
        self._stage.book = book = Book()
        before = self._used()
        after: list[float] = []

        def tell() -> Phase:
            seconds, *used = [b - a for a, b in zip(before, after, strict=True)]
            return self._phase(book, seconds, [cpu_s / seconds for cpu_s in used])

        progress = asyncio.create_task(self._progress(name, book))
        try:
            yield tell
        finally:
            after += self._used()
            progress.cancel()

    def _used(self) -> list[float]:
        return [time.perf_counter(), time.process_time(), self._service.cpu_s(),
                self._database.cpu_s(), self._service.delayed_s(),
                Usage(os.getpid()).delayed_s()]  # fmt: skip

    def _phase(self, book: Book, seconds: float, shares: Sequence[float]) -> Phase:
        outcomes = [attempt.outcome for attempt in book.attempts]
        waited = waits(book.attempts)
        own, service, database, service_delayed, own_delayed = shares
        return Phase(
            seconds=seconds,
            knocks=len(outcomes),
            admitted=outcomes.count(WELCOMED),
            refused=outcomes.count(REFUSED),
            impolite=impoliteness(book.attempts),
            join_p50_s=quantile(waited, 0.5) if waited else 0.0,
            join_p99_s=quantile(waited, 0.99) if waited else 0.0,
            lost=book.lost,
            lag_p99_s=quantile(book.lags, 0.99) if book.lags else 0.0,
            lag_most_s=max(book.lags, default=0.0),
            own_share=own,
            service_share=service,
            database_share=database,
            service_delayed=service_delayed,
            own_delayed=own_delayed,
            service_bytes=self._service.resident_bytes(),
            filled=book.filled,
            dialled=book.dialled,
            unfilled=book.unfilled,
            hosts_refused=book.hosts_refused,
            gave_up=book.gave_up,
        )

    async def _progress(self, name: str, book: Book) -> None:
        while True:
            await asyncio.sleep(5.0)
            print(f"{name}: {time.perf_counter() - book.began:.0f} s, {self._state()}",
                  file=sys.stderr, flush=True)  # fmt: skip

    def _state(self) -> str:
        book = self._stage.book
        recent = book.attempts[-2000:]
        refused = sum(attempt.outcome == REFUSED for attempt in book.attempts)
        return (
            f"{len(self._stage.here)} in, {len(book.attempts)} knocks, {refused} refused, "
            f"{impoliteness(book.attempts) or 'nobody'} rudely, {book.lost} lost, join p99 "
            f"{1000 * quantile(waits(recent), 0.99):.0f} ms, {len(book.filled)} hosts helped"
            + (f" (worst {1000 * max(book.filled):.0f} ms)" if book.filled else "")
        )


def take_sockets(needed: int) -> None:
    """Raises SystemExit where so many cannot be had."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > most:
        raise SystemExit(f"This load needs {needed} sockets; `ulimit -Hn` allows {most}.")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(plan_file: str, found_file: str) -> None:
    die_with_parent()
    # A collection of ten thousand people's objects takes a tenth of a second, which would be
    # measured as if the matchmaker had taken it.
    gc.disable()
    plan = msgspec.json.decode(Path(plan_file).read_bytes(), type=Plan)
    take_sockets(plan.waiting + int(plan.surge_per_s * plan.stay_s) + SPARE_SOCKETS)
    found = run_async(Load(plan).run())
    Path(found_file).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
