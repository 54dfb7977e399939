"""idx, npz and ts: what they hold comes back; nothing else gets through."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdgrad.data.formats.idx import TYPES, parse_idx, read_idx
from crowdgrad.data.formats.npz import read_npz
from crowdgrad.data.formats.ts import padded, parse_ts
from crowdgrad.errors import DataError, DataMalformed, DataMissing

FUZZ = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def idx(array: np.ndarray, code: int) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(TYPES[code]).tobytes()


@pytest.mark.parametrize("code", list(TYPES))
def test_idx_of_every_type(code: int, tmp_path: Path) -> None:
    array = np.arange(24).reshape(4, 3, 2)
    path = tmp_path / "file"
    path.write_bytes(idx(array, code))
    found = read_idx(path)
    assert np.array_equal(found, array)
    assert found.dtype.isnative


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "nothing"),
        (b"\0\0\x08", "000008"),
        (b"\x1f\x8b\x08\0", "1f8b"),
        (b"\0\0\x07\x01\0\0\0\0", "0x07"),
        (b"\0\0\x08\0", "0 dimensions"),
        (b"\0\0\x08\xff", "255 dimensions"),
        (b"\0\0\x08\x02\0\0\0\x01", "inside its header"),
        (b"\0\0\x0e\x02" + b"\xff" * 8, "needs 147,573,952,520,956,"),
        (b"\0\0\x08\x01\0\0\0\x02a", "needs 10"),
        (b"\0\0\x08\x02\0\0\0\0\xff\xff\xff\xff", "shape (0, 4294967295)"),
        (b"\0\0\x08\x01\0\0\0\x02abc", "has 11 bytes"),
    ],
)
def test_a_wrong_idx_says_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(DataMalformed) as caught:
        parse_idx(data, "t10k-images")
    assert says in caught.value.message
    assert "t10k-images" in caught.value.message
    assert caught.value.advice


def test_missing_files_are_missing(tmp_path: Path) -> None:
    with pytest.raises(DataMissing):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(DataMissing):
        read_npz(tmp_path / "nowhere.npz")


@FUZZ
@given(data=st.binary(max_size=60), cut=st.integers(0, 40), place=st.integers(0, 39))
def test_idx_only_ever_raises_data_errors(data: bytes, cut: int, place: int) -> None:
    good = bytearray(idx(np.arange(24).reshape(4, 6), 0x08))
    for bad in (data, b"\0\0\x0d" + data, bytes(good[:cut])):
        with contextlib.suppress(DataError):
            parse_idx(bad, "fuzz")
    good[place % len(good)] ^= data[0] if data else 1
    with contextlib.suppress(DataError):
        assert parse_idx(bytes(good), "fuzz").size == 24


X = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
Y = np.arange(6)


@pytest.mark.parametrize(
    ("keys", "splits"),
    [
        (("x", "y"), {"train"}),
        (("X", "Y"), {"train"}),
        (("inputs", "targets"), {"train"}),
        (("x_train", "y_train", "x_test", "y_test"), {"train", "test"}),
        (("train_x", "train_y", "val_x", "val_y"), {"train", "validation"}),
        (("train_images", "train_labels", "test_images", "test_labels"), {"train", "test"}),
        (("x", "y", "x_valid", "y_valid", "comment"), {"train", "validation"}),
    ],
)
def test_usual_names_are_understood(
    keys: tuple[str, ...], splits: set[str], tmp_path: Path
) -> None:
    values = {key: X if i % 2 == 0 else Y for i, key in enumerate(keys)}
    np.savez_compressed(tmp_path / "set.npz", **values)
    dataset = read_npz(tmp_path / "set.npz")
    assert set(dataset.splits) == splits
    assert dataset.title == "set"
    for x, y in dataset.splits.values():
        assert np.array_equal(x, X)
        assert np.array_equal(y, Y)


@pytest.mark.parametrize(
    "keys",
    [("a", "b"), ("x",), ("x", "inputs", "y"), ("x_test", "y_test"), ("x", "y", "x_test")],
)
def test_unknown_names_are_listed_with_those_we_know(keys: tuple[str, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **dict.fromkeys(keys, Y))
    with pytest.raises(DataMalformed) as caught:
        read_npz(tmp_path / "set.npz")
    assert ", ".join(keys) in caught.value.message
    assert "x_train" in caught.value.advice


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<i8", ">i2", "|i1", "|b1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(dtype: str, order: str, tmp_path: Path) -> None:
    x = np.asarray(np.arange(12).reshape(3, 4) % 2, dtype=dtype, order=order)
    np.savez(tmp_path / "set.npz", x=x, y=np.arange(3))
    found = read_npz(tmp_path / "set.npz").splits["train"][0]
    assert np.array_equal(found, x)
    assert found.dtype.isnative


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    np.savez(tmp_path / "set.npz", x=np.array([Trap()]), y=np.arange(1))
    with pytest.raises(DataMalformed, match="the type"):
        read_npz(tmp_path / "set.npz")
    assert not (tmp_path / "sprung").exists()


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20, np.uint8), y=np.zeros(1 << 20, np.uint8))
    with pytest.raises(DataMalformed, match="claim to unpack to 2,097,"):
        read_npz(path, max_bytes=1 << 20)
    data = bytearray(path.read_bytes())
    where = data.index(b"PK\x01\x02") + 24
    data[where : where + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DataMalformed, match="claim to unpack"):
        read_npz(path, max_bytes=1 << 60)


@pytest.mark.parametrize(
    ("array", "says"),
    [(np.zeros(3, np.float16), "float16"), (np.array(["a"]), "the type"),
     (np.zeros(2, [("a", "u1")]), "the type")],
)  # fmt: skip
def test_types_that_do_not_travel_are_named(array: np.ndarray, says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=array, y=Y)
    with pytest.raises(DataMalformed, match=says):
        read_npz(tmp_path / "set.npz")


def good_npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=X, y=Y)
    return file.getvalue()


GOOD = good_npz()


@FUZZ
@given(
    noise=st.binary(max_size=80),
    cut=st.integers(0, len(GOOD)),
    flips=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), max_size=4),
)
def test_npz_only_ever_raises_data_errors(
    noise: bytes, cut: int, flips: list[tuple[int, int]], tmp_path: Path
) -> None:
    flipped = bytearray(GOOD)
    for place, bits in flips:
        flipped[place] ^= bits
    path = tmp_path / "fuzz.npz"
    for bad in (noise, b"PK\x03\x04" + noise, GOOD[:cut], GOOD[:cut] + noise, bytes(flipped)):
        path.write_bytes(bad)
        with contextlib.suppress(DataError):
            read_npz(path)


@FUZZ
@given(header=st.text(max_size=60) | st.sampled_from(["{" * 3000, "(" * 5000, "{'descr': '<f4'}"]),
       version=st.integers(0, 4))  # fmt: skip
def test_a_strange_header_only_ever_raises_data_errors(
    header: str, version: int, tmp_path: Path
) -> None:
    body = header.encode()
    width = 2 if version == 1 else 4
    raw = b"\x93NUMPY" + bytes([version, 0]) + len(body).to_bytes(width, "little") + body
    path = tmp_path / "header.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", raw)
        archive.writestr("y.npy", raw)
    with pytest.raises(DataError):
        read_npz(path)


def test_an_unknown_packing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lzma.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for key in ("x", "y"):
            archive.writestr(f"{key}.npy", b"\0")
    with pytest.raises(DataMalformed, match="packed in a way"):
        read_npz(path)


def test_ts_sequences_of_different_lengths() -> None:
    sequences, classes = parse_ts(b"#x\n@problemName p\n@data\n1,2:3,4:a\n\n # y\n5:6: b\n", "p.ts")
    assert [sequence.tolist() for sequence in sequences] == [[[1, 3], [2, 4]], [[5, 6]]]
    assert classes == ["a", "b"]
    values, mask = padded(sequences, 3)
    assert values.tolist() == [[[1, 3], [2, 4], [0, 0]], [[5, 6], [0, 0], [0, 0]]]
    assert mask.tolist() == [[True, True, False], [True, False, False]]
    with pytest.raises(DataMalformed, match="2 steps, more than 1"):
        padded(sequences, 1)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"1,2:a", "no line @data"),
        (b"@data\n1,x:a", "line 2 of p.ts: could not convert"),
        (b"@data\n1,2:3:a", "channels of 2, 1 values"),
        (b"@data\na", "channels of no values"),
        (b"@data\n1:a\n1:2:a", "different numbers of channels"),
        (b"@data\n", "no sequences"),
    ],
)
def test_what_is_no_ts_file_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(DataMalformed, match=says):
        parse_ts(raw, "p.ts")
