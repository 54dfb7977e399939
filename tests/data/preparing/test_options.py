"""Wishes from a TOML file: understood, or said to be wrong with the keys there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crowdgrad.data.preparing import options as module
from crowdgrad.data.preparing.options import Options, from_table, read_file
from crowdgrad.errors import DataMalformed

EXAMPLE = str(module.__doc__).split("\n\n", 1)[1]


def test_the_example_is_understood(tmp_path: Path) -> None:
    (tmp_path / "wishes.toml").write_text(EXAMPLE)
    found = from_table(read_file(tmp_path / "wishes.toml"), "wishes.toml")
    assert found.target == ("species",)
    assert found.columns["city"].order == ("Cork", "Dublin")
    assert (found.validation, found.test) == (0.1, 500)
    assert found.images.size == (32, 32)
    assert found.table.encoding == "latin-1"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"taget": "y"}, "taget"),
        ({"validation": -0.1}, "validation"),
        ({"test": float("nan")}, "test"),
        ({"bad": -1}, "bad"),
        ({"bad": "perhaps"}, "bad"),
        ({"seed": -1}, "64-bit"),
        ({"text": {"length": 0}}, "length"),
        ({"images": {"size": [0, 5]}}, "pixels"),
        ({"images": {"fit": "squeeze"}}, "fit"),
        ({"table": {"delimiter": "ab"}}, "one character"),
        ({"columns": {"a": {"kind": "integer"}}}, "kind"),
        ({"chunk_bytes": 1000}, "chunks have"),
        ({"shard_records": 0}, "at least one"),
    ],
)
def test_what_makes_no_sense_is_said(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(DataMalformed, match=words) as caught:
        from_table(wish, "wishes.toml")
    assert "Known keys" in caught.value.advice


def test_what_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("title = ")
    with pytest.raises(DataMalformed, match="not a TOML file"):
        read_file(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("wish", "records", "held"),
    [
        (None, 1000, 100),
        (None, 10**6, 10_000),
        (0.29, 100, 29),
        (0.1, 9, 0),
        (7, 100, 7),
        (0, 5, 0),
    ],
)
def test_how_many_are_held_out(wish: float | None, records: int, held: int) -> None:
    assert Options(test=wish).kept_out("test", records) == held
