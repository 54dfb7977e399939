"""A model asked while it is trained: test records in words, pictures as brightness, bounds."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from crowdgrad.capture.models import digits_mlp, spirals_mlp
from crowdgrad.data import generated
from crowdgrad.domain.work import Version
from crowdgrad.errors import DataMalformed
from crowdgrad.host.asking import Asking, Prediction, Samples
from crowdgrad.host.job import JobPlan, Prepared, prepare
from crowdgrad.numerics.vectors import Vector


@pytest.fixture(scope="module")
def digits() -> Prepared:
    return prepare(JobPlan(task=digits_mlp(), data=generated.digits()))


@pytest.fixture(scope="module")
def spirals() -> Prepared:
    return prepare(JobPlan(task=spirals_mlp(), data=generated.spirals()))


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
    images = {(np.round(x / 16, 4).tobytes(), str(y)) for x, y in zip(*data, strict=True)}
    for sample in found.samples:
        assert isinstance(sample.input, list)
        told = np.asarray(sample.input).reshape(8, 8)
        assert (told.tobytes(), sample.label) in images
        assert sample.right == (sample.label == sample.predicted)
        assert sample.probability is not None
        assert 0.1 <= sample.probability <= 1


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


def test_numbers_that_are_not_finite_any_more_are_said(digits: Prepared) -> None:
    world = World(digits)
    world.state[:] = np.nan
    with pytest.raises(DataMalformed, match="not finite"):
        world.samples()
