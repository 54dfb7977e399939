"""Every record of a split lies in exactly one batch, and no batch is tiny or too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.data import MAX_CHUNK_BYTES, Chunk, Field, Manifest, Shard, Split
from crowdgrad.planner.batches import plan

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
shards = st.lists(st.tuples(st.sampled_from(SPLITS), st.integers(1, 300)), min_size=1, max_size=12)


def manifest(sizes: list[tuple[Split, int]]) -> Manifest:
    """A data set of one byte a record."""
    assert all(records <= MAX_CHUNK_BYTES for _, records in sizes)
    return Manifest(
        title="t",
        fields=(Field(name="x", dtype="uint8", shape=()),),
        shards=tuple(
            Shard(split=split, records=records, chunks=(Chunk(hash="0" * 64, bytes=records),))
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
