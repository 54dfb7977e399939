"""The service is killed again and again while people come, are matched and leave.

Between two lives its database is read as it lies there: whatever anybody was told must be in it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Wants
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import ConnectionLost, Unreachable
from crowdgrad.net import rooms
from crowdgrad.net.matchmaker import (
    HostPresence,
    Match,
    VolunteerPresence,
    publish,
    wait_for_job,
)
from crowdgrad.store.opening import open_store
from tests.matchmaker.running import Running, key_of, offer, volunteer, worker

HOSTS, MAXIMUM, STEADY, NEWCOMERS = 3, 4, 15, 30
"""More volunteers than places: some always wait."""
GENEROUS = ("--address-joins-per-s", "1000", "--key-joins-per-s", "100", "--most-entering", "10000")
"""Everybody has the same address here."""


class Witness:
    """Everything anybody was told, over all lives of the service."""

    def __init__(self) -> None:
        self.codes: dict[str, str] = {}
        self.places: dict[tuple[str, VolunteerId], int] = {}
        self.working_for: dict[VolunteerId, str] = {}
        self.registered: set[VolunteerId] = set()
        self.matches = 0

    def welcomed(self, who: VolunteerId) -> None:
        self.registered.add(who)

    def hears(self, who: VolunteerId, message: rooms.TO_VOLUNTEER, asked: int) -> None:
        if isinstance(message, rooms.Matched) and message.asked == asked:
            job = message.listing.offer.id
            assert self.places.setdefault((job, who), message.position) == message.position
            before = self.working_for.setdefault(who, job)
            assert before == job, f"{who} works for {before} and is matched with {job}"
            present = [m for m in message.roster.members if m.position > 0]
            assert len(present) <= MAXIMUM
            self.matches += 1
        elif isinstance(message, rooms.JobEnded):
            self.working_for.pop(who, None)

    def left(self, who: VolunteerId) -> None:
        self.working_for.pop(who, None)
        self.registered.discard(who)

    def check(self, database: str) -> None:
        """What the store has, now that nobody can mend it."""
        store = open_store(database)
        try:
            for job, code in self.codes.items():
                record = store.job(JobId(job))
                assert record is not None, f"{job} was published"
                assert record.listing.code == code
            for (job, who), position in self.places.items():
                member = store.member(JobId(job), who)
                assert member is not None, f"{who} was given place {position} of {job}"
                assert member.position == position
            for who in self.registered:
                assert store.volunteer(who) is not None, f"{who} was welcomed"
            for who, job in self.working_for.items():
                kept = store.volunteer(who)
                assert kept is not None
                assert kept.job == job
            jobs = Counter(r.job for r in store.volunteers() if r.job is not None)
            assert all(number <= MAXIMUM for number in jobs.values()), jobs
        finally:
            store.close()


class Person(VolunteerPresence):
    """A real client whose ears are watched."""

    witness: Witness

    def _receive(self, message: rooms.TO_VOLUNTEER) -> None:
        self.witness.hears(self._volunteer.id, message, self._asked)
        super()._receive(message)


async def live(name: str, url: str, witness: Witness, patient: bool, dice: random.Random) -> None:
    """Come, wait, work for a moment, move on; those that are not patient leave for good."""
    who = key_of(name).id
    match = await first_job(name, url)
    witness.welcomed(who)
    try:
        while patient:
            await asyncio.sleep(dice.uniform(0.2, 1.5))
            witness.left(who)  # from here on another job is right
            match = await match.presence.next_job(wants=Wants(), avoid=())
            witness.welcomed(who)
        await asyncio.sleep(dice.uniform(0.0, 0.5))
    finally:
        witness.left(who)
        await match.presence.close()


async def first_job(name: str, url: str) -> Match:
    """Only a first connection fails: somebody comes while the service is down, and comes again."""
    while True:
        try:
            return await wait_for_job(url, volunteer(name), key=key_of(name))
        except (Unreachable, ConnectionLost):
            await asyncio.sleep(0.1)


async def come_and_go(url: str, witness: Witness, dice: random.Random) -> None:
    """A newcomer every few moments, steadily."""
    room = asyncio.Semaphore(NEWCOMERS)

    async def one(name: str) -> None:
        try:
            await live(name, url, witness, False, dice)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        for number in range(10**6):
            await room.acquire()
            group.create_task(one(f"newcomer {number}"))
            await asyncio.sleep(dice.uniform(0.02, 0.2))


@asynccontextmanager
async def busy(
    url: str, witness: Witness, dice: random.Random
) -> AsyncIterator[list[HostPresence]]:
    """Hosts, and volunteers that come, work, move on and leave, until the end."""
    hosts = [
        await publish(url, offer(f"job-no{n}", minimum=1, maximum=MAXIMUM), key=key_of(f"host {n}"),
                      worker=worker())
        for n in range(HOSTS)
    ]  # fmt: skip
    for number, host in enumerate(hosts):
        assert host.code is not None
        witness.codes[f"job-no{number}"] = host.code
    steady = [
        asyncio.create_task(live(f"steady {n}", url, witness, True, dice)) for n in range(STEADY)
    ]
    others = asyncio.create_task(come_and_go(url, witness, dice))
    try:
        yield hosts
    finally:
        for task in (*steady, others):
            task.cancel()
        done = await asyncio.gather(*steady, others, return_exceptions=True)
        for host in hosts:
            await host.close()
        wrong = [e for e in done if e is not None and not isinstance(e, asyncio.CancelledError)]
        assert not wrong, wrong


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def storm(folder: Path, database: str, kills: int, patch: pytest.MonkeyPatch) -> Witness:
    witness, dice = Witness(), random.Random(kills)
    Person.witness = witness
    patch.setattr("crowdgrad.net.matchmaker.VolunteerPresence", Person)
    with Running(folder, *GENEROUS, database=database) as matchmaker:
        async with busy(matchmaker.url, witness, dice) as hosts:
            for _ in range(kills):
                matches = witness.matches
                await until(lambda: witness.matches > matches + 5)  # noqa: B023
                await asyncio.sleep(dice.uniform(0.0, 0.3))
                # The clients stand still meanwhile, as everything here runs on one thread.
                matchmaker.kill()
                await asyncio.sleep(0.05)  # what was on its way arrives
                witness.check(database)
                matchmaker.start()
                await until(lambda: all(host.connected for host in hosts))
            matches = witness.matches
            await until(lambda: witness.matches > matches + 5)
            assert all(host.failure is None for host in hosts)
            codes = {f"job-no{number}": host.code for number, host in enumerate(hosts)}
            assert codes == witness.codes
    return witness


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/matchmaker.db"
    return str(request.getfixturevalue("postgres_url"))


def test_killed_three_times(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    witness = asyncio.run(storm(tmp_path, database, 3, monkeypatch))
    assert len(witness.places) > HOSTS * MAXIMUM


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_twenty_times(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = asyncio.run(storm(tmp_path, database, 20, monkeypatch))
    assert len(witness.places) > HOSTS * MAXIMUM
