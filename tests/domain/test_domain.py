"""A value that exists is a value that makes sense: what the types refuse."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

import crowdgrad.domain
from crowdgrad.domain.data import MAX_CHUNK_BYTES, Chunk, Field, Manifest, Shard, check_hash
from crowdgrad.domain.job import Job, Member, Roster, StoppingRule, Volunteer
from crowdgrad.domain.program import NoiseSpec, ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalSteps, Unit, Update, Version

HASH = "a" * 64


def types() -> list[type]:
    found = []
    for module in pkgutil.iter_modules(crowdgrad.domain.__path__):
        home = importlib.import_module(f"crowdgrad.domain.{module.name}")
        classes = inspect.getmembers(home, inspect.isclass)
        found += [kind for _, kind in classes if kind.__module__ == home.__name__]
    return found


@pytest.mark.parametrize("kind", types(), ids=lambda kind: kind.__name__)
def test_every_type_is_frozen_slotted_and_keyword_only(kind: type) -> None:
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(kind)
    assert all(field.kw_only for field in dataclasses.fields(kind))


def base(**changes: Any) -> dict[str, Any]:
    return changes


def volunteer(**changes: Any) -> Volunteer:
    values = base(id="a1", name="Ada", cores=1, memory_mb=0, engine="", software="")
    return Volunteer(**values | changes)


def job(**changes: Any) -> Job:
    values = base(
        id="j-1", title="t", cause="", program=HASH, manifest=HASH, recipe="async_sgd",
        hyperparameters={}, local=LocalSteps(batch_size=1, learning_rate=0.1),
        stop=StoppingRule(epochs=1), seed=0,
    )  # fmt: skip
    return Job(**values | changes)


def unit(**changes: Any) -> Unit:
    values = base(id=0, kind="train", epoch=0, shard=0, first_batch=0, batches=1)
    return Unit(**values | changes)


def update(**changes: Any) -> Update:
    values = base(
        unit=0, base=Version(incarnation=0, count=0), samples=1, loss=0.0, metrics={}, compute_s=0.0
    )
    return Update(**values | changes)


def field(**changes: Any) -> Field:
    return Field(**base(name="x", dtype="uint8", shape=(28, 28)) | changes)


def shard(**changes: Any) -> Shard:
    chunks = (Chunk(hash=HASH, bytes=784 * 2),)
    return Shard(**base(split="train", records=2, chunks=chunks) | changes)


def manifest(**changes: Any) -> Manifest:
    return Manifest(**base(title="m", fields=(field(),), shards=(shard(),)) | changes)


def spec(**changes: Any) -> ProgramSpec:
    values = base(
        parameters=(TensorSpec(name="w", dtype="float32", shape=(3, 4)),), buffers=(),
        inputs=(TensorSpec(name="x", dtype="uint8", shape=(3,)),), noise=(), metrics=(), outputs=1,
        work_per_sample=24.0, opset=20,
    )  # fmt: skip
    return ProgramSpec(**values | changes)


SOUND = [volunteer, job, unit, update, field, shard, manifest, spec]


@pytest.mark.parametrize("make", SOUND, ids=lambda make: make.__name__)
def test_sound_values_can_be_made(make: Callable[[], object]) -> None:
    assert make() == make()


NONSENSE: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (volunteer, {"id": ""}), (volunteer, {"id": "../x"}), (volunteer, {"id": "a" * 65}),
    (volunteer, {"name": ""}), (volunteer, {"name": "a\nb"}), (volunteer, {"name": "a" * 65}),
    (volunteer, {"cores": 0}), (volunteer, {"memory_mb": -1}), (volunteer, {"engine": "e" * 65}),
    (job, {"id": "a/b"}), (job, {"id": ".."}), (job, {"id": "---"}), (job, {"id": ""}),
    (job, {"title": ""}), (job, {"title": "t" * 121}), (job, {"cause": "c" * 121}),
    (job, {"title": "two\nlines"}), (job, {"title": "\x1b[2J"}), (job, {"title": "\u202e"}),
    (job, {"cause": "two\nlines"}), (job, {"cause": "\x1b[2J"}), (job, {"cause": "\u202e"}),
    (job, {"program": "A" * 64}), (job, {"manifest": HASH[:-1]}), (job, {"seed": -1}),
    (job, {"seed": 1 << 64}),
    (unit, {"id": -1}), (unit, {"epoch": -1}), (unit, {"shard": -1}), (unit, {"first_batch": -1}),
    (unit, {"batches": 0}), (unit, {"batches": (1 << 16) + 1}),
    (update, {"samples": 0}), (update, {"compute_s": -1.0}), (update, {"compute_s": float("inf")}),
    (update, {"compute_s": float("nan")}),
    (field, {"mean": 0.5}), (field, {"std": 0.5}), (field, {"mean": 0.0, "std": 0.0}),
    (field, {"mean": float("nan"), "std": 1.0}), (field, {"mean": 0.0, "std": float("inf")}),
    (field, {"shape": (-1,)}), (field, {"shape": (1,) * 9}), (field, {"shape": (1 << 21, 1 << 21)}),
    (field, {"name": ""}), (field, {"name": "n" * 257}), (field, {"name": "a\x00"}),
    (shard, {"records": 0}), (shard, {"chunks": ()}),
    (manifest, {"fields": ()}), (manifest, {"shards": ()}), (manifest, {"fields": (field(),) * 2}),
    (manifest, {"shards": (shard(records=3),)}),
    (spec, {"parameters": ()}), (spec, {"inputs": ()}), (spec, {"work_per_sample": 0.0}),
    (spec, {"work_per_sample": float("nan")}),
    (spec, {"parameters": (TensorSpec(name="w", dtype="float64", shape=()),)}),
    (spec, {"inputs": (TensorSpec(name="w", dtype="uint8", shape=()),)}),
    (spec, {"noise": (NoiseSpec(name="x", kind="normal", shape=(), per_sample=True),)}),
    (StoppingRule, {"epochs": 0}), (StoppingRule, {"epochs": 1, "minutes": 0.0}),
    (StoppingRule, {"epochs": 1, "minutes": float("nan")}),
    (StoppingRule, {"epochs": 1, "target": float("nan")}),
    (LocalSteps, {"batch_size": 0, "learning_rate": 0.1}),
    (LocalSteps, {"batch_size": 1, "learning_rate": -0.1}),
    (LocalSteps, {"batch_size": 1, "learning_rate": float("nan")}),
    (Version, {"incarnation": -1, "count": 0}), (Version, {"incarnation": 0, "count": -1}),
    (Chunk, {"hash": HASH, "bytes": 0}), (Chunk, {"hash": HASH, "bytes": MAX_CHUNK_BYTES + 1}),
    (Member, {"position": -1, "id": "a", "name": "a"}),
    (Member, {"position": 0, "id": "a", "name": "\x1b[2J"}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "changes"), NONSENSE)
def test_what_makes_no_sense_cannot_be_made(
    make: Callable[..., object], changes: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+") as refused:
        make(**changes)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("make", [volunteer, job], ids=["volunteer", "job"])
@pytest.mark.parametrize("key", ["id", "name", "title", "program"])
def test_a_refusal_does_not_repeat_a_book(make: Callable[..., object], key: str) -> None:
    if key in make().__slots__:  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match=r".") as refused:
            make(**{key: "\n" * 100_000})
        assert len(str(refused.value)) < 500


def test_versions_count_up_and_know_how_stale_an_older_one_is() -> None:
    first = Version(incarnation=2, count=7)
    assert str(first) == "2.7"
    assert first.next() == Version(incarnation=2, count=8) > first
    assert first.next().next().staleness(first) == 2
    assert Version(incarnation=3, count=0) > first
    with pytest.raises(AssertionError):
        Version(incarnation=3, count=0).staleness(first)


def test_sizes_follow_from_shapes() -> None:
    assert (spec().size, spec().vector_bytes) == (12, 48)
    data = manifest(shards=(shard(), shard(split="test"), shard()))
    assert data.record_bytes == 784
    assert (data.numbers("train"), data.numbers("test")) == ((0, 2), (1,))
    assert (data.records("train"), data.records("validation")) == (4, 0)
    assert TensorSpec(name="s", dtype="int64", shape=()).bytes == 8


def test_a_roster_is_in_order_and_gives_no_place_twice() -> None:
    def roster(*positions: int) -> Roster:
        return Roster(
            job="j", members=tuple(Member(position=p, id="a", name="a") for p in positions)
        )

    assert len(roster(0, 1, 5).members) == 3
    for wrong in ((1, 0), (1, 1)):
        with pytest.raises(ValueError, match="positions"):
            roster(*wrong)


@pytest.mark.parametrize("wrong", ["", "a" * 63, "A" * 64, "g" * 64, "a" * 65])
def test_a_hash_has_64_digits(wrong: str) -> None:
    check_hash("0123456789abcdef" * 4)
    with pytest.raises(ValueError, match="64 hexadecimal"):
        check_hash(wrong)
