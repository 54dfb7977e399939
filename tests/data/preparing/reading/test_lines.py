"""JSON lines: what pandas reads of them, nested lists, sequences, and every record exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdgrad.data.preparing import tallies
from crowdgrad.data.preparing.reading import ranges
from crowdgrad.errors import DataError, DataMalformed
from tests.data.preparing.making import classes, in_order, made, records, whole


def write(path: Path, rows: list[Any], ending: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + ending for row in rows)
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    return path


def test_single_values_as_pandas_reads_them(tmp_path: Path) -> None:
    rows = [
        {"n": n, "half": n / 2, "yes": n % 3 == 0, "word": ("a", "b")[n % 2], "label": n % 4}
        for n in range(40)
    ]
    source = write(tmp_path / "rows.jsonl", rows, "\r\n")
    table = pd.read_json(source, lines=True)
    result = made(source, tmp_path / "out")
    found = in_order(records(result.folder), records(result.folder)["x"][:, 0])
    expected = np.column_stack(
        [table["n"], table["half"], table["yes"], table["word"] == "a", table["word"] == "b"]
    )
    assert np.array_equal(found["x"], expected.astype(np.float32))
    assert [classes(result)[code] for code in found["y"]] == [str(v) for v in table["label"]]


def test_lists_of_one_shape_are_arrays(tmp_path: Path) -> None:
    rows = [{"n": n, "m": [[n, 0.5], [1, 2], [3, n * n]], "label": n % 2} for n in range(30)]
    found = whole(write(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    assert found["m"].dtype == np.float32
    found = in_order(found, found["x"][:, 0])
    assert np.array_equal(found["m"], np.array([row["m"] for row in rows], np.float32))


def test_lists_of_different_lengths_are_padded(tmp_path: Path) -> None:
    rows = [{"s": [[n, i] for i in range(n % 5)], "tags": [n] * (1 + n % 3)} for n in range(30)]
    result = made(write(tmp_path / "rows.jsonl", rows), tmp_path / "out", target="tags")
    found = records(result.folder)
    assert found["x"].shape == (30, 4, 2)
    assert found["y"].shape == (30, 3)
    found = in_order(found, found["y"][:, 0])
    for n, row in enumerate(rows):
        assert found["x_length"][n] == len(row["s"])
        assert found["x"][n, : len(row["s"])].tolist() == row["s"]
        assert not found["x"][n, len(row["s"]) :].any()
        assert found["y"][n].tolist() == row["tags"] + [-100] * (3 - len(row["tags"]))


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_bytes(b'\xef\xbb\xbf{"a": 1, "label": 0}\n')
    assert whole(source, tmp_path / "out")["x"].tolist() == [[1]]


def test_a_list_is_not_json_lines(tmp_path: Path) -> None:
    source = tmp_path / "rows.json"
    source.write_text('[{"a": 1}]')
    with pytest.raises(DataMalformed, match="one JSON list") as caught:
        made(source, tmp_path / "out")
    assert "jq" in caught.value.advice


def test_whole_numbers_to_be_learned_may_be_countless(tmp_path: Path, monkeypatch: Any) -> None:
    """More than there may be words, each part with fewer."""
    monkeypatch.setattr(tallies, "MAX_NAMES", 50)
    monkeypatch.setattr(ranges, "PART_BYTES", 600)
    rows = [{"a": n / 2, "y": n} for n in range(200)]
    result = made(write(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    found = records(result.folder)
    assert np.array_equal(found["x"][:, 0] * 2, found["y"])
    assert result.folder.manifest.card.classes == ()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(width=32) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SETTINGS
@given(
    rows=st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False, width=32),
            st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
            st.text(max_size=8),
        ),
        min_size=1,
        max_size=20,
    ),
    size=st.sampled_from([16, 64, 4096]),
)
def test_what_json_wrote_comes_back_once(
    tmp_path: Path, rows: list[tuple[float, list[int], str]], size: int
) -> None:
    place = tmp_path / str(len(list(tmp_path.iterdir())))
    written = [
        {"n": n, "value": value, "list": steps, "label": f"<{word}>"}
        for n, (value, steps, word) in enumerate(rows)
    ]
    source = write(place / "rows.jsonl", written)
    old, ranges.PART_BYTES = ranges.PART_BYTES, size
    try:
        result = made(
            source, place / "out", target="label",
            columns={"n": {"kind": "number"}, "value": {"kind": "number"},
                     "list": {"kind": "sequence"}, "label": {"kind": "category"}},
        )  # fmt: skip
    finally:
        ranges.PART_BYTES = old
    found = records(result.folder)
    found = in_order(found, found["x"][:, 0])
    assert found["x"][:, 0].tolist() == list(range(len(rows)))
    assert np.array_equal(found["x"][:, 1], np.array([value for value, _, _ in rows], np.float32))
    lists = [row[:n].tolist() for row, n in zip(found["list"], found["list_length"], strict=True)]
    assert lists == [steps for _, steps, _ in rows]
    assert [classes(result)[code] for code in found["y"]] == [f"<{w}>".strip() for _, _, w in rows]


@SETTINGS
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), values), min_size=1, max_size=8))
def test_any_objects_are_records_or_a_data_error(tmp_path: Path, rows: list[Any]) -> None:
    place = tmp_path / str(len(list(tmp_path.iterdir())))
    source = write(place / "rows.jsonl", rows)
    try:
        result = made(source, place / "out", bad="skip")
    except DataError:
        return
    found = records(result.folder)
    left_out = result.folder.manifest.card.left_out
    assert len(next(iter(found.values()))) + left_out == len(rows)
