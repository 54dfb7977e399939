"""Whatever is done to it, a store in a file that is reopened now and then is the one in memory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import CODE_ALPHABET
from crowdgrad.domain.work import VolunteerId
from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.sql import SqlStore
from tests.contracts.store_contract import contents, credit, job, member, volunteer

JOBS = st.sampled_from(["job-1", "job-2", "job-3"])
CODES = st.sampled_from([f"{letter}AA-222" for letter in CODE_ALPHABET[8:12]])
PEOPLE = st.sampled_from("wabcd")
TIMES = st.floats(0, 1e10) | st.sampled_from([1.0, 2.0])
PLACES = st.integers(0, 6)
TEXTS = st.text(max_size=20).filter(str.isprintable)


class Twins(RuleBasedStateMachine):
    """Both are told the same, in turns of a loop of their own making, and must answer the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = MemoryStore()
        self.file = self._open()
        self.loop = asyncio.new_event_loop()

    def _open(self) -> SqlStore:
        return SqlStore(f"sqlite:///{self.folder}/matchmaker.db")

    def both(self, change: str, *arguments: object) -> None:
        assert self._answer(self.memory, change, arguments) == self._answer(
            self.file, change, arguments
        )

    def _answer(self, store: Store, change: str, arguments: tuple[object, ...]) -> str:
        async def in_a_turn() -> str:
            try:
                getattr(store, change)(*arguments)
            except ValueError as error:
                return str(error)
            return ""

        return self.loop.run_until_complete(in_a_turn())

    @rule(name=JOBS, code=CODES, at=TIMES, title=TEXTS, first=st.integers(1, 9), owner=PEOPLE)
    def publish(self, name: str, code: str, at: float, title: str, first: int, owner: str) -> None:
        record = job(name, code=code, at=at, title=title or "t")
        self.both("put_job", replace(record, first_free=first, owner=owner))

    @rule(name=JOBS)
    def withdraw(self, name: str) -> None:
        self.both("forget_job", JobId(name))

    @rule(who=PEOPLE, since=TIMES, name=st.none() | JOBS)
    def register(self, who: str, since: float, name: str | None) -> None:
        record = volunteer(who, since=since)
        self.both("put_volunteer", replace(record, job=None if name is None else JobId(name)))

    @rule(who=PEOPLE)
    def forget(self, who: str) -> None:
        self.both("forget_volunteer", VolunteerId(who))

    @rule(name=JOBS, place=PLACES, who=PEOPLE, called=TEXTS)
    def seat(self, name: str, place: int, who: str, called: str) -> None:
        self.both("add_member", JobId(name), replace(member(place, who), name=called))

    @rule(name=JOBS, who=PEOPLE)
    def unseat(self, name: str, who: str) -> None:
        self.both("forget_member", JobId(name), VolunteerId(who))

    @rule(name=JOBS, who=PEOPLE, host=st.sampled_from("khx"), at=TIMES, signed=st.booleans())
    def give(self, name: str, who: str, host: str, at: float, signed: bool) -> None:
        self.both("put_credit", credit(who, job=JobId(name), host=host, at=at, signed=signed))

    @rule(name=JOBS, who=PEOPLE)
    def take_back(self, name: str, who: str) -> None:
        self.both("forget_credit", JobId(name), VolunteerId(who))

    @rule(value=st.binary(max_size=40))
    def keep(self, value: bytes) -> None:
        self.both("keep_secret", "key", value)

    @rule()
    def wait(self) -> None:
        self.loop.run_until_complete(self.file.kept())

    @precondition(lambda self: self.memory.count_jobs() or self.memory.count_volunteers())
    @rule()
    def reopen(self) -> None:
        self.file.close()
        self.file = self._open()

    @invariant()
    def they_answer_the_same(self) -> None:
        assert contents(self.file) == contents(self.memory)

    def teardown(self) -> None:
        self.reopen()
        self.they_answer_the_same()
        self.file.close()
        self.loop.close()
        shutil.rmtree(self.folder)


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
