"""Every record of a split lies in exactly one batch, and no batch is tiny or too large."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.data import MAX_CHUNK_BYTES, Chunk, ChunkHash, Field, Manifest, Shard, Split
from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalSteps
from crowdgrad.planner.batches import PLANS_KEPT, EpochPlans, Sizes, cut, largest_batch, plan

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


def spec(buffers: tuple[TensorSpec, ...] = (), **fields: Any) -> ProgramSpec:
    return ProgramSpec(
        buffers=buffers,
        parameters=(TensorSpec(name="w", dtype="float32", shape=(1,)),),
        inputs=(
            TensorSpec(name="x", dtype="uint8", shape=()),
            TensorSpec(name="weights", dtype="float32", shape=()),
        ),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=1.0,
        opset=20,
        **fields,
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
    plans = EpochPlans.of(data, "train", local, spec())
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


# -- what a program can take ------------------------------------------------------------------


@given(st.lists(st.integers(2, 300), min_size=1, max_size=8), st.integers(1, 50))
def test_batch_normalisation_never_meets_a_single_sample(
    records: list[int], batch_size: int
) -> None:
    shards = tuple(range(len(records)))
    batches = cut(shards, tuple(records), batch_size, Sizes(smallest=2))
    sizes = [stop - start for start, stop in map(batches.rows, range(batches.total))]
    assert min(sizes) >= 2
    assert max(sizes) <= max(batch_size + 1, 3)
    assert sum(sizes) == sum(records)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(1, 50), st.booleans())
def test_a_program_of_one_batch_size_gets_no_other(
    records: list[int], batch_size: int, fill: bool
) -> None:
    shards = tuple(range(len(records)))
    batches = cut(shards, tuple(records), batch_size, Sizes(whole=True, fill=fill))
    rows = {number: batches.rows(number) for number in range(batches.total)}
    for shard, count in zip(shards, records, strict=True):
        mine = [rows[number] for number in batches.of_shard(shard)]
        assert [start for start, _ in mine] == list(range(0, batch_size * len(mine), batch_size))
        assert all(stop - start == batch_size for start, stop in mine[:-1])
        covered = mine[-1][1] if mine else 0
        assert covered == count if fill else 0 <= count - covered < batch_size


def test_what_is_left_out_is_not_counted() -> None:
    data = manifest([("train", 25), ("train", 10), ("validation", 9)])
    local = LocalSteps(batch_size=4)
    fixed = spec(fixed_batch=4)
    assert EpochPlans.of(data, "train", local, fixed).records == 24 + 8
    assert EpochPlans.of(data, "validation", local, fixed).records == 8
    filled = spec(fixed_batch=4, weighted=True)
    assert EpochPlans.of(data, "train", local, filled).records == 35
    assert EpochPlans.of(data, "validation", local, filled).records == 8


@pytest.mark.parametrize(("dtype", "used"), [("int64", 35), ("float32", 32), ("float64", 32)])
def test_a_mean_is_never_taken_of_samples_that_only_fill_up(dtype: Any, used: int) -> None:
    buffer = TensorSpec(name="b", dtype=dtype, shape=())
    filled = spec(buffers=(buffer,), fixed_batch=4, weighted=True)
    data = manifest([("train", 25), ("train", 10)])
    assert EpochPlans.of(data, "train", LocalSteps(batch_size=4), filled).records == used


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.integers(1, 50),
    st.integers(1, 64),
    st.sampled_from([1.0, 1.5, 1000.0]),
    st.sampled_from([0, 7, 90]),
)
def test_no_batch_is_larger_than_the_largest(
    records: list[int], batch_size: int, smallest: int, growth: float, most: int
) -> None:
    local = LocalSteps(batch_size=batch_size, growth=growth, largest_batch=most)
    of = spec(smallest_batch=smallest)
    largest = largest_batch(local, of, records, 1001)
    assert largest <= max(records)
    plans = EpochPlans.of(manifest([("train", count) for count in records]), "train", local, of)
    for epoch in (0, 1, 5, 1000):
        found = plans.at(epoch)
        sizes = [stop - start for start, stop in map(found.rows, range(found.total))]
        assert max(sizes) <= largest


def test_a_batch_that_is_filled_up_counts_as_a_whole_one() -> None:
    local, of = LocalSteps(batch_size=20), spec(fixed_batch=20, weighted=True)
    assert largest_batch(local, of, [7], 1) == 20


def test_the_largest_batch_is_that_of_the_last_epoch() -> None:
    local = LocalSteps(batch_size=10, growth=2.0)
    assert [largest_batch(local, spec(), [1000], epochs) for epochs in (1, 2, 4)] == [10, 20, 80]
    assert largest_batch(local, spec(), [50], 9) == 50, "no batch spans shards"
