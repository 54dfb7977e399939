"""What the commands share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdgrad.cli.output import write_json
from crowdgrad.errors import CannotWrite


def test_a_json_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    write_json(str(tmp_path / "a.json"), {"address": "127.0.0.1:1"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"address": "127.0.0.1:1"}
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="Cannot write"):
        write_json(str(tmp_path / "file" / "a.json"), {})
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write_json("-", [1, 2])
    assert json.loads(capsys.readouterr().out) == [1, 2]
