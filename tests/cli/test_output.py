"""What the commands share."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdgrad.cli.main import parser
from crowdgrad.cli.output import fitted, write_json
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


def test_a_pipe_or_device_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(str(pipe), [1, 2])
        assert json.loads(os.read(reader, 100)) == [1, 2]
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_a_pipe_that_nobody_reads_is_said_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotWrite, match="nobody reads") as caught:
        write_json(str(tmp_path / "pipe"), [1, 2])
    assert caught.value.advice == "Start what reads it first."


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_name_may_be_a_file_and_keeps_its_name(
    tmp_path: Path, name: str
) -> None:
    said = f"from crowdgrad.cli.output import write_json; write_json({name!r}, [1, 2])"
    with (tmp_path / "out").open("wb") as out:
        out.write(b"before\n")
        out.flush()
        subprocess.run([sys.executable, "-c", said], stdout=out, check=True)
    words, _, told = (tmp_path / "out").read_text().partition("\n")
    assert (words, json.loads(told)) == ("before", [1, 2])
    assert Path("/dev/stdout").is_symlink()


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write_json("-", [1, 2])
    assert json.loads(capsys.readouterr().out) == [1, 2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_broken_between_words_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    said = "2026  Leave out --matchmaker, /a/path/longer/than/a/line and so on."
    assert fitted(said, io.StringIO()) == said
    assert fitted(said, Terminal(), "  ").splitlines() == [
        "2026  Leave out", "  --matchmaker,", "  /a/path/longer/than/a/line", "  and so on.",
    ]  # fmt: skip


def commands(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from commands(command)


def test_every_help_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = [
        line
        for command in commands(parser())
        for line in command.format_help().splitlines()
        if len(line) > 80
    ]
    assert wide == []
