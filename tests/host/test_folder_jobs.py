"""Jobs on a prepared data folder: taken as it is, read when asked for, kept with the run."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.capture.task import Task
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.folder import (
    GROWING,
    DataFolder,
    chunk_path,
    open_folder,
    write_chunk,
    write_manifest,
)
from crowdgrad.data.sealing import check_seal, seal
from crowdgrad.data.sharding import cut_into
from crowdgrad.data.shards import content_hash
from crowdgrad.domain.data import MAX_CHUNK_BYTES, Card, ChunkHash, Manifest, Split
from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import (
    CrowdgradError,
    DataAltered,
    DataMalformed,
    DataMissing,
    JobFileError,
    RecipeError,
)
from crowdgrad.host import jobfile
from crowdgrad.host.blobs import MANIFESTS_KEPT, Blobs, read
from crowdgrad.host.folder_data import look_through
from crowdgrad.host.growth import Finder, Grown, Growth
from crowdgrad.host.job import JobPlan, Prepared, describe, prepare
from crowdgrad.host.keeping import kept_data, kept_job
from crowdgrad.host.publishing import Material, warning
from crowdgrad.host.train import load_data
from crowdgrad.net.identity import guest
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe

KEY, HOST = guest("preparer"), guest("host")
CARD = Card(source="points", licence="CC0", classes=("a", "b", "c"))


def shards(folder: Path, split: Split, records: int, *, label: int = 0, width: int = 4) -> Manifest:
    """Of a hundred records each."""
    rng = np.random.default_rng(records)
    x = rng.normal(size=(records, width)).astype(np.float32)
    y = np.arange(records) % 3 + label
    data = from_arrays({"train": (x, y)})
    size = data.record_bytes * 100
    found = cut_into(
        lambda name, piece: write_chunk(folder, piece),
        data,
        seed=1,
        batch_size=10,
        shard_bytes=size,
    )
    return replace(found, shards=tuple(replace(shard, split=split) for shard in found.shards))


def make(folder: Path, *, train: int = 250, validation: int = 30, width: int = 4) -> Manifest:
    parts = [shards(folder, "train", train, width=width)]
    parts += [shards(folder, "validation", validation, width=width)] if validation else []
    every = tuple(shard for part in parts for shard in part.shards)
    manifest = replace(parts[0], title="points", shards=every, card=CARD)
    write_manifest(folder, manifest, seal(manifest, KEY))
    return manifest


def add(folder: Path, more: Manifest) -> Manifest:
    before = open_folder(folder).manifest
    after = replace(before, shards=(*before.shards, *more.shards))
    write_manifest(folder, after, seal(after, KEY))
    return after


def task(width: int = 4) -> Task:
    torch.manual_seed(0)
    return Task(
        nn.Linear(width, 3),
        nn.functional.cross_entropy,
        inputs=(torch.zeros(4, width),),
        targets=(torch.zeros(4, dtype=torch.int64),),
    )


def plan(folder: Path, recipe: Recipe | None = None) -> JobPlan:
    return JobPlan(
        task=task(),
        data=open_folder(folder),
        title="points",
        recipe=recipe or AsyncSGD(batch_size=10),
        stop=StoppingRule(epochs=2),
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("data")
    make(folder)
    (folder / GROWING).touch()
    return prepare(plan(folder))


# -- preparing ----------------------------------------------------------------------------------


def test_a_folder_is_the_jobs_data_as_it_is(prepared: Prepared) -> None:
    folder = prepared.folder
    assert folder is not None
    assert (prepared.manifest, prepared.job.manifest) == (folder.manifest, folder.name)
    assert isinstance(prepared.blobs, Blobs)
    assert prepared.job.growing
    assert prepared.source == folder.path
    assert set(prepared.blobs) == {prepared.job.program, folder.name, *folder.chunks}
    for name in prepared.blobs:
        assert content_hash(prepared.blobs[name]) == name
    assert prepared.classes == 3
    told = describe(prepared)["data"]
    assert isinstance(told, dict)
    assert told["card"]["licence"] == "CC0"
    assert told["records"] == {"train": 250, "validation": 30, "test": 0}
    assert prepared.volunteer_bytes > 250 * prepared.manifest.record_bytes


def test_small_shards_are_said(tmp_path: Path) -> None:
    make(tmp_path)
    assert not prepare(plan(tmp_path, AsyncSGD(batch_size=50))).notes
    (note,) = prepare(plan(tmp_path, AsyncSGD(batch_size=100))).notes
    assert note.startswith("1 of 3 training shards hold fewer records than a batch of 100")


def test_a_folder_without_validation_is_refused_with_advice(tmp_path: Path) -> None:
    make(tmp_path, validation=0)
    with pytest.raises(JobFileError, match="no validation records") as refused:
        prepare(plan(tmp_path))
    assert "Prepare it" in refused.value.advice


def test_segments_cannot_grow(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / GROWING).touch()
    recipe = AsyncSGD(batch_size=10, assignment="segments")
    with pytest.raises(RecipeError, match="cannot grow"):
        prepare(plan(tmp_path, recipe))
    (tmp_path / GROWING).unlink()
    assert prepare(plan(tmp_path, recipe)).job.growing is False


def test_labels_the_model_does_not_have_are_named(tmp_path: Path) -> None:
    make(tmp_path)
    add(tmp_path, shards(tmp_path, "train", 100, label=1))
    with pytest.raises(DataMalformed, match=r"y of record \d+ of shard 4 \(train\) is 3"):
        prepare(plan(tmp_path))


def test_an_altered_chunk_is_found_before_anything_is_published(tmp_path: Path) -> None:
    manifest = make(tmp_path)
    path = chunk_path(tmp_path, manifest.shards[1].chunks[0].hash)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DataAltered):
        prepare(plan(tmp_path))


def test_a_large_folder_does_not_lie_in_memory(tmp_path: Path) -> None:
    """Looked through, handed out and linked, a shard at a time: a hundred records of a kilobyte."""
    manifest = make(tmp_path / "a", train=20_000, width=256)
    total = sum(shard.bytes for shard in manifest.shards)
    assert total > 20_000_000
    folder = open_folder(tmp_path / "a")
    tracemalloc.start()
    try:
        look_through(folder, range(len(manifest.shards)), 3, 1)
        program = ChunkHash("0" * 64)
        blobs = Blobs((program, b"p"), (folder.name, folder.raw), manifest, [folder.path])
        assert sum(len(blobs[name]) for name in blobs if blobs.on_disk(name)) == total
        kept_data.keep(tmp_path / "b", folder)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MAX_CHUNK_BYTES + total / 20, "one chunk, and room to read it into"


def test_job_files_and_scripts_name_a_folder(tmp_path: Path) -> None:
    manifest = make(tmp_path / "prepared")
    for name in ("prepared", "prepared/"):
        found = jobfile.load_data(name, tmp_path, cache=tmp_path)
        assert isinstance(found, DataFolder)
        assert found.manifest == manifest
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere/"):
        with pytest.raises(DataMissing, match="no prepared data set"):
            jobfile.load_data(name, tmp_path, cache=tmp_path)
    for path in (tmp_path / "prepared", str(tmp_path / "prepared")):
        assert isinstance(load_data(path), DataFolder)
    with pytest.raises(DataMissing):
        load_data(tmp_path / "empty")


def test_what_is_published_is_named_by_its_manifest(prepared: Prepared) -> None:
    assert prepared.folder is not None
    material = Material.of_data(prepared.folder)
    assert material == Material.of_job(prepared)
    assert (material.name, material.records) == (prepared.job.manifest, 280)
    assert "and all that is added" in warning(material)[0]
    other = ChunkHash("0" * 64)
    grown = replace(prepared, job=replace(prepared.job, manifest=other),
                    began_with=prepared.job.manifest)  # fmt: skip
    assert Material.of_job(grown).name == material.name, "that was agreed to"


# -- reading ------------------------------------------------------------------------------------


def test_only_what_is_in_memory_is_read_on_the_loop(prepared: Prepared) -> None:
    blobs = prepared.blobs
    assert isinstance(blobs, Blobs)
    names = [name for name in blobs if blobs.on_disk(name)]
    assert set(blobs) - set(names) == {prepared.job.program, prepared.job.manifest}
    found = asyncio.run(read(blobs, names[0]))
    assert found == blobs[names[0]]
    assert asyncio.run(read({names[0]: b"x"}, names[0])) == b"x"
    assert len(blobs) == len(list(blobs))
    assert "nothing" not in blobs
    with pytest.raises(KeyError):
        blobs[ChunkHash("0" * 64)]


def test_the_newest_manifests_are_kept_and_what_is_broken_is_read_from_the_run(
    tmp_path: Path,
) -> None:
    first = make(tmp_path / "a")
    kept_data.keep(tmp_path / "b", open_folder(tmp_path / "a"))
    folder = open_folder(tmp_path / "a")
    blobs = Blobs((ChunkHash("p"), b"p"), (folder.name, folder.raw), first, [tmp_path / "a"])
    name = first.shards[0].chunks[0].hash
    good = blobs[name]
    chunk_path(tmp_path / "a", name).unlink()
    with pytest.raises(DataMissing):
        blobs[name]
    blobs.kept_in(tmp_path / "b")
    assert blobs[name] == good
    for number in range(MANIFESTS_KEPT + 2):
        blobs.grow(ChunkHash(f"m{number}"), b"raw", first, len(first.shards))
    assert folder.name not in blobs
    assert {ChunkHash(f"m{n}") for n in range(2, MANIFESTS_KEPT + 2)} <= set(blobs)


# -- keeping ------------------------------------------------------------------------------------


def saved(prepared: Prepared, folder: Path) -> None:
    assert prepared.folder is not None
    kept_data.keep(folder / kept_data.FOLDER, prepared.folder)
    kept_job.save(folder, prepared)


def test_a_run_keeps_its_data_by_links(prepared: Prepared, tmp_path: Path) -> None:
    saved(prepared, tmp_path)
    assert prepared.folder is not None
    name = prepared.manifest.shards[0].chunks[0].hash
    ours, theirs = (chunk_path(p, name) for p in (tmp_path / "data", prepared.folder.path))
    assert os.path.samefile(ours, theirs)
    assert (tmp_path / kept_job.NAME).stat().st_size < 100_000, "it holds no chunks"
    found = kept_job.load(tmp_path)
    assert (found.job, found.manifest) == (prepared.job, prepared.manifest)
    assert (found.source, found.began_with) == (prepared.source, None)
    assert found.blobs[name] == prepared.blobs[name]
    again = replace(found, initial=prepared.initial)
    kept_data.keep(tmp_path / "data", open_folder(tmp_path / "data"))
    kept_job.save(tmp_path, again)
    assert kept_job.load(tmp_path).job == prepared.job


def test_where_nothing_can_be_linked_it_is_copied(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*paths: object) -> None:
        raise OSError(18, "another disk")

    monkeypatch.setattr(os, "link", no_links)
    saved(prepared, tmp_path)
    assert kept_job.load(tmp_path).manifest == prepared.manifest


def test_a_run_whose_data_is_lost_or_other_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    saved(prepared, tmp_path)
    name = prepared.manifest.shards[0].chunks[0].hash
    chunk_path(tmp_path / "data", name).unlink()
    with pytest.raises(DataMalformed, match="lacks 1 chunks"):
        kept_job.load(tmp_path)
    make(tmp_path / "data", train=120)
    with pytest.raises(DataAltered, match="first shards"):
        kept_job.load(tmp_path)


def test_what_was_added_is_there_when_the_run_goes_on(tmp_path: Path) -> None:
    make(tmp_path / "a")
    (tmp_path / "a" / GROWING).touch()
    ready = prepare(plan(tmp_path / "a"))
    saved(ready, tmp_path / "run")
    after = add(tmp_path / "a", shards(tmp_path / "a", "train", 100))
    kept_data.keep(tmp_path / "run" / "data", open_folder(tmp_path / "a"), 4)
    found = kept_job.load(tmp_path / "run")
    assert found.manifest == after
    assert found.job == replace(ready.job, manifest=open_folder(tmp_path / "a").name)
    assert found.began_with == ready.job.manifest
    kept_job.save(tmp_path / "run", found)
    assert kept_job.load(tmp_path / "run").began_with == ready.job.manifest


# -- growing ------------------------------------------------------------------------------------


class World:
    """A growing folder, and whoever looks at it."""

    def __init__(self, folder: Path, ready: Prepared) -> None:
        self.folder = folder
        self.kept: list[tuple[Manifest, int]] = []
        self.finder = Finder(ready, folder, self.keep, HOST)
        self.refuse: OSError | None = None

    def keep(self, newer: DataFolder, first: int) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.kept.append((newer.manifest, first))


@pytest.fixture
def world(tmp_path: Path, prepared: Prepared) -> World:
    manifest = make(tmp_path)
    assert manifest == prepared.manifest
    return World(tmp_path, prepared)


def test_more_is_found_once_kept_and_sealed(world: World) -> None:
    assert world.finder.look() is None
    after = add(world.folder, shards(world.folder, "train", 100))
    grown = world.finder.look()
    assert grown is not None
    assert (grown.folder.manifest, grown.first, world.kept) == (after, 4, [(after, 4)])
    check_seal(after, grown.seal, HOST.public)
    assert world.finder.look() is None
    more = add(world.folder, shards(world.folder, "train", 200))
    again = world.finder.look()
    assert again is not None
    assert (again.first, world.kept[1:]) == (5, [(more, 5)])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda w: add(w.folder, shards(w.folder, "validation", 100)), DataAltered, "validation"),
        (lambda w: add(w.folder, shards(w.folder, "train", 90, label=1)), DataMalformed, "classes"),
        (lambda w: make(w.folder, train=120), DataAltered, "first shards"),
        (lambda w: (w.folder / "manifest").unlink(), DataMissing, "cannot be read"),
        (lambda w: (w.folder / "manifest").write_bytes(b"x"), CrowdgradError, "manifest"),
    ],
)
def test_what_cannot_be_used_is_refused_and_what_follows_is_taken(
    world: World, change: Callable[[World], object], error: type[Exception], says: str
) -> None:
    good = open_folder(world.folder).manifest
    change(world)
    for _ in range(2):
        with pytest.raises(error, match=says):
            world.finder.look()
    assert world.kept == []
    write_manifest(world.folder, good, seal(good, KEY))
    assert world.finder.look() is None
    add(world.folder, shards(world.folder, "train", 100))
    assert world.finder.look() is not None


def test_what_lacks_chunks_or_cannot_be_kept_waits(world: World) -> None:
    more = shards(world.folder, "train", 100)
    path = chunk_path(world.folder, more.shards[0].chunks[0].hash)
    data = path.read_bytes()
    path.unlink()
    add(world.folder, more)
    with pytest.raises(DataMissing, match="lacks 1 chunks"):
        world.finder.look()
    path.write_bytes(data)
    world.refuse = OSError(28, "full")
    with pytest.raises(CrowdgradError, match="no room"):
        world.finder.look()
    world.refuse = None
    assert world.finder.look() is not None


def test_trouble_is_said_once_and_looked_at_ever_more_patiently(world: World) -> None:
    used: list[Grown] = []
    said: list[str] = []

    async def main() -> None:
        growth = Growth(world.finder, used.append, said.append)

        async def look(now: float) -> None:
            growth.tick(now)
            await growth.end()
            growth.tick(now)

        manifest = world.folder / "manifest"
        moved = manifest.rename(world.folder / "elsewhere")
        await look(0.0)
        await look(1.0)
        assert len(said) == 1, "not due yet"
        await look(2.0)
        assert len(said) == 1, "said already"
        moved.rename(manifest)
        add(world.folder, shards(world.folder, "train", 100))
        await look(5.0)
        assert used == [], "it was patient"
        await look(6.0)
        assert len(used) == 1

    asyncio.run(main())
    assert said[1:] == [""]
    assert "cannot be used" in said[0]
    assert "goes on" in said[0]
