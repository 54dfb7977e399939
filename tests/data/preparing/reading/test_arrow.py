"""Parquet and Arrow files of every kind read as pandas reads them, in parts of any size."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from PIL import Image

from crowdgrad.data.preparing.reading import arrow
from crowdgrad.errors import BadRecords, DataMalformed
from tests.data.preparing.making import classes, in_order, made, records, whole

RECORDS = 60


def table() -> pa.Table:
    n = np.arange(RECORDS)
    return pa.table(
        {
            "n": n,
            "f": pa.array(n / 3, pa.float32()),
            "u": pa.array(n, pa.uint64()),
            "b": n % 2 == 0,
            "list": pa.array([[k, k + 0.5] for k in n], pa.list_(pa.float32())),
            "fixed": pa.array([[k, -k] for k in n], pa.list_(pa.int16(), 2)),
            "seq": pa.array([list(range(k % 4)) for k in n], pa.list_(pa.int64())),
            "word": pa.array([f"w{k % 3}" for k in n]).dictionary_encode(),
            "label": [("yes", "no", "maybe")[k % 3] for k in n],
        }
    )


def as_file(path: Path) -> None:
    with pa.ipc.new_file(str(path), table().schema) as writer:
        writer.write_table(table(), max_chunksize=17)


def as_stream(path: Path) -> None:
    with pa.ipc.new_stream(str(path), table().schema) as writer:
        writer.write_table(table(), max_chunksize=17)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a.parquet": lambda path: pq.write_table(table(), path),
    "groups.parquet": lambda path: pq.write_table(table(), path, row_group_size=17),
    "file.arrow": as_file,
    "stream.arrow": as_stream,
    "a.feather": lambda path: feather.write_feather(table(), str(path), chunksize=17),
    "noending": lambda path: pq.write_table(table(), path),
}


@pytest.mark.parametrize("part_bytes", [100, 4 << 20])
@pytest.mark.parametrize("name", WRITERS)
def test_as_pandas_reads_it(
    tmp_path: Path, name: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "PART_BYTES", part_bytes)
    WRITERS[name](tmp_path / name)
    expected = table().to_pandas()
    result = made(tmp_path / name, tmp_path / "out")
    found = in_order(records(result.folder), records(result.folder)["x"][:, 0])
    numbers = expected[["n", "f", "u", "b"]].to_numpy(np.float32)
    onehot = pd.get_dummies(expected["word"]).to_numpy(np.float32)
    assert np.array_equal(found["x"], np.column_stack([numbers, onehot]))
    assert np.array_equal(found["list"], np.stack(expected["list"]))
    assert np.array_equal(found["fixed"], np.stack(expected["fixed"]))
    sequences = [
        row[:length].tolist() for row, length in zip(found["seq"], found["seq_length"], strict=True)
    ]
    assert sequences == [row.tolist() for row in expected["seq"]]
    assert [classes(result)[code] for code in found["y"]] == expected["label"].tolist()


def test_nothing_is_where_a_null_is(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"a": [1.0, None, 3.0, 4.0, np.nan], "label": ["x", "y", None, "x", "y"]}), source
    )
    with pytest.raises(BadRecords) as caught:
        made(source, tmp_path / "out")
    assert caught.value.counts == {"missing value": 1, "missing label": 1, "not a number": 1}
    assert [(line, kind) for _, line, kind, _ in caught.value.shown] == [
        (2, "missing value"), (3, "missing label"), (5, "not a number"),
    ]  # fmt: skip
    filled = whole(
        source, tmp_path / "out", bad=1,
        columns={"a": {"fill": 9}, "label": {"fill": "x", "kind": "category"}},
    )  # fmt: skip
    assert sorted(filled["x"][:, 0].tolist()) == [1, 3, 4, 9]


def png(n: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((5, 4, 3), n, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"bytes": data, "path": None}])
def test_pictures_in_a_column(tmp_path: Path, wrap: Callable[[bytes], Any]) -> None:
    """As bytes, and as Hugging Face writes them."""
    source = tmp_path / "a.parquet"
    images = [wrap(png(n)) for n in range(20)]
    pq.write_table(pa.table({"image": images, "label": [0, 1] * 10}), source)
    found = whole(source, tmp_path / "out")
    assert found["x"].shape == (20, 3, 5, 4)
    assert sorted(found["x"][:, 0, 0, 0].tolist()) == list(range(20))


def test_pictures_none_of_which_can_be_opened_are_bad_records(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [b"no picture"] * 20, "label": [0, 1] * 10}), source)
    with pytest.raises(BadRecords) as caught:
        made(source, tmp_path / "out")
    assert caught.value.counts == {"broken image": 20}


def test_unsigned_numbers_beyond_int64_stay_positive(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    numbers = pa.array([2**64 - 1, 5] * 10, pa.uint64())
    pq.write_table(pa.table({"a": numbers, "label": [0, 1] * 10}), source)
    found = whole(source, tmp_path / "out")
    assert set(found["x"][:, 0].tolist()) == {float(np.float32(2**64 - 1)), 5.0}


def test_a_stream_without_records(tmp_path: Path) -> None:
    source = tmp_path / "a.arrow"
    with pa.ipc.new_stream(str(source), table().schema):
        pass
    with pytest.raises(DataMalformed):
        made(source, tmp_path / "out")


def test_files_of_other_columns_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1], "y": [2]}), folder / "a.parquet")
    pq.write_table(pa.table({"b": [1], "y": [2]}), folder / "b.parquet")
    with pytest.raises(DataMalformed, match=r"b\.parquet has the columns b, y"):
        made(folder, tmp_path / "out")
