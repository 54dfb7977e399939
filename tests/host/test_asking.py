"""A model asked while it is trained: test records in words, pictures as brightness, bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from starlette.testclient import TestClient
from torch import Tensor, nn
from torch.nn import functional

from crowdgrad.capture.models import digits_mlp, mlp, spirals_mlp
from crowdgrad.capture.task import Task
from crowdgrad.data import generated
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.shards import shard_arrays
from crowdgrad.data.text import from_text
from crowdgrad.domain.work import Version
from crowdgrad.errors import DataMalformed, DataMissing
from crowdgrad.host.asking import MOST_TOLD, Asking, Prediction, Samples
from crowdgrad.host.job import JobPlan, Prepared, prepare
from crowdgrad.host.remote.api import create_app
from crowdgrad.host.remote.control import Control
from crowdgrad.host.telling.status import Status
from crowdgrad.numerics.vectors import Vector
from tests.host import small

PHOTO = (3, 130, 200)


@pytest.fixture(scope="module")
def digits() -> Prepared:
    return prepare(JobPlan(task=digits_mlp(), data=generated.digits()))


@pytest.fixture(scope="module")
def spirals() -> Prepared:
    return prepare(JobPlan(task=spirals_mlp(), data=generated.spirals()))


@pytest.fixture(scope="module")
def photos() -> Prepared:
    """Too large to be told whole, not square, and in colours."""
    dice = np.random.default_rng(0)
    pictures = dice.integers(0, 256, (40, *PHOTO), np.uint8)
    kinds = dice.integers(0, 3, 40).astype(np.uint8)
    data = from_arrays(pictures, kinds, title="photos", test=10, classes=["a", "b", "c"])
    return prepare(JobPlan(task=mlp(PHOTO, (), 3), data=data))


@pytest.fixture(scope="module")
def wide() -> Prepared:
    """Records of more numbers than are told."""
    numbers = np.random.default_rng(0).random((40, MOST_TOLD + 1)).astype(np.float32)
    data = from_arrays(numbers, np.zeros(40, np.uint8), title="wide", test=10)
    return prepare(JobPlan(task=mlp((MOST_TOLD + 1,), (), 2), data=data))


class Alphabet(nn.Module):
    """Behind every letter it expects the next one of the alphabet, which is sorted."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.table = nn.Embedding(letters, letters)
        with torch.no_grad():
            self.table.weight[:] = 9 * torch.eye(letters).roll(1, dims=1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)  # type: ignore[no-any-return]


def next_letter(scores: Tensor, wanted: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())


@pytest.fixture(scope="module")
def letters() -> Prepared:
    data = from_text("\n abc" * 400, length=8, validation=0.1, test=0.1)
    ids = torch.randint(0, 5, (2, 8))
    task = Task(Alphabet(5), next_letter, inputs=(ids,), targets=(ids,))
    return prepare(JobPlan(task=task, data=data))


class Pairs(nn.Module):
    """Two numbers from two fields."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor, grade: Tensor) -> Tensor:
        return self.out(torch.cat([x, grade.float()[:, None]], dim=1))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def pairs() -> Prepared:
    dice = np.random.default_rng(0)
    x, y = dice.random((2, 40, 2)).astype(np.float32)
    names = ("sizes", "grade", "wanted")
    data = from_arrays(x, dice.integers(0, 5, 40), y, names=names, test=10)
    inputs = (torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))
    loss = functional.mse_loss
    return prepare(
        JobPlan(task=Task(Pairs(), loss, inputs=inputs, targets=(torch.zeros(2, 2),)), data=data)
    )


class World:
    """Parameters that change when told, and a clock."""

    def __init__(self, prepared: Prepared) -> None:
        self.state: Vector = prepared.initial.copy()
        self.count, self.copies, self.now = 0, 0, 0.0
        self.asking = Asking(prepared, self.copy, lambda: self.now)

    async def copy(self) -> tuple[Vector, Version]:
        self.copies += 1
        return self.state.copy(), Version(incarnation=0, count=self.count)

    def samples(self, count: int = 24) -> Samples:
        return asyncio.run(self.asking.samples(count))

    def predict(self, numbers: list[float]) -> Prediction:
        return asyncio.run(self.asking.predict(numbers))


def test_samples_are_test_records_as_pictures_with_their_labels(digits: Prepared) -> None:
    found = World(digits).samples(30)
    data = generated.digits().splits["test"]
    assert (found.kind, found.shape, found.split, found.version) == ("image", [8, 8], "test", "0.0")
    images = {(np.round(x / 16, 3).tobytes(), str(y)) for x, y in zip(*data, strict=True)}
    for sample in found.samples:
        assert isinstance(sample.input, list)
        told = np.asarray(sample.input).reshape(8, 8)
        assert (told.tobytes(), sample.label) in images
        assert sample.right == (sample.label == sample.predicted)
        assert sample.probability is not None
        assert 0.1 <= sample.probability <= 1


def test_a_record_that_the_loss_passes_over_has_no_label() -> None:
    pictures = np.random.default_rng(0).random((40, 8, 8)).astype(np.float32)
    labels = np.arange(40, dtype=np.int64) % 10
    unknown = np.where(labels == 3, -100, labels)
    splits = {"train": (pictures, labels), "test": (pictures, unknown)}
    data = from_arrays(splits, title="some unknown", classes=[f"{k}!" for k in range(10)])
    found = World(prepare(JobPlan(task=digits_mlp(), data=data))).samples(40)
    told = [sample for sample in found.samples if sample.label is None]
    assert len(told) == 4
    assert {sample.right for sample in told} == {None}
    assert {sample.label for sample in found.samples} == {
        None,
        *(f"{k}!" for k in range(10) if k != 3),
    }


def test_a_picture_that_comes_back_is_the_record_it_was(digits: Prepared) -> None:
    world = World(digits)
    for sample in world.samples().samples:
        assert isinstance(sample.input, list)
        best = world.predict(sample.input).answers[0]
        assert best.label == sample.predicted
        assert best.probability == pytest.approx(sample.probability)


def test_the_parameters_are_copied_at_most_once_a_second(digits: Prepared) -> None:
    world = World(digits)
    first = world.samples()
    world.state, world.count = -world.state, 7
    assert world.samples() is first
    assert world.predict([0.5] * 64).version == "0.0"
    assert world.copies == 1
    world.now = 1.5
    later = world.samples()
    assert (later.version, world.copies) == ("0.7", 2)
    assert [s.probability for s in later.samples] != [s.probability for s in first.samples]


@pytest.mark.parametrize("wrong", [[], [0.5] * 63, [0.5] * 65, [float("nan")] * 64])
def test_what_is_no_picture_is_refused(digits: Prepared, wrong: list[float]) -> None:
    with pytest.raises(DataMalformed, match="64 finite numbers"):
        World(digits).predict(wrong)


def test_brightness_beyond_its_bounds_is_the_bound(digits: Prepared) -> None:
    world = World(digits)
    assert world.predict([9.0] * 64).answers == world.predict([1.0] * 64).answers
    assert world.predict([-9.0] * 64).answers == world.predict([0.0] * 64).answers


def test_numbers_are_told_and_taken_as_they_are_stored(spirals: Prepared) -> None:
    world = World(spirals)
    found = world.samples(5)
    assert (found.kind, found.shape, len(found.samples)) == ("numbers", [2], 5)
    sample = found.samples[0]
    assert isinstance(sample.input, list)
    answers = world.predict(sample.input).answers
    assert answers[0].label == sample.predicted
    assert sum(answer.probability or 0.0 for answer in answers) == pytest.approx(1.0)


def test_of_a_text_the_token_behind_its_end_is_told(letters: Prepared) -> None:
    found = World(letters).samples(6)
    assert (found.kind, found.classes) == ("text", None)
    for sample in found.samples:
        assert isinstance(sample.input, str)
        expected = {"↵": "␣", " ": "a", "a": "b", "b": "c", "c": "↵"}[sample.input[-1]]
        assert (sample.predicted, sample.label, sample.right) == (expected, expected, True)
        assert sample.probability == pytest.approx(1.0, abs=1e-3)
    assert len({sample.label for sample in found.samples}) > 1


def test_what_comes_behind_a_text_is_answered(letters: Prepared) -> None:
    answers = World(letters).predict([2.0] * 8).answers
    assert [answer.label for answer in answers[:1]] == ["b"]
    assert sum(answer.probability or 0.0 for answer in answers) == pytest.approx(1.0)


def test_several_inputs_and_several_answers_are_told(pairs: Prepared) -> None:
    found = World(pairs).samples(3)
    assert found.kind == "other"
    for sample in found.samples:
        assert isinstance(sample.input, str)
        sizes, grade = sample.input.split("; ")
        assert sizes.startswith("sizes 0.")
        assert grade in {f"grade {k}" for k in range(5)}
        assert sample.predicted is not None
        assert sample.predicted.count(",") == 1
        assert sample.right is None


def test_large_pictures_are_told_in_fewer_pixels(photos: Prepared) -> None:
    found = World(photos).samples(10)
    assert (found.kind, found.shape, found.input_shape) == ("image", [33, 50, 3], [130, 200, 3])
    told = {np.asarray(sample.input).reshape(33, 50, 3).tobytes() for sample in found.samples}
    data = np.concatenate([shard_arrays(photos.manifest, number, blob)[0]
        for number in photos.manifest.numbers("test")
        for blob in [b"".join(photos.blobs[c.hash] for c in photos.manifest.shards[number].chunks)]
    ])  # fmt: skip
    seen = np.moveaxis(data[:, :, ::4, ::4], 1, -1) / 255
    assert told == {np.round(picture, 3).tobytes() for picture in seen}


def test_a_large_picture_is_asked_about_whole_or_as_it_was_told(photos: Prepared) -> None:
    world = World(photos)
    coarse = np.random.default_rng(1).random((33, 50, 3))
    whole = coarse.repeat(4, 0).repeat(4, 1)[:130, :200]
    answers = [world.predict(picture.reshape(-1).tolist()).answers for picture in (coarse, whole)]
    assert answers[0] == answers[1]
    other = np.random.default_rng(2).random((130, 200, 3)).reshape(-1).tolist()
    assert world.predict(other).answers != answers[0]
    with pytest.raises(DataMalformed, match="78000 finite numbers") as refused:
        world.predict([0.5] * 100)
    assert "130×200×3" in refused.value.advice


def test_records_of_very_many_numbers_are_told_in_words(wide: Prepared) -> None:
    world = World(wide)
    found = world.samples(2)
    assert (found.kind, found.input_shape) == ("numbers", [MOST_TOLD + 1])
    assert all(isinstance(sample.input, str) for sample in found.samples)
    assert world.predict([0.5] * (MOST_TOLD + 1)).answers


def test_the_words_are_made_once_and_say_the_same(digits: Prepared) -> None:
    world = World(digits)
    text = asyncio.run(world.asking.samples_as_json(5))
    assert msgspec.json.decode(text, type=Samples) == world.samples(5)
    assert asyncio.run(world.asking.samples_as_json(5)) is text
    world.state, world.count, world.now = -world.state, 1, 9.0
    assert asyncio.run(world.asking.samples_as_json(5)) != text


def test_a_model_that_cannot_be_asked_comes_with_advice(digits: Prepared) -> None:
    class OneRow:
        def predict(self, *_: object) -> tuple[np.ndarray]:
            return (np.zeros((1, 10), np.float32),)

    asking = World(digits).asking
    asking._known = replace(asking._ready(), engine=OneRow())  # type: ignore[arg-type]
    with pytest.raises(DataMalformed, match="one row for each record") as found:
        asyncio.run(asking.samples(2))
    assert found.value.advice
    shards = tuple(shard for shard in digits.manifest.shards if shard.split == "train")
    with pytest.raises(DataMissing, match="kept out of training") as missing:
        asking._first(replace(digits.manifest, shards=shards), "validation")
    assert missing.value.advice


def test_the_api_tells_it_to_who_has_the_token(digits: Prepared) -> None:
    world = World(digits)

    async def an_app() -> FastAPI:
        control = Control(small.training(), lambda: 1.0, asyncio.Event())
        return create_app(a_status, control, "token", asking=world.asking)

    with TestClient(asyncio.run(an_app()), base_url="http://127.0.0.1") as web:
        assert web.get("/samples").status_code == 401
        told = web.get("/samples?count=3", headers={"Authorization": "Bearer token"})
        assert told.headers["content-type"] == "application/json"
        assert msgspec.json.decode(told.content, type=Samples) == world.samples(3)
        world.state, world.count, world.now = np.full_like(world.state, np.nan), 1, 9.0
        told = web.get("/samples", headers={"Authorization": "Bearer token"})
    assert (told.status_code, "smaller learning rate" in told.text) == (503, True)


def a_status() -> Status:
    raise AssertionError("nobody asks for it")


def test_numbers_that_are_not_finite_any_more_are_said(digits: Prepared) -> None:
    world = World(digits)
    world.state[:] = np.nan
    with pytest.raises(DataMalformed, match="not finite"):
        world.samples()
