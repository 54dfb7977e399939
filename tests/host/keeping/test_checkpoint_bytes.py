"""Checkpoints become bytes and come back; what a stranger wrote is restored safely or refused."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.errors import DataMalformed
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_bytes import (
    Best,
    decode_best,
    decode_checkpoint,
    encode_best,
    encode_checkpoint,
)
from crowdgrad.host.keeping.checkpoint_checks import contradiction, misfit
from crowdgrad.host.training import Training
from crowdgrad.numerics.rules import Adam, NAdam
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.store.packed import Packed, pack, unpack
from tests.host import small
from tests.host.keeping import checkpoints
from tests.host.people import Person, leased, plain_manifest, stage

RECIPES: dict[str, Recipe] = {
    "ranges": AsyncSGD(batch_size=10, overlap=0, rule=Adam()),
    "segments": AsyncSGD(batch_size=10, overlap=0, assignment="segments", rule=NAdam()),
}
DATA = plain_manifest(320)


def there_and_back(checkpoint: Checkpoint) -> Checkpoint:
    return decode_checkpoint(unpack(b"".join(pack(*encode_checkpoint(checkpoint)))))


def misfits(checkpoint: Checkpoint, recipe: Recipe, **other: Any) -> str:
    what = {
        "job": small.job(recipe=recipe, of=DATA, epochs=3),
        "spec": small.spec(),
        "manifest": DATA,
        "recipe": recipe,
    }
    return misfit(checkpoint, **(what | other))


@settings(deadline=None, max_examples=50)
@given(checkpoint=checkpoints.made_up())
def test_whatever_a_checkpoint_holds_comes_back(checkpoint: Checkpoint) -> None:
    assert checkpoints.told(there_and_back(checkpoint)) == checkpoints.told(checkpoint)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("steps", [0, 1, 20, 95])
def test_a_real_checkpoint_comes_back_and_fits_its_job(recipe: str, steps: int) -> None:
    checkpoint = asyncio.run(checkpoints.taken(RECIPES[recipe], steps=steps))
    back = there_and_back(checkpoint)
    assert checkpoints.told(back) == checkpoints.told(checkpoint)
    assert misfits(back, RECIPES[recipe]) == ""
    assert not back.saved.vector.flags.writeable


def test_odd_but_true_checkpoints_are_taken() -> None:
    """A worker 0 that was replaced, a clock read before training began, shards without batches."""

    async def scenario() -> None:
        spec = replace(small.spec(), fixed_batch=10)
        data = plain_manifest(4, 20, 5)
        recipe = AsyncSGD(batch_size=10, overlap=0)
        job = small.job(recipe=recipe, of=data, epochs=2)
        training = Training(
            job=job, spec=spec, manifest=data, initial=np.zeros(small.SIZE, np.float32),
            recipe=recipe, lease_s=20.0,
        )  # fmt: skip
        for name in ("own1", "own2"):
            account = training.join(5.0, small.volunteer(name), own=True)
            unit, _ = leased(training, account, 5.0)
        training.book.give_back(unit.id, account.volunteer.id, "bad", failed=True, decisive=True)
        back = there_and_back(await training.checkpoint(4.9))
        assert back.course.elapsed_s < 0
        assert {account.position for account in back.ledger.accounts} == {0}
        assert back.book.set_aside
        assert (0, 0) in back.book.assignment.progress[0].taken
        assert misfit(back, job=job, spec=spec, manifest=data, recipe=recipe) == ""

    asyncio.run(scenario())


def test_vectors_are_not_copied() -> None:
    checkpoint = checkpoints.simple(size=1000)
    _, parts = encode_checkpoint(checkpoint)
    assert np.shares_memory(np.frombuffer(parts["state"], np.float32), checkpoint.saved.vector)


def test_an_older_file_that_lacks_a_field_has_its_default() -> None:
    header, parts = encode_checkpoint(replace(checkpoints.simple(), starts=5, setbacks=2))
    told = msgspec.msgpack.decode(header)
    del told["beside"]["starts"]
    told["beside"]["of_tomorrow"] = 7
    back = decode_checkpoint(Packed(msgspec.msgpack.encode(told), parts))
    assert (back.starts, back.setbacks) == (1, 2)


@pytest.mark.parametrize(
    "name", [f.name for f in fields(Checkpoint) if f.name in ("book", "ledger", "course")]
)
def test_what_has_no_default_must_be_there(name: str) -> None:
    header, parts = encode_checkpoint(checkpoints.simple())
    told = msgspec.msgpack.decode(header)
    del told["beside"][name]
    with pytest.raises(DataMalformed, match=name):
        decode_checkpoint(Packed(msgspec.msgpack.encode(told), parts))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"state": b"123"},
        {"state": bytes(20), "else": bytes(20)},
        {"state": bytes(20), "memory.a": bytes(24)},
        {"state": bytes(20), "memory.a": bytes(8), "memory.b": bytes(12)},
    ],
    ids=str,
)
def test_vectors_must_fit_together(parts: dict[str, bytes]) -> None:
    header, _ = encode_checkpoint(checkpoints.simple())
    views = {name: memoryview(part) for name, part in parts.items()}
    with pytest.raises(DataMalformed):
        decode_checkpoint(Packed(header, views))


@given(header=st.binary(max_size=200))
def test_whatever_the_header_is_the_answer_is_ours(header: bytes) -> None:
    found = Packed(header, {"state": memoryview(bytes(20))})
    with pytest.raises(DataMalformed):
        decode_checkpoint(found)
    with pytest.raises(DataMalformed):
        decode_best(found, 5)


@given(scores=checkpoints.SCORES.filter(lambda scores: scores.finite))
def test_the_best_comes_back(scores: Any) -> None:
    best = Best(scores=scores, vector=np.arange(5, dtype=np.float32))
    back = decode_best(unpack(b"".join(pack(*encode_best(best)))), 5)
    assert checkpoints.told(back) == checkpoints.told(best)
    assert encode_best(back)[0] == encode_best(best)[0], "or it would be written again and again"


def test_the_best_of_another_program_is_refused() -> None:
    best = Best(scores=checkpoints.scores(), vector=np.arange(5, dtype=np.float32))
    with pytest.raises(DataMalformed, match="5 numbers"):
        decode_best(unpack(b"".join(pack(*encode_best(best)))), 6)
    nowhere = Best(scores=checkpoints.scores(loss=float("nan")), vector=best.vector)
    with pytest.raises(DataMalformed, match="finite"):
        decode_best(unpack(b"".join(pack(*encode_best(nowhere)))), 5)


# -- another job's ----------------------------------------------------------------------------


def test_a_checkpoint_of_another_job_is_named() -> None:
    ranges, segments = RECIPES["ranges"], RECIPES["segments"]
    checkpoint = asyncio.run(checkpoints.taken(ranges, steps=20))
    owned = asyncio.run(checkpoints.taken(segments, steps=20))
    assert "4" in misfits(checkpoint, ranges, spec=small.spec(size=4))
    assert "remembers" in misfits(checkpoint, AsyncSGD(batch_size=10))
    assert "measured" in misfits(checkpoint, ranges, spec=small.spec(metrics=()))
    assert misfits(checkpoint, ranges, manifest=plain_manifest(100))
    assert misfits(checkpoint, replace(segments, rule=Adam()))  # type: ignore[type-var]
    assert misfits(owned, replace(ranges, rule=NAdam()))  # type: ignore[type-var]
    assert misfits(checkpoint, ranges, job=small.job(recipe=ranges, of=DATA, epochs=1)) == ""
    later = asyncio.run(checkpoints.taken(ranges, steps=40))
    assert misfits(later, ranges, job=small.job(recipe=ranges, of=DATA, epochs=1))


def changed(told: Any, path: str, value: Any) -> Any:
    """`told` with something else at a path of names and numbers; `...` doubles what is there."""
    *above, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place = told
    for step in above:
        place = place[step]
    place[last] = [*place[last], copy.deepcopy(place[last][0])] if value is ... else value
    return told


UNIT, OWNED = "book.waiting.0.unit", "book.assignment.progress.0"
CONTRADICTIONS = [
    ("version.count", (1 << 63) - 1), ("version.incarnation", 1 << 62), ("steps", -1),
    ("beside.setbacks", -2000), ("beside.starts", -1), ("beside.metrics_bytes", -1),
    ("beside.staleness", [[-1, 1]]), ("numbers", {"momentum_product": float("nan")}),
    ("beside.course.elapsed_s", float("nan")), ("beside.course.elapsed_s", float("-inf")),
    ("beside.ledger.accounts", ...), ("beside.ledger.accounts.1.position", 1),
    ("beside.ledger.accounts.0.units", -1), ("beside.ledger.accounts.0.samples", -1),
    ("beside.ledger.next_position", -1), ("beside.book.done_samples", -1),
    ("beside.book.waiting", ...), (f"beside.{UNIT}.kind", "test"), (f"beside.{UNIT}.id", 23),
    ("beside.book.next_id", 1 << 40), ("beside.book.waiting.0.failed_on", [["v0", -1]]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), CONTRADICTIONS, ids=lambda cell: str(cell)[:40])
def test_what_contradicts_itself_is_refused(
    path: str, value: Any, real: dict[str, Checkpoint]
) -> None:
    header, parts = encode_checkpoint(real["ranges"])
    told = changed(msgspec.msgpack.decode(header), path, value)
    with pytest.raises(DataMalformed):
        decode_checkpoint(Packed(msgspec.msgpack.encode(told), parts))


MISFITS = [
    ("ranges", f"{UNIT}.epoch", 3), ("ranges", f"{UNIT}.shard", 1),
    ("ranges", f"{UNIT}.first_batch", 32), ("ranges", f"{UNIT}.batches", 13),
    ("ranges", "book.waiting.0.owner", "v0"), ("segments", "book.waiting.0.owner", None),
    ("segments", "book.waiting.0.owner", "v9"), ("ranges", "book.assignment.progress", ...),
    ("ranges", "book.assignment.progress", []), ("ranges", f"{OWNED}.who", "v0"),
    ("ranges", f"{OWNED}.epoch", 3), ("ranges", f"{OWNED}.epoch", -2),
    ("ranges", f"{OWNED}.taken", [[0, 33]]), ("ranges", f"{OWNED}.taken", [[32, 33]]),
    ("ranges", f"{OWNED}.taken", [[0, -1]]), ("segments", "book.assignment.progress", ...),
    ("segments", "book.assignment.ranked", ...), ("segments", f"{OWNED}.epoch", -1),
    ("segments", f"{OWNED}.epoch", 3), ("segments", f"{OWNED}.taken", [[5, 3]]),
    ("segments", f"{OWNED}.done", [[-1, 3]]), ("segments", f"{OWNED}.done", [[30, 33]]),
    ("ranges", "course.history.0.metrics", {}), ("ranges", "course.best.metrics", {"loss": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "path", "value"), MISFITS, ids=lambda cell: str(cell)[:40])
def test_what_no_checkpoint_of_this_job_holds_is_named(
    recipe: str, path: str, value: Any, real: dict[str, Checkpoint]
) -> None:
    header, parts = encode_checkpoint(real[recipe])
    told = changed(msgspec.msgpack.decode(header), f"beside.{path}", value)
    checkpoint = decode_checkpoint(Packed(msgspec.msgpack.encode(told), parts))
    assert misfits(checkpoint, RECIPES[recipe])


# -- a stranger's -----------------------------------------------------------------------------


def places(told: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in nested lists and dictionaries."""
    keys = list(told) if isinstance(told, dict) else range(len(told))
    for key in keys:
        yield told, key
        if isinstance(told[key], dict | list):
            yield from places(told[key])


def spoil(told: Any, data: st.DataObject) -> None:
    """Change, remove or double something."""
    container, key = data.draw(st.sampled_from(list(places(told))), label="place")
    old = container[key]
    ways: list[Any] = [None, -1, 0, 1, 2, 31, 32, 33, 1 << 40, (1 << 64) - 1, "v0", "v9", [], {}]
    ways += [0.5, float("nan"), float("inf"), True]
    if type(old) is int:
        ways += [value for value in (old - 1, old + 1, old * 2) if value < 1 << 64]
    way = data.draw(st.integers(0, len(ways) + 1))
    if way < len(ways):
        container[key] = ways[way]
    elif isinstance(container, list) and way == len(ways):
        container.append(copy.deepcopy(old))
    else:
        del container[key]


async def go_on(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Restore it, then do what there is to do."""
    training, people = stage(recipe, 0)
    await training.resume(100.0, checkpoint, checkpoint.saved.version.incarnation + 1)
    for name in ("v0", "v1", "v9"):  # one of them nobody has seen before
        account = training.join(100.0, small.volunteer(name), own=False)
        people.append(Person(training, account))
    training.roster()
    for now in range(101, 120):
        for person in people:
            if await person.ask(now) is not None:
                assert await person.push(now) == "accepted"
        await training.tick(now)
    await training.checkpoint(120.0)


@pytest.fixture(scope="module")
def real() -> dict[str, Checkpoint]:
    return {
        name: asyncio.run(checkpoints.taken(recipe, steps=20)) for name, recipe in RECIPES.items()
    }


@settings(deadline=None, max_examples=150)
@given(data=st.data())
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_a_stranger_changed_is_restored_or_refused(
    recipe: str, data: st.DataObject, real: dict[str, Checkpoint]
) -> None:
    header, parts = encode_checkpoint(real[recipe])
    told = msgspec.msgpack.decode(header)
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(told, data)
    try:
        checkpoint = decode_checkpoint(Packed(msgspec.msgpack.encode(told), parts))
    except DataMalformed:
        return
    assert contradiction(checkpoint) == ""
    if not misfits(checkpoint, RECIPES[recipe]):
        asyncio.run(go_on(checkpoint, RECIPES[recipe]))
