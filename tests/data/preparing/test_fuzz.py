"""A stranger's bytes under any name become records or an error for people, never anything else."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from crowdgrad.data.preparing.reading import arrays, arrow, ranges
from crowdgrad.errors import DataError
from tests.data.preparing.making import made, records

ENDINGS = ("csv", "tsv", "jsonl", "parquet", "arrow", "npy", "npz", "idx", "txt", "png", "jpg",
           "gif", "csv.gz", "tiff", "webp", "bmp", "ppm", "feather", "bin")  # fmt: skip
QUICK = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""The same each time: nobody's change is to fail by what it has not done."""
LONG = settings(QUICK, max_examples=400, derandomize=False)
"""With other bytes each time: what they find is then a case of the quick ones."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ranges, arrays, arrow):
        monkeypatch.setattr(module, "PART_BYTES", 64)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder, and a counter in it: hypothesis calls one test often."""
    return tmp_path


def survives(data: bytes, ending: str, place: Path) -> None:
    folder = place / str(len(list(place.iterdir())))
    folder.mkdir()
    source = folder / f"file.{ending}"
    source.write_bytes(data)
    try:
        result = made(source, folder / "out", bad="skip", validation=0, test=0)
    except DataError:
        return
    found = records(result.folder)
    assert all(len(column) for column in found.values())


def array_file(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.arange(12 * 9 * 3, dtype=np.uint8).reshape(9, 12, 3)
    made_ = Image.fromarray(pixels)
    exif = made_.getexif()
    exif[0x0112] = 6
    if kind in ("JPEG", "PNG", "TIFF", "WEBP"):
        made_.save(file, kind, exif=exif)
    else:
        made_.save(file, kind)
    return file.getvalue()


def _table() -> pa.Table:
    return pa.table({"a": [1.5, 2.5] * 6, "b": [[1, 2], [3]] * 6, "label": ["x", "y"] * 6})


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(_table(), file)
    return file.getvalue()


def ipc() -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, _table().schema) as writer:
        writer.write_table(_table())
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.ones((6, 2)), y=np.arange(6))
    return file.getvalue()


WHOLE: dict[str, bytes] = {
    "csv": b"a,b,label\n" + b'1,"x, y",0\n2.5,"line\nbreak",1\n' * 3,
    "tsv": b"a\tb\n1\t2\n3\t4\n",
    "jsonl": b'{"a": 1, "b": [1, 2], "label": "x"}\n{"a": 2.5, "b": [3, 4], "label": "y"}\n',
    "txt": "Ein Text für alle.\n".encode() * 20,
    "npy": array_file(np.arange(24.0).reshape(6, 4)),
    "npz": npz(),
    "idx": bytes([0, 0, 8, 2, 0, 0, 0, 4, 0, 0, 0, 3]) + bytes(range(12)),
    "parquet": parquet(),
    "arrow": ipc(),
    "csv.gz": gzip.compress(b"a,b\n1,2\n3,4\n", mtime=0),
    "png": picture("PNG"),
    "jpg": picture("JPEG"),
    "gif": picture("GIF"),
    "tiff": picture("TIFF"),
    "webp": picture("WEBP"),
    "bmp": picture("BMP"),
}


@QUICK
@given(st.binary(max_size=300), st.sampled_from(ENDINGS))
@example(b"", "csv")
@example(b'"', "csv")
@example(b"\n\n\n", "csv")
@example(b"\x93NUMPY", "npy")
@example(b"[]", "jsonl")
@example(b'{"a": {"bytes": "x"}}', "jsonl")
@example(b'{"a": []}\n{"a": []}', "jsonl")
@example(b"\x93NUMPY\x01\x00\x0a\x00{'descr': (", "npy")
@example(b"[" * 5000, "jsonl")
@example(b'{"a": ' * 5000, "jsonl")
def test_any_bytes(place: Path, data: bytes, ending: str) -> None:
    survives(data, ending, place)


@QUICK
@given(st.text(max_size=300), st.sampled_from(["csv", "tsv", "jsonl", "txt"]))
def test_any_text(place: Path, text: str, ending: str) -> None:
    survives(text.encode("utf-8", errors="surrogatepass"), ending, place)


@pytest.mark.parametrize("ending", WHOLE)
def test_what_is_whole_is_read(place: Path, ending: str) -> None:
    """Or the next test would prove nothing."""
    source = place / f"file.{ending}"
    source.write_bytes(WHOLE[ending])
    result = made(source, place / "out", validation=0, test=0)
    assert all(len(column) for column in records(result.folder).values())


@pytest.mark.parametrize("ending", WHOLE)
@settings(QUICK, max_examples=15)
@given(st.data())
def test_files_with_some_bytes_altered(place: Path, ending: str, data: st.DataObject) -> None:
    survives(_altered(WHOLE[ending], data), ending, place)


def _altered(whole: bytes, data: st.DataObject) -> bytes:
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    return bytes(raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))])


@pytest.mark.slow
@pytest.mark.timeout(300)
@LONG
@given(st.binary(max_size=300), st.sampled_from(ENDINGS))
def test_more_of_any_bytes(place: Path, data: bytes, ending: str) -> None:
    survives(data, ending, place)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ending", WHOLE)
@LONG
@given(st.data())
def test_more_files_with_some_bytes_altered(place: Path, ending: str, data: st.DataObject) -> None:
    survives(_altered(WHOLE[ending], data), ending, place)


def test_half_precision_is_read_without_a_warning(place: Path) -> None:
    import pyarrow as pa
    import pyarrow.feather as feather

    table = pa.table({"a": pa.array(np.array([1.5, 2, 3], np.float16)), "label": ["x", "y", "x"]})
    feather.write_feather(table, place / "half.feather")
    result = made(place / "half.feather", place / "out", validation=0, test=0)
    assert sorted(records(result.folder)["x"].reshape(-1).tolist()) == [1.5, 2.0, 3.0]
