"""`crowdgrad data`: what a person and a script get."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest
from rich.status import Status

from crowdgrad.cli import data
from crowdgrad.errors import CannotWrite, DataMissing


def run(*words: str) -> int:
    parser = argparse.ArgumentParser(prog="crowdgrad")
    data.add_parser(parser.add_subparsers())
    args = parser.parse_args(words)
    code = args.run(args)
    assert isinstance(code, int)
    return code


def test_get_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "get", "spirals", "--data-dir", str(tmp_path), "--json", "-") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "name": "spirals",
        "title": "spirals",
        "records": {"train": 5000, "test": 1000},
        "bytes": 6000 * 9,
        "source": "this machine",
        "files": [],
        "note": "generated; not MNIST.",
    }


def test_get_for_people_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    assert run("data", "get", "digits", "--data-dir", str(tmp_path), "--json", str(target)) == 0
    said = capsys.readouterr().out
    assert "1,437 train, 360 test records" in said
    assert json.loads(target.read_text())["records"] == {"train": 1437, "test": 360}


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "list", "--data-dir", str(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "mnist" in said
    assert "(not here yet)" in said
    assert run("data", "list", "--data-dir", str(tmp_path), "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["datasets"]
    assert {row["name"]: row["here"] for row in rows} == {
        "mnist": False,
        "digits": True,
        "spirals": True,
        "shakespeare": False,
        "japanese_vowels": False,
        "diamonds": False,
        "diabetes": True,
        "cifar10": False,
        "imdb": False,
    }


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="imagenet"):
        run("data", "get", "imagenet", "--data-dir", str(tmp_path))
    with pytest.raises(DataMissing, match="offline"):
        run("data", "get", "mnist", "--offline", "--data-dir", str(tmp_path))
    with pytest.raises(CannotWrite, match="Cannot write"):
        run("data", "get", "spirals", "--data-dir", str(tmp_path), "--json", "/dev/null/x")


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("data", "--help")
    assert caught.value.code == 0
    assert "crowdgrad data get mnist" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        run("data")
    assert caught.value.code == 2


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    said = []
    with data.shown_progress("fetching", beside=spinner(said)) as bar:
        assert not terminal.getvalue(), "nothing before there is something to wait for"
        bar.start(4_000_000, "something")
        assert said == ["stop"]
        bar.advance(1_000_000)
        bar._display.refresh()  # type: ignore[attr-defined]
        bar.done()
        assert said == ["stop", "start"]
    assert "fetching something" in terminal.getvalue()
    assert "1.0 of 4.0 MB" in terminal.getvalue()


def spinner(said: list[str]) -> Status:
    class Spinner(Status):
        def start(self) -> None:
            said.append("start")

        def stop(self) -> None:
            said.append("stop")

    return Spinner("Reading the job")
