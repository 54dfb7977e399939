"""The data sets of the catalogue: what their files become, and that every source has them.

What needs the package registries is slow; the rest builds small files of the same format.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crowdgrad.data import catalogue
from crowdgrad.data.dataset import standardised
from crowdgrad.data.fetching import fetch_files
from crowdgrad.data.progress import Silent
from crowdgrad.data.sets import mnist
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import Source, Wheel
from crowdgrad.data.text import decode
from tests.data.stand_ins import CHARACTERS, TEXT, stand_in

SOURCES = [
    pytest.param(entry, source, id=f"{entry.name} from {source.name}")
    for entry in catalogue.ENTRIES.values()
    for source in entry.sources
]


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "source"), SOURCES)
def test_every_source_has_the_pinned_bytes(entry: Entry, source: Source, tmp_path: Path) -> None:
    """Needs the package registries."""
    fetched = fetch_files(
        entry.title, entry.files, folder=tmp_path, sources=(source,), offline=False,
        progress=Silent(),
    )  # fmt: skip
    dataset = entry.build(fetched.contents)
    counts = [f"{dataset.records(split):,}" for split in dataset.splits]
    assert entry.summary.startswith(" + ".join(counts))
    for field, array in zip(dataset.fields, dataset.splits["train"], strict=True):
        assert array.dtype.kind != "f" or np.isfinite(array).all()
        if field.mean is not None:
            several = isinstance(field.mean, tuple)
            computed = standardised(dataset, field.name, each=several).fields[0]
            assert computed.mean == pytest.approx(field.mean, rel=1e-12)
            assert computed.std == pytest.approx(field.std, rel=1e-12)


@pytest.mark.parametrize("entry", catalogue.ENTRIES.values(), ids=lambda entry: entry.name)
def test_every_wheel_brings_every_file(entry: Entry) -> None:
    assert bool(entry.files) != bool(entry.origin)
    for source in entry.sources:
        if isinstance(source, Wheel):
            assert set(source.members) == {file.name for file in entry.files}


def test_mnist_is_pinned_as_the_original_files_are() -> None:
    sizes = {file.name: file.size_bytes for file in mnist.FILES}
    assert sizes == {
        "train-images-idx3-ubyte": 16 + 60_000 * 784,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 784,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }


def test_the_builder_of_mnist_reads_idx() -> None:
    dataset = stand_in("mnist")
    assert (dataset.records("train"), dataset.records("test")) == (20, 2)
    assert dataset.fields[0].mean == pytest.approx(33.318, abs=1e-3)
    assert dataset.fields[0].std == pytest.approx(78.567, abs=1e-3)


def test_the_builder_of_the_vowels_pads_and_masks() -> None:
    dataset = stand_in("japanese_vowels")
    x, mask, y = dataset.splits["train"]
    assert (x.shape, mask.shape, y.tolist()) == ((4, 29, 12), (4, 29), [0, 8, 2, 4])
    assert x[0, :3].T.tolist() == [[1, 2, 3]] + [[4, 5, 6]] * 11
    assert not x[0, 3:].any()
    assert mask[0].tolist() == [True] * 3 + [False] * 26


def test_the_builder_of_shakespeare_holds_out_the_end() -> None:
    dataset = stand_in("shakespeare")
    assert repr(CHARACTERS) in dataset.note
    x, y = dataset.splits["train"]
    assert x.shape == y.shape == (59, 64)
    assert decode(x.ravel(), CHARACTERS) == TEXT[: 59 * 64]
    assert decode(y[0], CHARACTERS) == TEXT[1:65]
    assert decode(dataset.splits["test"][0].ravel(), CHARACTERS) == CHARACTERS[-1] * 192


def test_the_builder_of_diamonds_numbers_the_grades() -> None:
    dataset = stand_in("diamonds")
    numbers, grades, price = dataset.splits["train"]
    assert numbers[0].tolist() == pytest.approx([0.5, 61.5, 55, 3.95, 3.98, 2.43])
    assert grades.tolist() == [[4, 0, 1]] * 8
    assert 300 <= price.min() < price.max() < 5308
    assert dataset.records("test") == 5000


def test_the_diabetes_columns_are_standard() -> None:
    dataset = catalogue.load("diabetes", cache=Path("unused"))
    x, y = dataset.splits["train"]
    field = dataset.fields[0]
    columns = (x - field.mean) / field.std
    assert np.allclose(columns.mean(0), 0, atol=0.15)
    assert np.allclose(columns.std(0), 1, atol=0.1)
    assert (len(x), dataset.records("test"), y.min(), y.max()) == (354, 88, 25, 346)
