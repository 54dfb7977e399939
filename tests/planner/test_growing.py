"""What may be added to data that is trained on."""

from __future__ import annotations

from dataclasses import replace

from crowdgrad.domain.data import Field, Manifest, Shard
from crowdgrad.planner.growing import added, outgrows, unusable
from tests.planner.test_passes import manifest


def with_more(data: Manifest, *more: Shard) -> Manifest:
    return replace(data, shards=(*data.shards, *more))


def test_more_to_train_on_may_come() -> None:
    before, after = manifest([20, 10]), manifest([20, 10, 15])
    assert unusable(before, after) == ""
    assert list(added(before, after)) == [3]
    assert unusable(before, before) == ""
    assert not added(before, before)


def test_nothing_else_may_change() -> None:
    before = manifest([20, 10])
    assert "first shards" in unusable(before, manifest([20, 11, 15]))
    assert "first shards" in unusable(before, manifest([20]))
    assert "shard 3" in unusable(before, with_more(before, before.shards[1]))
    fields = (Field(name="y", dtype="uint8", shape=()),)
    assert "fields" in unusable(before, replace(before, fields=fields))


def test_a_shard_larger_than_all_before_outgrows_what_was_reckoned() -> None:
    before = manifest([20, 10], validation=50)
    assert not outgrows(before, manifest([20, 10, 20], validation=50))
    assert outgrows(before, manifest([20, 10, 5, 21], validation=50)), (
        "the other splits do not count"
    )
