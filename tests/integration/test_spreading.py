"""Data that spreads among real volunteers: processes on loopback, each with a disk of its own."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.process import Child
from tests.integration.growing_world import Preparer
from tests.integration.test_survival import Host, new_home
from tests.replication.web import serving_files

JOB = """
title = "digits that spread"
task = "crowdgrad.capture.models:digits_mlp"
data = "prepared/"
[recipe]
{recipe}
batch_size = 50
[stop]
epochs = 100000
[spread]
{spread}
"""
ASYNC = 'name = "async_sgd"\nlr = 0.05'
SEGMENTS = 'name = "averaging"\nlr = 0.05\nassignment = "segments"'
SHARDS = 12


def began(folder: Path, spread: str, recipe: str = ASYNC) -> tuple[Host, Preparer]:
    preparer = Preparer(folder / "prepared", SHARDS, growing=False)
    (folder / "job.toml").write_text(JOB.format(spread=spread, recipe=recipe))
    return Host(folder), preparer


class Person:
    """A volunteer with a home of its own: what it has, it has fetched itself."""

    def __init__(self, host: Host, name: str, *options: str) -> None:
        self.host = host
        self.name = name
        self.home = new_home(host.folder / name, 1.0)
        self.child = Child(
            ["work", host.here["address"], "--yes", "--plain", "--name", name,
             "--home", str(self.home), "--share", "listen", *options],
            log=host.folder / f"{name}.log",
        )  # fmt: skip
        host.volunteers.append(self.child)

    @property
    def holds(self) -> set[str]:
        return {path.name for path in (self.home / "chunks").glob("??/*")}

    def has_all(self, names: set[ChunkHash]) -> bool:
        return self.holds >= names


def train_chunks(preparer: Preparer) -> set[ChunkHash]:
    shards = [shard for shard in preparer.manifest.shards if shard.split == "train"]
    return {chunk.hash for shard in shards for chunk in shard.chunks}


def swarm(host: Host) -> dict[str, Any]:
    with urllib.request.urlopen(f"{host.here['url']}/swarm", timeout=10) as reply:
        told: dict[str, Any] = json.loads(reply.read())
    return told


def ended(host: Host) -> dict[str, Any]:
    """Told to finish, as `crowdgrad runs finish` does."""
    entrance = json.loads((host.run / "control.json").read_text())
    request = urllib.request.Request(
        f"{entrance['url']}/finish",
        method="POST",
        headers={"Authorization": f"Bearer {entrance['token']}"},
    )
    with urllib.request.urlopen(request, timeout=10):
        return host.finish()


def test_everybody_gets_everything_about_once_from_the_host_whoever_dies(tmp_path: Path) -> None:
    host, preparer = began(tmp_path, 'share = "full"')
    with host:
        host.start(str(tmp_path / "job.toml"))
        names = train_chunks(preparer)
        people = [Person(host, name) for name in ("ada", "bob", "eve")]
        for person in people:
            host.until("it has all", lambda person=person: person.has_all(names))  # type: ignore[misc]
        told = swarm(host)
        assert told["host_copies"] <= 2.0, "before they have met, two may get the same"
        os.kill(people[0].child.pid, signal.SIGKILL)
        late = Person(host, "late")
        host.until("who comes late has all", lambda: late.has_all(names))
        host.until("it works", lambda: host.units_of("late") > 3)
        host.until("the host has heard", lambda: _from_others(swarm(host), "late") > 0)
        outcome = ended(host)
    assert outcome["spreading"]["plan"] == "swarm"
    kept = json.loads((host.run / "swarm.json").read_text())
    assert {member["name"] for member in kept["members"]} >= {"bob", "eve", "late"}
    assert "How the data spread" in (host.run / "report.html").read_text()


def _from_others(told: dict[str, Any], name: str) -> int:
    """Bytes that came to it from other volunteers."""
    place = next((m["position"] for m in told["members"] if m["name"] == name), -1)
    flows = told["flows"]
    return sum(f["bytes"] for f in flows if f["receiver"] == place and f["sender"] != 0)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["tree", "pipelined"])
def test_the_papers_tree_with_real_processes(tmp_path: Path, plan: str) -> None:
    host, preparer = began(tmp_path, f'share = "full"\nplan = "{plan}"')
    with host:
        host.start(str(tmp_path / "job.toml"))
        names = train_chunks(preparer)
        people = [Person(host, name) for name in ("ada", "bob", "eve")]
        for person in people:
            host.until("it has all", lambda person=person: person.has_all(names))  # type: ignore[misc]
        told = swarm(host)
        assert told["plan"] == plan
        ended(host)


@pytest.mark.slow
def test_with_segments_volunteers_work_without_all_of_the_data(tmp_path: Path) -> None:
    """With worker 0 and three others there are five segments; each has two of them. What exactly
    each gets when nobody comes or goes any more: `tests/replication/test_sharing.py`."""
    host, preparer = began(tmp_path, 'share = "segments"', SEGMENTS)
    with host:
        host.start(str(tmp_path / "job.toml"))
        people = [Person(host, name) for name in ("ada", "bob", "eve")]
        for person in people:
            host.until("it works", lambda p=person: host.units_of(p.name) > 5)  # type: ignore[misc]
        names = train_chunks(preparer)
        held = [len(person.holds & set(names)) for person in people]
        ended(host)
    # While they come one by one, the first have larger segments for a moment.
    assert min(held) < len(names)
    assert set().union(*(person.holds for person in people)) & set(names)


@pytest.mark.slow
def test_a_mirror_is_one_more_to_fetch_from(tmp_path: Path) -> None:
    with serving_files(tmp_path / "prepared") as web:
        spread = f'share = "full"\nmirrors = ["{web.url}"]'
        host, preparer = began(tmp_path, spread)
        with host:
            host.start(str(tmp_path / "job.toml"))
            ada = Person(host, "ada")
            host.until("it has all", lambda: ada.has_all(train_chunks(preparer)))
            host.until("it works", lambda: host.units_of("ada") > 3)
            ended(host)
    assert web.connections > 0


@pytest.mark.slow
def test_who_shares_nothing_fetches_from_the_host(tmp_path: Path) -> None:
    host, _ = began(tmp_path, 'share = "full"')
    with host:
        host.start(str(tmp_path / "job.toml"))
        alone = Person(host, "alone", "--share", "no")
        host.until("it works", lambda: host.units_of("alone") > 3)
        assert alone.holds
        assert swarm(host)["members"] == []
        ended(host)
