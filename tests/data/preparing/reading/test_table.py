"""Tables as text: every dialect reads as pandas reads it, every record comes out exactly once."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdgrad.data.preparing.reading import ranges
from crowdgrad.errors import BadRecords, DataMalformed
from tests.data.preparing.making import classes, in_order, made, records, rows, whole

RECORDS = 40


def frame() -> pd.DataFrame:
    """Numbers of every kind; each whole number of `n` once."""
    number = np.arange(RECORDS)
    return pd.DataFrame(
        {
            "n": number,
            "weight": np.linspace(-3, 1e6, RECORDS),
            "small": 1e-7 * number,
            "kind": [("salt", "pepper, black", 'so-called "spice"', "two\nlines")[n % 4]
                     for n in number],
        }
    )  # fmt: skip


def as_pandas(found: dict[str, np.ndarray], table: pd.DataFrame, names: tuple[str, ...]) -> None:
    """The same numbers, and the same words behind the codes."""
    found = in_order(found, found["x"][:, 0])
    expected = table.select_dtypes("number").to_numpy(np.float64).astype(np.float32)
    assert np.array_equal(found["x"], expected)
    assert [names[code] for code in found["y"]] == [str(word) for word in table.iloc[:, -1]]


@pytest.mark.parametrize(
    ("dialect", "table"),
    [
        ({}, {}),
        ({"sep": ";"}, {}),
        ({"sep": "\t"}, {}),
        ({"sep": "|"}, {}),
        ({"sep": "~"}, {"delimiter": "~"}),
        ({"lineterminator": "\r\n"}, {}),
        ({"quoting": csv.QUOTE_ALL}, {}),
        ({"encoding": "utf-8-sig"}, {}),
    ],
)
def test_dialects(tmp_path: Path, dialect: dict[str, Any], table: dict[str, Any]) -> None:
    source = tmp_path / "table.csv"
    frame().to_csv(source, index=False, **dialect)
    result = made(source, tmp_path / "out", table=table)
    as_pandas(records(result.folder), frame(), classes(result))
    assert "two lines" in result.folder.manifest.card.classes


def test_without_a_heading(tmp_path: Path) -> None:
    source = tmp_path / "table.csv"
    frame().to_csv(source, index=False, header=False)
    result = made(source, tmp_path / "out")
    assert [column.name for column in result.record.schema.columns] == ["c0", "c1", "c2", "c3"]
    as_pandas(records(result.folder), frame(), classes(result))


def test_a_heading_is_one_where_its_owner_says_so(tmp_path: Path) -> None:
    """Words above words: nobody can see it."""
    source = tmp_path / "table.csv"
    source.write_text("red,yes\n" + "red,yes\nblue,no\n" * 10)
    both = {"header": True}, {"header": False}
    counts = [len(whole(source, tmp_path / str(n), table=t)["y"]) for n, t in enumerate(both)]
    assert counts == [20, 21]


def test_another_encoding_by_option(tmp_path: Path) -> None:
    table = pd.DataFrame({"n": range(20), "town": ["Köln", "Orléans"] * 10})
    source = tmp_path / "table.csv"
    table.to_csv(source, index=False, encoding="latin-1")
    with pytest.raises(BadRecords) as caught:
        made(source, tmp_path / "utf-8")
    assert caught.value.counts == {"bad encoding": 20}
    result = made(source, tmp_path / "out", table={"encoding": "latin-1"})
    as_pandas(records(result.folder), table, classes(result))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "klingon", "rot13", "cp037"])
def test_encodings_whose_lines_cannot_be_found_are_refused(tmp_path: Path, encoding: str) -> None:
    source = tmp_path / "table.csv"
    source.write_text("a,b\n1,2\n")
    with pytest.raises(DataMalformed, match="encoding"):
        made(source, tmp_path / "out", table={"encoding": encoding})


def test_several_files_are_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    table = frame()
    table[:25].to_csv(folder / "a.csv", index=False)
    table[25:].to_csv(folder / "b.csv", index=False)
    result = made(folder, tmp_path / "out")
    as_pandas(records(result.folder), table, classes(result))
    (folder / "c.csv").write_text("other,columns\n1,2\n")
    with pytest.raises(DataMalformed, match=r"c\.csv has the columns other, columns"):
        made(folder, tmp_path / "out2")


def test_missing_values_are_filled_where_one_says_with_what(tmp_path: Path) -> None:
    source = tmp_path / "table.csv"
    source.write_text("n,age,town,y\n0,,Cork,1.5\n1,30,,2.5\n2,NA,?,0.5\n3,40,Cork,1.25\n")
    found = whole(
        source, tmp_path / "out", target="y",
        columns={"age": {"fill": -1}, "town": {"kind": "category", "fill": "nowhere"}},
    )  # fmt: skip
    found = in_order(found, found["x"][:, 0])
    assert found["x"][:, 1].tolist() == [-1, 30, -1, 40]
    assert found["x"][:, 2:].tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]  # Cork, nowhere


def test_numbers_beyond_float32_are_bad_records(tmp_path: Path) -> None:
    source = tmp_path / "table.csv"
    source.write_text("a,y\n" + "0.5,1\n1.5,0\n" * 5 + "1e39,1\n-2e300,0\n3e38,1\n")
    with pytest.raises(BadRecords) as caught:
        made(source, tmp_path / "out")
    assert caught.value.counts == {"too large a number": 2}
    assert [line for _, line, _, _ in caught.value.shown] == [12, 13]
    found = whole(source, tmp_path / "out", bad="skip")
    assert np.float32(3e38) in found["x"]
    assert np.isfinite(found["x"]).all()


def test_an_end_of_a_part_is_an_end_of_a_record(tmp_path: Path, monkeypatch: Any) -> None:
    """Cut into parts of any size, a table has the same records and its faults the same lines."""
    source = tmp_path / "table.csv"
    frame().to_csv(source, index=False)
    with source.open("a") as file:
        file.write('oops,1,1,"two\nlines"\n40,1,1,salt,pepper\n')
    found = {}
    for size in (7, 64, 333, 1 << 20):
        monkeypatch.setattr(ranges, "PART_BYTES", size)
        with pytest.raises(BadRecords) as caught:
            made(source, tmp_path / f"{size}")
        kept = whole(source, tmp_path / f"{size} kept", bad="skip")
        found[size] = (rows(kept), caught.value.shown)
    lines = [line for _, line, _, _ in found[7][1]]
    assert lines == [2 + RECORDS + RECORDS // 4, 4 + RECORDS + RECORDS // 4]
    assert all(one == found[7] for one in found.values())


def test_a_quote_that_quotes_nothing_does_not_make_the_rest_one_record(tmp_path: Path) -> None:
    """12" of snow: an odd number of quotes before every line break behind it."""
    lines = [
        f"{n},{'12 inches' if n != 3 else '12'}{chr(34) * (n == 3)},{n % 2}\n" for n in range(200)
    ]
    lines[150] = '150,"12\ninches",0\n'
    source = tmp_path / "table.csv"
    source.write_text("n,snow,y\n" + "".join(lines))
    old, ranges.PART_BYTES = ranges.PART_BYTES, 100
    try:
        found = list(ranges.line_ranges(str(source), quotes=True, heading=True))
        kept = whole(source, tmp_path / "out", columns={"snow": {"kind": "category"}})
    finally:
        ranges.PART_BYTES = old
    data = source.read_bytes()
    assert max(stop - start for start, stop, _ in found) <= 250
    assert all(data.count(b"\n", 0, start) == line - 1 for start, _, line in found)
    assert b"".join(data[start:stop] for start, stop, _ in found) == "".join(lines).encode()
    assert sorted(kept["x"][:, 0].tolist()) == list(range(200))


cells = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=8
)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    table=st.lists(st.tuples(cells, numbers, cells), min_size=1, max_size=25),
    size=st.sampled_from([16, 64, 4096]),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_what_csv_wrote_comes_back_once(
    tmp_path: Path, table: list[tuple[str, float, str]], size: int, delimiter: str, ending: str
) -> None:
    place = tmp_path / str(len(list(tmp_path.iterdir())))
    place.mkdir()
    source = place / "table.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=ending)
        writer.writerow(("n", "word", "value", "label"))
        for n, (word, value, label) in enumerate(table):
            writer.writerow((n, f"<{word}>", value, f"<{label}>"))
    old, ranges.PART_BYTES = ranges.PART_BYTES, size
    try:
        result = made(
            source, place / "out", target="label", stratify=False,
            table={"delimiter": delimiter, "header": True}, text={"length": 10},
            columns={"n": {"kind": "number"}, "word": {"kind": "text"}, "value": {"kind": "number"},
                     "label": {"kind": "category"}},
        )  # fmt: skip
    finally:
        ranges.PART_BYTES = old
    found = records(result.folder)
    found = in_order(found, found["x"][:, 0])
    assert found["x"][:, 0].tolist() == list(range(len(table)))
    assert np.array_equal(found["x"][:, 1], np.array([v for _, v, _ in table], np.float32))
    names = result.record.fitted.classes
    assert [names[code] for code in found["y"]] == [f"<{label}>" for _, _, label in table]
    (text,) = (field for field in result.record.fitted.fields if field.name == "word")
    spelled = [
        "".join(chr(text.points[token - 1]) for token in row[:length])
        for row, length in zip(found["word"], found["word_length"], strict=True)
    ]
    assert spelled == [f"<{word}>" for word, _, _ in table]


def test_a_heading_may_span_lines(tmp_path: Path) -> None:
    source = tmp_path / "table.csv"
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("n", "a b", "y"), *((n, n / 2, n % 2) for n in range(20))])
    source.write_text(buffer.getvalue().replace("a b", '"a, b"'))
    result = made(source, tmp_path / "out")
    assert [column.name for column in result.record.schema.columns] == ["n", "a, b", "y"]
