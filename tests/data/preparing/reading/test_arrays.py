"""Arrays in files come out with the type and the numbers that numpy gives them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from crowdgrad.data.preparing.reading import arrays
from crowdgrad.errors import BadRecords, DataMalformed
from tests.data.preparing.making import in_order, made, records, rows, whole

RECORDS = 50
NUMBERS = np.arange(RECORDS * 6).reshape(RECORDS, 2, 3)


@pytest.mark.parametrize("part_bytes", [40, 4 << 20])
@pytest.mark.parametrize(
    ("array", "stored"),
    [
        (NUMBERS.astype(np.float32), "float32"),
        (NUMBERS / 7, "float64"),
        (np.asfortranarray(NUMBERS.astype(np.float32)), "float32"),
        (NUMBERS.astype(">f4"), "float32"),
        (NUMBERS.astype(">i2"), "int16"),
        (np.asfortranarray(NUMBERS.astype(">i4")), "int32"),
        (NUMBERS.astype(np.float16), "float32"),
        (NUMBERS % 2 == 0, "bool"),
        (NUMBERS.astype(np.uint8), "uint8"),
        (NUMBERS.astype(np.uint16), "int32"),
        (NUMBERS.astype(np.uint64) << 40, "int64"),
        (np.arange(RECORDS, dtype=np.int8), "int8"),
    ],
)
def test_npy(
    tmp_path: Path, array: np.ndarray, stored: str, part_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(arrays, "PART_BYTES", part_bytes)
    np.save(tmp_path / "x.npy", array)
    found = whole(tmp_path / "x.npy", tmp_path / "out")
    assert found["x"].dtype.name == stored
    assert rows(found) == rows({"x": np.load(tmp_path / "x.npy").astype(stored)})


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_splits_in_its_names(tmp_path: Path, save: object) -> None:
    x, y = NUMBERS.astype(np.float32), np.arange(RECORDS) % 5
    save(tmp_path / "a.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])  # type: ignore[operator]
    result = made(tmp_path / "a.npz", tmp_path / "out", validation=6)
    test = records(result.folder, "test")
    assert rows(test) == rows({"x": x[30:], "y": y[30:]})
    rest = records(result.folder, "train", "validation")
    assert rows(rest) == rows({"x": x[:30], "y": y[:30]})
    assert result.folder.manifest.records("validation") == 6
    assert result.folder.manifest.card.classes == ("0", "1", "2", "3", "4")


def idx(array: np.ndarray, code: int) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_idx_as_mnist_is_named(tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    pixels = (np.arange(20 * 4 * 4) % 251).astype(np.uint8).reshape(20, 4, 4)
    label = (np.arange(20) % 10).astype(np.uint8)
    for name, array in {
        "train-images-idx3-ubyte": pixels[:15], "train-labels-idx1-ubyte": label[:15],
        "t10k-images-idx3-ubyte": pixels[15:], "t10k-labels-idx1-ubyte": label[15:],
    }.items():  # fmt: skip
        data = idx(array, 8)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)
    result = made(folder, tmp_path / "out", validation=0)
    assert rows(records(result.folder, "test")) == rows({"x": pixels[15:], "y": label[15:]})
    assert rows(records(result.folder, "train")) == rows({"x": pixels[:15], "y": label[:15]})


def test_idx_numbers_are_big_endian(tmp_path: Path) -> None:
    numbers = np.arange(12).astype(">i4").reshape(6, 2)
    (tmp_path / "x.idx").write_bytes(idx(numbers, 0x0C))
    assert rows(whole(tmp_path / "x.idx", tmp_path / "out")) == rows({"x": numbers.astype("<i4")})


def test_class_k_is_the_kth(tmp_path: Path) -> None:
    """Numbers in an array are stored as they are: where they begin with 1, there is none of 0."""
    folder = tmp_path / "arrays"
    folder.mkdir()
    y = np.array([1, 3] * 20)
    np.save(folder / "x.npy", np.arange(40.0))
    np.save(folder / "y.npy", y)
    result = made(folder, tmp_path / "out", stratify=True, validation=0.25, test=0)
    card = result.folder.manifest.card
    assert card.classes == ("0", "1", "2", "3")
    assert card.counts == (0, 20, 0, 20)
    found = in_order(records(result.folder), records(result.folder)["x"])
    assert found["y"].tolist() == y.tolist()
    held = records(result.folder, "validation")["y"]
    assert [int((held == label).sum()) for label in (1, 3)] == [5, 5]


@pytest.mark.parametrize("y", [np.arange(40) - 5, np.arange(40) * 1000, np.arange(40) / 2])
def test_what_is_no_class_is_not_listed_as_one(tmp_path: Path, y: np.ndarray) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(40.0))
    np.save(folder / "y.npy", y)
    assert made(folder, tmp_path / "out").folder.manifest.card.classes == ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [(np.nan, "not a number"), (np.inf, "not a number"), (-np.inf, "not a number")],
)
def test_what_is_no_number_is_counted_with_its_place(
    tmp_path: Path, value: float, kind: str
) -> None:
    array = NUMBERS.astype(np.float32)
    array[[7, 20], 1, 2] = value
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(BadRecords) as caught:
        made(tmp_path / "x.npy", tmp_path / "out")
    assert caught.value.counts == {kind: 2}
    assert [(file, line) for file, line, _, _ in caught.value.shown] == [
        ("x.npy", 8),
        ("x.npy", 21),
    ]
    kept = whole(tmp_path / "x.npy", tmp_path / "out", bad=2)
    assert rows(kept) == rows({"x": np.delete(array, [7, 20], 0)})


def test_unsigned_numbers_beyond_int64_do_not_turn_negative(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1, 2**63, 2**63 - 1], np.uint64))
    with pytest.raises(BadRecords) as caught:
        made(tmp_path / "x.npy", tmp_path / "out")
    assert caught.value.counts == {"too large a number": 1}
    assert caught.value.shown[0][1] == 2


@pytest.mark.parametrize(
    "array", [np.array(3.0), np.zeros((5, 0)), np.zeros((0, 3)), np.array(["a", "b"]),
              np.array([1j]), np.array([{}], object), np.zeros(3, [("a", "f4")])],
)  # fmt: skip
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataMalformed):
        made(tmp_path / "x.npy", tmp_path / "out")


def test_numbers_too_large_to_have_a_deviation(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1e200, -1e200] * 20))
    with pytest.raises(DataMalformed, match="cannot travel"):
        made(tmp_path / "x.npy", tmp_path / "out")
    kept = whole(tmp_path / "x.npy", tmp_path / "out", normalise=False)
    assert set(kept["x"].tolist()) == {1e200, -1e200}


def test_arrays_must_fit_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "x_train.npy", np.zeros((10, 2)))
    np.save(folder / "y_train.npy", np.zeros(9))
    with pytest.raises(DataMalformed, match="number of records"):
        made(folder, tmp_path / "out")
    np.save(folder / "y_train.npy", np.zeros(10))
    np.save(folder / "x_test.npy", np.zeros((10, 3)))
    np.save(folder / "y_test.npy", np.zeros(10))
    with pytest.raises(DataMalformed, match=" and "):
        made(folder, tmp_path / "out")
    (folder / "x_test.npy").unlink()
    with pytest.raises(DataMalformed, match="the fields are"):
        made(folder, tmp_path / "out")
