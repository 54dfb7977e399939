"""A job on a prepared data folder that grows while it trains, with real processes."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import crowdgrad as cg
from crowdgrad.capture.models import digits_mlp
from crowdgrad.data.folder import open_folder
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import Manifest, Seal
from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared
from crowdgrad.net.identity import Identity, guest
from crowdgrad.process import Child
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage, job_with
from tests.integration.growing_world import SHARD_RECORDS, Preparer
from tests.integration.test_survival import TIMEOUT_S, Host, Json, lines_of, new_home, one_curve

JOB = """
title = "digits that grow"
task = "crowdgrad.capture.models:digits_mlp"
data = "prepared/"
[recipe]
name = "async_sgd"
lr = 0.05
batch_size = 50
[stop]
epochs = 100000
"""


def began(folder: Path, *, growing: bool = True, shards: int = 2) -> tuple[Host, Preparer]:
    preparer = Preparer(folder / "prepared", shards, growing=growing)
    (folder / "job.toml").write_text(JOB)
    return Host(folder), preparer


def grows(host: Host, preparer: Preparer, records: int = SHARD_RECORDS) -> None:
    """One shard more, until the host trains on it in an epoch that began with it."""
    before = host.status()["growths"]
    preparer.add(records)
    host.until("it has grown", lambda: host.status().get("growths", 0) > before)
    assert host.status()["train_records"] == sum(preparer.records)
    later = host.status()["epochs_done"] + 2
    host.until("it trains on that", lambda: host.status().get("epochs_done", 0) > later)


def volunteer(host: Host, name: str, home: Path) -> Child:
    """In a home of its own: what it has, it has fetched itself."""
    new_home(home, 1.0)
    child = Child(
        ["work", host.here["address"], "--guest", "--yes", "--plain", "--name", name,
         "--home", str(home)],
        log=host.folder / f"{name}.log",
    )  # fmt: skip
    host.volunteers.append(child)
    return child


def has_fetched(home: Path, preparer: Preparer, shards: int) -> bool:
    """Whether all chunks of the last so many shards are there."""
    wanted = [chunk.hash for shard in preparer.manifest.shards[-shards:] for chunk in shard.chunks]
    return all(any(home.rglob(name)) for name in wanted)


@pytest.mark.slow
def test_what_is_added_is_trained_on_by_everybody_and_survives_the_host(tmp_path: Path) -> None:
    host, preparer = began(tmp_path)
    with host:
        host.start(str(tmp_path / "job.toml"))
        home = tmp_path / "ada"
        volunteer(host, "ada", home)
        host.until("ada works", lambda: host.units_of("ada") > 3)
        grows(host, preparer)
        grows(host, preparer)
        host.until("ada has it", lambda: has_fetched(home, preparer, 2))
        host.until("worker 0 has it, too", lambda: has_fetched(host.home, preparer, 2))
        host.train_on()
        host.kill()
        shutil.rmtree(preparer.folder)  # the run needs it no longer
        host.resume()
        status = host.status()
        assert status["train_records"] == sum(preparer.records)
        assert status["growths"] == 2
        before = host.units_of("ada")
        host.until("ada is back", lambda: host.units_of("ada") > before + 3)
        host.until("it says so", lambda: "cannot be used" in host.status().get("notice", ""))
        host.train_on()
        epochs = int(host.status()["epochs_done"]) + 40
        host.kill()
        host.resume("--epochs", str(epochs))
        outcome = host.finish()
    counted_once(outcome, host.run, epochs, preparer)
    one_curve(lines_of(host.run))
    assert outcome["test"]["metrics"]["accuracy"] >= 0.85


def counted_once(outcome: Json, run: Path, epochs: int, preparer: Preparer) -> None:
    """Every record of every pass, over what was there when it began, is in the ledger once."""
    assert outcome["state"] == "finished"
    assert outcome["epochs_done"] == epochs
    assert sum(m["samples"] for m in outcome["members"]) == outcome["samples"]
    assert sum(m["units"] for m in outcome["members"]) == outcome["updates"]
    assert int(outcome["version"].rpartition(".")[2]) == outcome["updates"]
    told = json.loads((run / "job.json").read_text())
    assert told["data"]["records"]["train"] == sum(preparer.records)
    kept = open_folder(run / "resume" / "data")
    assert kept.manifest == preparer.manifest


@pytest.mark.slow
def test_data_that_outgrows_its_place_gets_a_larger_one_and_nobody_leaves(tmp_path: Path) -> None:
    """Memory was reckoned for the largest shard there was; now there is a larger one."""
    host, preparer = began(tmp_path)
    with host:
        host.start(str(tmp_path / "job.toml"))
        home = tmp_path / "ada"
        volunteer(host, "ada", home)
        host.until("ada works", lambda: host.units_of("ada") > 3)
        grows(host, preparer, SHARD_RECORDS + 50)
        host.until("ada has it", lambda: has_fetched(home, preparer, 1))
        before = host.units_of("ada")
        host.until("ada goes on", lambda: host.units_of("ada") > before + 3)
        status = host.status()
    assert status["arrivals"] == 2
    assert status["departures_by_kind"] == {}
    assert (status["refused"], status["set_aside"]) == (0, 0)


@pytest.mark.slow
def test_a_folder_that_does_not_grow_is_trained_on_as_it_is(tmp_path: Path) -> None:
    host, preparer = began(tmp_path, growing=False)
    with host:
        host.start(str(tmp_path / "job.toml"))
        host.train_on()
        preparer.add()
        host.train_on()
        host.kill()
        host.resume("--epochs", str(int(host.status().get("epochs_done", 0)) + 5000))
        assert host.status()["growths"] == 0
        assert host.status()["train_records"] == 2 * SHARD_RECORDS
        told = json.loads((host.run / "job.json").read_text())["data"]
    assert told["card"]["source"] == "scikit-learn's digits"
    assert (told["card"]["licence"], told["card"]["left_out"]) == ("CC BY 4.0", 3)
    assert told["growing"] is False


def test_a_volunteer_refuses_data_that_its_host_has_not_sealed(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    endless = job_with(digits, stop=StoppingRule(epochs=100_000))

    async def main() -> None:
        async with Stage(endless, settings, tmp_path) as stage:
            await stage.until("worker 0 works", lambda: stage.units_of("worker-0") > 3)
            server = stage.run._talk
            assert server is not None
            for number, wrong in enumerate(wrong_seals(digits.manifest, stage.run._key)):
                server.grew(wrong)
                ada = stage.volunteer(f"ada-{number}")
                assert await asyncio.to_thread(ada.wait, TIMEOUT_S)
                assert ada.code != 0
                assert "[CG402]" in (tmp_path / f"ada-{number}.log").read_text()
                assert stage.units_of(f"ada-{number}") == 0
            server.grew(seal(digits.manifest, stage.run._key))
            stage.volunteer("ben")
            await stage.until("ben works", lambda: stage.units_of("ben") > 0)

    asyncio.run(main())


def wrong_seals(manifest: Manifest, key: Identity) -> list[Seal | None]:
    """By another key, of other data, with another signature, none at all."""
    good, other = seal(manifest, key), replace(manifest, title="other data")
    forged = replace(good, signature=bytes(64))
    return [seal(manifest, guest("somebody")), seal(other, key), forged, None]


@pytest.mark.slow
def test_a_script_trains_on_a_folder_by_its_path(tmp_path: Path) -> None:
    preparer = Preparer(tmp_path / "prepared", 3, growing=False)
    result = cg.train(
        digits_mlp(), tmp_path / "prepared", recipe=cg.AsyncSGD(lr=0.05, batch_size=50), epochs=5,
        title="digits", runs=tmp_path / "runs",
    )  # fmt: skip
    assert result.status.samples == 5 * sum(preparer.records)
    assert result.status.train_records == sum(preparer.records)
    page = result.report().read_text()
    assert "CC BY 4.0" in page
    assert "3 records that could not be used" in page
