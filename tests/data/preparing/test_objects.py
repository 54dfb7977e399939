"""Data that is in Python already, in the real packages people have it in."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from crowdgrad.data.dataset import from_arrays
from crowdgrad.errors import BadRecords, DataMalformed
from tests.data.preparing.making import classes, in_order, made, records, rows, whole

RECORDS = 30
X = np.arange(RECORDS * 4, dtype=np.float32).reshape(RECORDS, 2, 2) / 8
Y = np.arange(RECORDS) % 3


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, n: int) -> Any:
        return torch.tensor(X[n % RECORDS]), int(Y[n % RECORDS])  # never an IndexError


class Named(Pairs):
    def __getitem__(self, n: int) -> Any:
        return {"pixels": torch.tensor(X[n]), "mass": float(n) + 0.5, "label": torch.tensor(Y[n])}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.tensor(x), int(y)) for x, y in zip(X, Y, strict=True)])


class Counted(Stream):
    def __len__(self) -> int:
        return RECORDS


def generated() -> Iterator[Any]:
    yield from zip(X, Y, strict=True)


@pytest.mark.parametrize(
    "source",
    [
        Pairs, lambda: TensorDataset(torch.tensor(X), torch.tensor(Y)), Stream, Counted, generated,
        lambda: list(zip(X.tolist(), Y.tolist(), strict=True)),
        lambda: from_arrays({"train": (X, Y.astype(np.uint8))}),
    ],
)  # fmt: skip
def test_pairs_are_input_and_class(tmp_path: Path, source: Any) -> None:
    found = whole(source(), tmp_path / "out")
    assert found["x"].dtype == np.float32
    assert rows(found) == rows({"x": X, "y": Y.astype(np.uint8)})


def test_names_are_kept(tmp_path: Path) -> None:
    found = whole(Named(), tmp_path / "out")
    assert list(found) == ["x", "pixels", "y"]
    found = in_order(found, found["x"][:, 0])
    assert np.array_equal(found["x"][:, 0], np.arange(RECORDS) + 0.5)
    assert np.array_equal(found["pixels"], X)
    assert np.array_equal(found["y"], Y)


def test_a_data_set_keeps_its_splits(tmp_path: Path) -> None:
    y = Y.astype(np.uint8)
    data = from_arrays({"train": (X[:20], y[:20]), "test": (X[20:], y[20:])})
    result = made(data, tmp_path / "out", validation=4)
    assert rows(records(result.folder, "test")) == rows({"x": X[20:], "y": y[20:]})
    assert result.folder.manifest.records("validation") == 4


def hugging(first: int, stop: int) -> datasets.Dataset:
    features = datasets.Features(
        {
            "n": datasets.Value("int32"),
            "vector": datasets.Sequence(datasets.Value("float32"), length=2),
            "label": datasets.ClassLabel(names=["zebra", "ape", "mole"]),
        }
    )
    rows = [{"n": n, "vector": [n, -n], "label": n % 3} for n in range(first, stop)]
    return datasets.Dataset.from_list(rows, features=features)


def test_hugging_face_with_its_classes_in_their_order(tmp_path: Path) -> None:
    result = made(hugging(0, RECORDS), tmp_path / "out")
    found = in_order(records(result.folder), records(result.folder)["x"][:, 0])
    assert classes(result) == ("zebra", "ape", "mole")
    assert np.array_equal(found["y"], Y)
    assert np.array_equal(found["vector"], [[n, -n] for n in range(RECORDS)])


def test_hugging_face_with_splits(tmp_path: Path) -> None:
    data = datasets.DatasetDict({"train": hugging(0, 20), "test": hugging(20, 30)})
    result = made(data, tmp_path / "out", validation=0)
    assert sorted(records(result.folder, "test")["x"][:, 0].tolist()) == list(range(20, 30))
    assert sorted(records(result.folder, "train")["x"][:, 0].tolist()) == list(range(20))
    with pytest.raises(DataMalformed, match="'elsewhere' is no split"):
        made(datasets.DatasetDict({"elsewhere": hugging(0, 5)}), tmp_path / "out2")


def pictures() -> list[Image.Image]:
    return [Image.fromarray(np.full((5, 4, 3), n, np.uint8)) for n in range(20)]


def test_hugging_face_with_pictures(tmp_path: Path) -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    items = {"image": pictures(), "label": [0, 1] * 10}
    data = datasets.Dataset.from_dict(items, features=features)
    found = whole(data, tmp_path / "out")
    assert sorted(found["x"][:, 0, 0, 0].tolist()) == list(range(20))
    assert found["x"].shape == (20, 3, 5, 4)


def test_pictures_that_are_opened_later(tmp_path: Path) -> None:
    """An iterator's first pictures are looked at before they are read: they must stay open."""
    for n, picture in enumerate(pictures()):
        picture.save(tmp_path / f"{n}.png")

    def opened() -> Iterator[Any]:
        for n in range(20):
            with Image.open(tmp_path / f"{n}.png") as image:
                yield image.copy(), n % 2
        for n in range(20):
            yield Image.open(io.BytesIO((tmp_path / f"{n}.png").read_bytes())), n % 2

    found = whole(opened(), tmp_path / "out")
    assert sorted(found["x"][:, 0, 0, 0].tolist()) == sorted([*range(20)] * 2)


def test_tuples_are_lists_of_numbers(tmp_path: Path) -> None:
    rows = [{"a": (n, n + 1, n + 2), "label": n % 2} for n in range(20)]
    found = whole(rows, tmp_path / "out")
    assert sorted(found["x"].tolist()) == sorted([n, n + 1, n + 2] for n in range(20))


def test_bad_records_are_counted_from_one(tmp_path: Path) -> None:
    items: list[Any] = [(X[n], int(Y[n])) for n in range(RECORDS)]
    items[4] = (X[4], None)
    items[7] = (X[7][:1], 1)
    items[9] = (X[9] * np.nan, 1)
    with pytest.raises(BadRecords) as caught:
        made(items, tmp_path / "out", columns={"x": {"kind": "number"}})
    assert caught.value.counts == {"missing label": 1, "wrong shape": 1, "not a number": 1}
    assert sorted(line for _, line, _, _ in caught.value.shown) == [5, 8, 10]


@pytest.mark.parametrize("source", [5, None, object(), [], iter([]), {"other": [1, 2]}])
def test_what_holds_no_records_is_refused(tmp_path: Path, source: Any) -> None:
    with pytest.raises(DataMalformed):
        made(source, tmp_path / "out")
