"""Real processes on real sockets, and the certainty that none of them is left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.capture.models import digits_mlp
from crowdgrad.data.catalogue import load
from crowdgrad.domain.job import Job, StoppingRule
from crowdgrad.host.job import JobPlan, Prepared, new_id, prepare
from crowdgrad.host.options import Here, Options, Outcome
from crowdgrad.host.serve import Run
from crowdgrad.host.telling.status import Status
from crowdgrad.process import Child, end_all
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.settings import Settings
from tests.disks import shared_memory


def ours(mark: str) -> dict[int, str]:
    """Processes whose command line mentions `mark`: pid → command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it ended while we looked
            if mark in line:
                found[int(entry.name)] = line
    return found


def children_of(pid: int) -> list[int]:
    """The processes that `pid` started (a volunteer's trainer, say)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    """After each test: no process of it, nothing new in shared memory, no half-written file."""
    before = shared_memory()
    yield
    assert ours(str(tmp_path)) == {}
    assert shared_memory() <= before
    drafts = [file for file in (tmp_path / "runs").rglob(".*") if file.is_file()]
    assert drafts == []


@pytest.fixture(scope="session")
def digits() -> Prepared:
    """The digits, captured once: what a host publishes."""
    data = load("digits", cache=Path("unused"), offline=True)
    plan = JobPlan(
        task=digits_mlp(),
        data=data,
        title="digits",
        recipe=AsyncSGD(lr=0.05, batch_size=50),
        stop=StoppingRule(epochs=40),
    )
    return prepare(plan)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", heartbeat_s=0.5, silence_s=3.0, lease_s=5.0)


def job_with(prepared: Prepared, **changes: object) -> Prepared:
    """The same program and data under another stopping rule or recipe."""
    fields = {"id": new_id("digits"), **changes}
    job: Job = replace(prepared.job, **fields)  # type: ignore[arg-type]
    return replace(prepared, job=job, initial=prepared.initial.copy())


class Stage:
    """A host in this process, and volunteers as processes of their own."""

    def __init__(
        self, prepared: Prepared, settings: Settings, folder: Path, **options: object
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.stop = asyncio.Event()
        prepared = replace(prepared, initial=prepared.initial.copy())  # others start from it, too
        self.run = Run(prepared, Options(runs=folder / "runs", **options), settings)  # type: ignore[arg-type]
        self.children: list[Child] = []
        self.here: Here | None = None
        self._task: asyncio.Task[Outcome] | None = None

    async def __aenter__(self) -> Stage:
        started = asyncio.Event()

        def note(here: Here) -> None:
            self.here = here
            started.set()

        self._task = asyncio.create_task(self.run.to_the_end(self.stop, started=note))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.stop.set()
        assert self._task is not None
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(end_all, self.children)

    @property
    def status(self) -> Status:
        return self.run.status()

    def volunteer(self, name: str, *extra: str, via: str | None = None) -> Child:
        assert self.here is not None
        where = () if "--matchmaker" in extra else (via or self.here.address,)
        child = Child(
            ["work", *where, "--guest", "--yes", "--plain", "--name", name, *extra,
             "--home", str(self.folder / "home")],
            log=self.folder / f"{name}.log",
        )  # fmt: skip
        self.children.append(child)
        return child

    async def until(self, what: str, condition: object) -> None:
        """Wait until it is so; the job ending first, or a minute passing, is a failure."""
        assert callable(condition)
        assert self._task is not None
        for _ in range(1200):
            if condition():
                return
            if self._task.done():
                self._task.result()
                raise AssertionError(f"the job ended before {what}: {self.status}")
            await asyncio.sleep(0.05)
        raise AssertionError(f"waited in vain for {what}: {self.status}")

    def units_of(self, name: str) -> int:
        return next((m.units for m in self.status.members if m.name == name), 0)

    def member(self, name: str) -> str:
        return next((m.state for m in self.status.members if m.name == name), "never came")

    async def outcome(self) -> Outcome:
        assert self._task is not None
        return await self._task
