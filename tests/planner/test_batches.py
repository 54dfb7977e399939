"""Every record of a split lies in exactly one batch, and no batch is tiny or too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.data import MAX_CHUNK_BYTES, Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.domain.work import LocalSteps
from crowdgrad.planner.batches import PLANS_KEPT, EpochPlans, plan

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
shards = st.lists(st.tuples(st.sampled_from(SPLITS), st.integers(1, 300)), min_size=1, max_size=12)


def manifest(sizes: list[tuple[Split, int]]) -> Manifest:
    """A data set of one byte a record."""
    assert all(records <= MAX_CHUNK_BYTES for _, records in sizes)
    return Manifest(
        title="t",
        fields=(Field(name="x", dtype="uint8", shape=()),),
        shards=tuple(
            Shard(
                split=split,
                records=records,
                chunks=(Chunk(hash=ChunkHash("0" * 64), bytes=records),),
            )
            for split, records in sizes
        ),
    )


@given(shards, st.sampled_from(SPLITS), st.integers(1, 400))
def test_every_record_lies_in_exactly_one_batch(
    sizes: list[tuple[Split, int]], split: Split, batch_size: int
) -> None:
    data = manifest(sizes)
    batches = plan(data, split, batch_size)
    seen: dict[int, list[int]] = {number: [] for number in data.numbers(split)}
    for batch in range(batches.total):
        first, end = batches.rows(batch)
        assert 0 < end - first <= batch_size
        seen[batches.shard_of(batch)] += range(first, end)
    assert seen == {n: list(range(data.shards[n].records)) for n in data.numbers(split)}


@given(shards, st.integers(1, 400))
def test_sizes_within_a_shard_differ_by_at_most_one(
    sizes: list[tuple[Split, int]], batch_size: int
) -> None:
    data = manifest(sizes)
    batches = plan(data, "train", batch_size)
    start = 0
    for shard in data.numbers("train"):
        numbers = batches.of_shard(shard)
        lengths = [end - first for first, end in map(batches.rows, numbers)]
        assert max(lengths) - min(lengths) <= 1
        assert len(numbers) == -(-data.shards[shard].records // batch_size)
        assert numbers.start == start
        assert all(batches.shard_of(number) == shard for number in numbers)
        assert batches.samples(numbers.start, len(numbers)) == data.shards[shard].records
        start = numbers.stop
    assert start == batches.total


@given(shards, st.integers(1, 50), st.data())
def test_samples_of_a_range_are_the_sum_of_its_batches(
    sizes: list[tuple[Split, int]], batch_size: int, data: st.DataObject
) -> None:
    batches = plan(manifest([("train", 100), *sizes]), "train", batch_size)
    numbers = batches.of_shard(data.draw(st.sampled_from(batches.shards)))
    first = data.draw(st.sampled_from(numbers))
    count = data.draw(st.integers(1, numbers.stop - first))
    rows = [batches.rows(number) for number in range(first, first + count)]
    assert batches.samples(first, count) == sum(end - start for start, end in rows)


@pytest.mark.parametrize("batch", [-1, 4, 1000])
def test_a_batch_that_does_not_exist_is_named(batch: int) -> None:
    batches = plan(manifest([("train", 10)]), "train", 3)
    assert batches.total == 4
    with pytest.raises(ValueError, match=f"no batch {batch}: the split has 4"):
        batches.rows(batch)
    with pytest.raises(ValueError, match=f"no batch {batch}"):
        batches.shard_of(batch)


def test_a_split_without_shards_has_no_batches() -> None:
    assert plan(manifest([("train", 10)]), "test", 3).total == 0


# -- batches that grow ------------------------------------------------------------------------


def test_every_epoch_has_the_plan_of_its_batch_size() -> None:
    data = manifest([("train", 25), ("test", 7), ("train", 10)])
    local = LocalSteps(batch_size=4, growth=2.0, growth_every=2, largest_batch=10)
    plans = EpochPlans.of(data, "train", local)
    assert plans.records == 35
    for epoch, size in enumerate((4, 4, 8, 8, 10, 10)):
        assert plans.at(epoch) == plan(data, "train", size)
    assert plans.at(5).shards == (0, 2)


def test_epochs_with_the_same_batch_size_share_a_plan() -> None:
    asked: list[int] = []

    def size_at(epoch: int) -> int:
        asked.append(epoch)
        return 5

    plans = EpochPlans((3, 7), (25, 10), size_at)
    assert plans.at(0) is plans.at(1)
    assert asked == [0, 1]


def test_few_plans_are_kept() -> None:
    plans = EpochPlans((0,), (1000,), lambda epoch: epoch + 1)
    first = plans.at(0)
    for epoch in range(PLANS_KEPT):
        assert plans.at(epoch) is plans.at(epoch)
    assert plans.at(0) is first
    plans.at(PLANS_KEPT)
    assert plans.at(0) is not first
    assert plans.at(0) == first
