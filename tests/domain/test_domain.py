"""A value that exists is a value that makes sense: what the types refuse."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdgrad.domain
from crowdgrad.domain.data import (
    MAX_CHUNK_BYTES,
    MAX_DATA_TITLE,
    MAX_FIELDS,
    MAX_SHARD_CHUNKS,
    MAX_SHARDS,
    Chunk,
    Field,
    Manifest,
    Shard,
    check_hash,
)
from crowdgrad.domain.job import (
    MAX_CORES,
    MAX_HYPERPARAMETERS,
    MAX_MEMORY_MB,
    Job,
    Member,
    Roster,
    StoppingRule,
    Volunteer,
)
from crowdgrad.domain.program import (
    DType,
    MetricSpec,
    NoiseSpec,
    ProgramSpec,
    TensorSpec,
    word_places,
)
from crowdgrad.domain.work import (
    MAX_BATCH_SIZE,
    MAX_BATCHES,
    MAX_COUNT,
    MAX_GROWTH_EVERY,
    MAX_METRICS,
    MAX_WORD,
    LocalRule,
    LocalSteps,
    Unit,
    Update,
    Version,
)

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
        hyperparameters={}, local=LocalSteps(batch_size=1),
        stop=StoppingRule(epochs=1), seed=0,
    )  # fmt: skip
    return Job(**values | changes)


def local(**changes: Any) -> LocalSteps:
    return LocalSteps(**base(batch_size=100) | changes)


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


SOUND = [volunteer, job, local, unit, update, field, shard, manifest, spec]


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
    (spec, {"frozen": ("bias",)}),
    (spec, {"buffers": (TensorSpec(name="b", dtype="bool", shape=()),)}),
    (spec, {"metrics": (MetricSpec(name="a"), MetricSpec(name="a"))}),
    (spec, {"weighted": True}), (spec, {"smallest_batch": 0}), (spec, {"fixed_batch": -1}),
    (local, {"batch_size": 0}), (local, {"batch_size": MAX_BATCH_SIZE + 1}),
    (local, {"batches_per_unit": 0}), (local, {"batches_per_unit": MAX_BATCHES + 1}),
    (local, {"fetch_every": -1}), (local, {"fetch_every": MAX_BATCHES + 1}),
    (local, {"batches_per_unit": 4, "fetch_every": 6}),
    (local, {"batches_per_unit": 6, "fetch_every": 4}),
    (local, {"overlap": -1}), (local, {"overlap": 9}),
    (local, {"clip": -1.0}), (local, {"clip": float("nan")}), (local, {"clip": float("inf")}),
    (local, {"l1": -1e-9}), (local, {"l1": float("inf")}), (local, {"l2": float("nan")}),
    (local, {"growth": 0.99}), (local, {"growth": 1001.0}), (local, {"growth": float("nan")}),
    (local, {"growth_every": 0}),
    (local, {"largest_batch": -1}), (local, {"largest_batch": MAX_BATCH_SIZE + 1}),
    (LocalRule, {"name": ""}), (LocalRule, {"name": "r" * 33}), (LocalRule, {"name": "a b"}),
    (LocalRule, {"name": "os.system"}), (LocalRule, {"settings": {"lr": float("nan")}}),
    (LocalRule, {"settings": {"lr": float("-inf")}}),
    (LocalRule, {"settings": {f"s{i}": 0.0 for i in range(17)}}),
    (Version, {"incarnation": -1, "count": 0}), (Version, {"incarnation": 0, "count": -1}),
    (Chunk, {"hash": HASH, "bytes": 0}), (Chunk, {"hash": HASH, "bytes": MAX_CHUNK_BYTES + 1}),
    (Member, {"position": -1, "id": "a", "name": "a"}),
    (Member, {"position": 0, "id": "a", "name": "\x1b[2J"}),
    (Member, {"position": 0, "id": "a", "name": "n" * 65}),
    (Member, {"position": 0, "id": "", "name": "a"}),
    (Member, {"position": 0, "id": "a" * 65, "name": "a"}),
    (Member, {"position": 1 << 63, "id": "a", "name": "a"}),
    (Roster, {"job": "j" * 65, "members": ()}),
    (volunteer, {"engine": "a\x1b"}), (volunteer, {"software": "a\nb"}),
    (volunteer, {"cores": MAX_CORES + 1}), (volunteer, {"memory_mb": MAX_MEMORY_MB + 1}),
    (job, {"recipe": ""}), (job, {"recipe": "r" * 65}), (job, {"recipe": "\x1b[2J"}),
    (job, {"hyperparameters": {str(n): n for n in range(MAX_HYPERPARAMETERS + 1)}}),
    (job, {"hyperparameters": {"n" * 65: 1}}), (job, {"hyperparameters": {"a\nb": 1}}),
    (job, {"hyperparameters": {"a": "v" * 257}}), (job, {"hyperparameters": {"a": "\x1b[2J"}}),
    (job, {"hyperparameters": {"a": 1 << 63}}), (job, {"hyperparameters": {"a": float("inf")}}),
    (unit, {"id": MAX_COUNT}), (unit, {"epoch": MAX_WORD}), (unit, {"shard": MAX_WORD}),
    (unit, {"first_batch": MAX_WORD}), (unit, {"first_batch": MAX_WORD - 1, "batches": 2}),
    (update, {"samples": MAX_COUNT}), (update, {"unit": -1}), (update, {"unit": MAX_COUNT}),
    (update, {"link": -1}), (update, {"link": MAX_WORD}),
    (update, {"metrics": {str(n): 0.0 for n in range(MAX_METRICS + 1)}}),
    (update, {"metrics": {"\x1b[2J": 0.0}}), (update, {"metrics": {"m" * 257: 0.0}}),
    (Version, {"incarnation": MAX_COUNT, "count": 0}),
    (Version, {"incarnation": 0, "count": MAX_COUNT}),
    (LocalRule, {"settings": {"s" * 33: 0.0}}), (local, {"growth_every": MAX_GROWTH_EVERY + 1}),
    (manifest, {"title": ""}), (manifest, {"title": "t" * (MAX_DATA_TITLE + 1)}),
    (manifest, {"title": "\x1b[2J"}),
    (manifest, {"fields": tuple(field(name=str(n)) for n in range(MAX_FIELDS + 1))}),
    (manifest, {"shards": (shard(),) * (MAX_SHARDS + 1)}),
    (shard, {"chunks": (Chunk(hash=HASH, bytes=1),) * (MAX_SHARD_CHUNKS + 1)}),
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


@pytest.mark.parametrize(
    ("batches", "fetch_every", "units"),
    [(1, 0, 1), (4, 0, 1), (4, 4, 1), (4, 8, 2), (1, 8, 8), (4, 2, 1), (4, 1, 1),
     (1, MAX_BATCHES, MAX_BATCHES)],
)  # fmt: skip
def test_units_between_two_fetches_make_a_chain(batches: int, fetch_every: int, units: int) -> None:
    assert local(batches_per_unit=batches, fetch_every=fetch_every).units_per_fetch == units


def test_a_batch_grows_every_so_many_epochs_up_to_its_largest() -> None:
    steps = local(growth=2.0, growth_every=3, largest_batch=700)
    assert [steps.batch_size_at(epoch) for epoch in (0, 2, 3, 5, 6, 8, 9, 100)] == [
        100, 100, 200, 200, 400, 400, 700, 700
    ]  # fmt: skip
    assert local(growth=1.1).batch_size_at(1) == 110
    assert local(batch_size=1, growth=1.5).batch_size_at(2) == 2, "rounded once, from the first"
    assert local(growth=1000.0).batch_size_at(2) == MAX_BATCH_SIZE


def test_a_largest_batch_below_the_first_one_does_not_shrink_it() -> None:
    assert local(growth=2.0, largest_batch=50).batch_size_at(9) == 100


@pytest.mark.parametrize("epoch", [10**9, 1 << 63, 10**30])
@pytest.mark.parametrize("growth", [1.0, 1.0000001, 1.5, 1000.0])
def test_however_many_epochs_the_batch_is_found_at_once(epoch: int, growth: float) -> None:
    size = local(growth=growth, largest_batch=5000).batch_size_at(epoch)
    assert size == (100 if growth == 1.0 else 5000)


@settings(deadline=None)
@given(
    st.integers(1, 5000), st.floats(1.0, 1000.0), st.integers(1, 50), st.integers(0, 10_000),
    st.integers(0, 10**7),
)  # fmt: skip
def test_a_batch_only_grows_and_never_beyond_what_is_allowed(
    first: int, growth: float, every: int, largest: int, epoch: int
) -> None:
    steps = local(batch_size=first, growth=growth, growth_every=every, largest_batch=largest)
    size = steps.batch_size_at(epoch)
    assert type(size) is int
    assert first <= size <= max(first, largest or MAX_BATCH_SIZE)
    assert size <= steps.batch_size_at(epoch + 1)
    assert steps.batch_size_at(epoch - epoch % every) == size
    exact = first * growth ** min(epoch // every, 100)
    if exact < min(largest or MAX_BATCH_SIZE, 1e6) and epoch // every <= 100:
        assert size == round(exact)


def test_sizes_follow_from_shapes() -> None:
    assert (spec().size, spec().update_words, spec().state_words) == (12, 12, 12)
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


def test_buffers_begin_at_even_words_behind_the_parameters() -> None:
    def tensor(name: str, dtype: DType, *shape: int) -> TensorSpec:
        return TensorSpec(name=name, dtype=dtype, shape=shape)

    assert word_places(3, (tensor("a", "float32", 3), tensor("b", "int64"))) == (4, 8)
    of_five = (tensor("mask", "bool", 5), tensor("empty", "float32", 0))
    assert word_places(0, of_five) == (0, 2)
    program = replace(spec(), buffers=(tensor("n", "int64"),), fixed=of_five)
    assert (program.update_words, program.state_words) == (14, 16)


@pytest.mark.parametrize(
    ("metric", "mean", "shown"),
    [
        (MetricSpec(name="accuracy"), 0.5, 0.5),
        (MetricSpec(name="perplexity", better="lower", of_mean="exp"), 0.0, 1.0),
        (MetricSpec(name="perplexity", better="lower", of_mean="exp"), 1e4, math.inf),
        (MetricSpec(name="rmse", better="lower", of_mean="sqrt"), 9.0, 3.0),
        (MetricSpec(name="rmse", better="lower", of_mean="sqrt"), -1.0, math.nan),
    ],
)
def test_what_is_shown_of_a_mean(metric: MetricSpec, mean: float, shown: float) -> None:
    assert metric.shown(mean) == pytest.approx(shown, nan_ok=True)
    assert metric.is_better(1.0, 2.0) == (metric.better == "lower")
    assert not metric.is_better(1.0, 1.0)
