"""The data sets of the catalogue: what their files become, and that every source has them.

What needs the package registries is slow; the rest builds small files of the same format.
"""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crowdgrad.data import catalogue, sources
from crowdgrad.data.dataset import standardised
from crowdgrad.data.fetching import fetch_files
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package
from crowdgrad.data.progress import Silent
from crowdgrad.data.sets import imdb, mnist
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import LocalFolder, NpmRows, Source, Wheel
from crowdgrad.data.text import decode
from tests.data.stand_ins import CHARACTERS, FILES, TEXT, stand_in

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


def test_the_builder_of_cifar10_reads_labels_and_planes() -> None:
    dataset = stand_in("cifar10")
    x, y = dataset.splits["train"]
    assert (x.shape, y.tolist()) == ((10, 3, 32, 32), [0, 9, 1, 8, 2, 7, 3, 6, 4, 5])
    assert x[:, :, 0, 0].tolist() == [[label, 2 * label, 3 * label] for label in y]
    assert dataset.splits["test"][1].tolist() == [7]
    assert dataset.classes[9] == "truck"
    # what everybody knows of it, in parts of 1
    assert np.divide(dataset.fields[0].mean, 255) == pytest.approx([0.4914, 0.4822, 0.4465], 1e-3)
    assert np.divide(dataset.fields[0].std, 255) == pytest.approx([0.2470, 0.2435, 0.2616], 1e-3)


def test_cifar10_is_taken_from_the_folder_everybody_has(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    contents = FILES["cifar10"]
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    files = tuple(
        PinnedFile(name=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        for name, data in contents.items()
    )
    assert LocalFolder(folder=tmp_path).bring(files, Silent()) == contents


def test_rows_of_a_picture_become_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the npm package has, made of two pictures; npm itself is not asked."""
    rows = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
    Image.fromarray(rows).save(tmp_path / "a.png")
    (tmp_path / "labels.json").write_text("[9, 9, 5, 6, 9]")
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for name in ("a.png", "labels.json"):
            archive.add(tmp_path / name, f"package/{name}")
    packed = (tmp_path / "package.tgz").read_bytes()
    monkeypatch.setattr(sources, "npm_download", lambda package, progress: packed)
    source = NpmRows(
        package=Package(requirement="a@1", sha256="0" * 64, size_bytes=1),
        members={"a.bin": "package/a.png"},
        labels={"a.bin": ("package/labels.json", 2)},
    )
    found = source.bring((PinnedFile(name="a.bin", sha256="0" * 64, size_bytes=1),), Silent())
    assert [found["a.bin"][i] for i in (0, 13)] == [5, 6]
    assert list(found["a.bin"][1:13]) == [*range(0, 12, 3), *range(1, 12, 3), *range(2, 12, 3)]


def test_the_builder_of_imdb_numbers_words_by_frequency() -> None:
    dataset = stand_in("imdb")
    words = imdb.vocabulary(FILES["imdb"])
    x, length, y = dataset.splits["train"]
    assert words[:6] == ("", "?", "fine", "a", "film", "number")
    assert (dataset.records("train"), dataset.records("test")) == (20, 20)
    assert len({tuple(record) for split in dataset.splits.values() for record in split[0]}) > 20
    for record, count, label in zip(x, length, y, strict=True):
        verdict = ("rubbish", "great")[label]
        text = imdb.read(record, words)
        assert text.startswith("a fine film fine number ")
        assert text.endswith(f" {verdict}")
        assert (count, len(record)) == (7, imdb.LENGTH)
    unseen = [record for record in dataset.splits["test"][0] if imdb.UNKNOWN in record]
    assert len(unseen) == 20  # every number is a word that only its own review has


def test_a_review_of_ones_own_is_cut_and_padded() -> None:
    words = ("", "?", "good", "it's")
    x, length = imdb.encode("It's<br/><br />GOOD; très good", words)
    assert (x[:6].tolist(), length, x.dtype) == ([3, 2, 1, 1, 2, 0], 5, np.int16)
    assert imdb.read(x, words) == "it's good ? ? good"
    x, length = imdb.encode("good " * 300, words)
    assert (x.tolist(), length) == ([2] * 256, 256)


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
