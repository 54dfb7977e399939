"""A host whose data grows: everybody hears of it before a unit of it, and each counts once."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import replace

import pytest

from crowdgrad.data.sealing import check_seal, seal
from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import Chunk, Manifest, Shard
from crowdgrad.domain.work import VolunteerId
from crowdgrad.host.keeping.checkpoint_checks import contradiction, misfit
from crowdgrad.host.telling.taking import take_status
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Grant
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import house as houses
from tests.host import small
from tests.host.house import House, Person, in_house
from tests.host.people import SAMPLES

RECIPE = AsyncSGD(lr=0.01, batch_size=10, overlap=0)
HOST = guest("host")


@pytest.fixture(autouse=True)
def more_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(houses, "SAMPLES", {**SAMPLES, 5: 10, 6: 10})


def longer(manifest: Manifest) -> tuple[Manifest, bytes]:
    """By a shard of twenty records, two batches."""
    data = hashlib.sha256(b"more").digest()[:20]
    shard = Shard(split="train", records=20, chunks=(Chunk(hash=content_hash(data), bytes=20),))
    return replace(manifest, shards=(*manifest.shards, shard)), data


def grow(house: House) -> int:
    """The number of the new shard."""
    after, data = longer(house.training.state.manifest)
    raw = encode_manifest(after)
    house.blobs |= {content_hash(raw): raw, content_hash(data): data}
    house.training.grow(after, content_hash(raw))
    house.server.grew(seal(after, HOST))
    return len(after.shards) - 1


@pytest.mark.parametrize("size", [small.SIZE, houses.SIZE], ids=["at once", "with places"])
def test_a_unit_of_what_was_added_comes_after_the_news_of_it(size: int) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    told: Counter[VolunteerId] = Counter()
    new: set[int] = set()

    async def work(person: Person) -> None:
        while not person.house.over:
            answer = await person.exchange()
            if isinstance(answer, Grant):
                numbers = range(
                    answer.unit.first_batch, answer.unit.first_batch + answer.unit.batches
                )
                seen.update((answer.unit.epoch, number) for number in numbers)
                if answer.unit.shard in new:
                    assert person.talk.grew is not None
                    assert person.talk.grew.manifest == person.house.training.job.manifest
                    told[person.name] += 1
            await asyncio.sleep(0.01)

    async def test(house: House) -> None:
        people = [await house.connect() for _ in range(3)]
        working = [asyncio.create_task(work(person)) for person in people]
        await asyncio.sleep(0.02)
        new.add(grow(house))
        await asyncio.gather(*working)
        assert house.training.course.ending is not None
        assert set(told) == {person.name for person in people}
        for person in people:
            news = person.talk.grew
            assert news is not None
            assert news.seal is not None
            check_seal(house.training.state.manifest, news.seal, HOST.public)

    house = in_house(test, recipe=RECIPE, epochs=12, size=size)
    training = house.training
    assert set(seen.values()) == {1}, "nobody was given what another had"
    sizes = [7 if (epoch, 6) in seen else 5 for epoch in range(12)]
    assert sizes == sorted(sizes)
    assert 5 in sizes
    assert 7 in sizes
    assert set(seen) == {(epoch, batch) for epoch in range(12) for batch in range(sizes[epoch])}
    assert training.ledger.total_samples == sum(45 if n == 5 else 65 for n in sizes)
    assert training.book.epochs_done == 12.0
    status = take_status(training, 1.0)
    assert (status.train_records, status.growths) == (65, 1)


def test_who_joins_later_is_admitted_with_the_newest() -> None:
    async def test(house: House) -> None:
        grow(house)
        person = await house.connect()
        admit = house.server._admission(house.training.ledger[person.name])
        assert admit.job.manifest == house.training.job.manifest
        assert admit.manifest_bytes == len(house.blobs[admit.job.manifest])
        assert admit.seal is not None
        check_seal(house.training.state.manifest, admit.seal, HOST.public)
        await person.exchange()
        assert person.talk.grew is None, "it knows"

    in_house(test, recipe=RECIPE, size=small.SIZE)


def test_checkpoints_know_how_often_it_grew_and_fit_what_is_there() -> None:
    async def main() -> None:
        training = small.training(recipe=RECIPE)
        first = training.state.manifest
        before = await training.checkpoint(0.0)
        after, _ = longer(first)
        name = content_hash(encode_manifest(after))
        training.grow(after, name)
        checkpoint = await training.checkpoint(1.0)
        assert (checkpoint.growths, checkpoint.shards) == (1, len(after.shards))
        assert contradiction(checkpoint) == ""

        def misfits(data: Manifest) -> str:
            return misfit(checkpoint, job=small.job(), spec=small.spec(), manifest=data,
                          recipe=RECIPE)  # fmt: skip

        assert misfits(after) == ""
        assert "5 shards, the data has 4" in misfits(first)
        for kept, growths in ((checkpoint, 1), (before, 1)):
            # Of the earlier one too: what was added was on the disk before anybody was told.
            again = small.training(recipe=RECIPE, data=after)
            await again.resume(0.0, kept, 1)
            assert again.state.growths == growths
        same = small.training(recipe=RECIPE)
        await same.resume(0.0, before, 1)
        assert same.state.growths == 0

    asyncio.run(main())
