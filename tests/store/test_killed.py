"""Killed at any moment, a store comes back with all that it promised, and nothing by halves."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crowdgrad.domain.work import VolunteerId
from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.opening import open_store
from tests.contracts.store_contract import JOB, contents, fill, member, volunteer

HERE = Path(__file__).parents[2]


def live(url: str) -> None:
    """Somebody comes, and is given a place, over and over; whoever is told is kept."""
    store = open_store(url)
    fill(store)

    async def come(number: int) -> None:
        who = f"v{number}"
        store.put_volunteer(volunteer(who, since=float(number)))
        store.add_member(JOB, member(100 + number, who))
        await store.kept()
        print(number, flush=True)

    async def all_come() -> None:
        for first in itertools.count(0, 5):
            await asyncio.gather(*(come(number) for number in range(first, first + 5)))

    asyncio.run(all_come())


def killed(url: str, told: int) -> int:
    """Let it live in another process until so many were told; the last who was."""
    code = f"from tests.store.test_killed import live; live({url!r})"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert child.stdout is not None
    heard = -1
    for line in child.stdout:
        heard = max(heard, int(line))
        if heard >= told:
            child.send_signal(signal.SIGKILL)
            told = sys.maxsize
    assert child.wait(30) == -signal.SIGKILL
    child.stdout.close()
    return heard


def check(store: Store, heard: int) -> None:
    """Everybody up to the last who was told, perhaps more, in order; and each with its place."""
    came = {r.id for r in store.volunteers() if r.id.startswith("v")}
    seated = {m.id for m in store.members(JOB) if m.id.startswith("v")}
    assert came == seated == {f"v{number}" for number in range(len(came))}
    assert len(came) > heard


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_it_has_everything_it_promised(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/matchmaker.db"
    else:
        url = request.getfixturevalue("postgres_url")
    heard = killed(url, 40)
    store = open_store(url)
    check(store, heard)
    for record in store.volunteers():
        if record.id.startswith("v"):
            store.forget_volunteer(record.id)
    for who in store.members(JOB):
        if who.id.startswith("v"):
            store.forget_member(JOB, who.id)
    expected = MemoryStore()
    fill(expected)
    assert store.volunteers() == expected.volunteers()
    assert store.members(JOB) == expected.members(JOB)
    assert store.gave(VolunteerId("a")) == expected.gave(VolunteerId("a"))
    assert store.secret("key") == expected.secret("key")
    store.close()


def test_left_without_a_word_it_has_what_was_kept(tmp_path: Path) -> None:
    """The files as they are at the moment `kept` returns are enough."""
    url = f"sqlite:///{tmp_path}/matchmaker.db"
    store = open_store(url)
    fill(store)
    asyncio.run(store.kept())
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        name = f"matchmaker.db{suffix}"
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    other = open_store(f"sqlite:///{copy}/matchmaker.db")
    assert contents(other) == contents(store)
    other.close()
    store.close()
