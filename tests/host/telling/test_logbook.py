"""The log as JSON: whole lines, bounded, clean, and never in the way."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.host.telling.logbook import KEPT, Logbook, clean, entry, install
from tests.host.full_disk import full_at

logger = logging.getLogger("crowdgrad.host.some_module")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def a_record(message: str, **more: object) -> logging.LogRecord:
    record = logging.LogRecord("crowdgrad.x", logging.INFO, "", 0, message, None, None)
    record.__dict__.update(more)
    return record


def test_every_line_says_when_how_grave_who_and_what(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "host.jsonl"
    with install(path):
        logger.info("%s joined as number %d", "ada", 3, extra={"fields": {"position": 3}})
        logger.warning("the disk is full")
        logger.debug("nobody wants to know")
    first, second = lines(path)
    assert first["time"].endswith("Z")
    assert len(first["time"]) == len("2026-01-31T12:00:00.123Z")
    assert (first["level"], first["logger"]) == ("INFO", logger.name)
    assert first["message"] == "ada joined as number 3"
    assert first["fields"] == {"position": 3}
    assert (second["level"], second["message"]) == ("WARNING", "the disk is full")


def test_terminals_show_what_they_did(tmp_path: Path) -> None:
    shown: list[str] = []

    class Terminal(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record.getMessage())

    terminal = Terminal()
    logging.root.addHandler(terminal)
    try:
        with install(tmp_path / "host.jsonl"):
            logger.info("a detail")
            logger.warning("a warning")
        assert terminal.level == logging.NOTSET
        logger.warning("afterwards")
    finally:
        logging.root.removeHandler(terminal)
    assert shown == ["a warning", "afterwards"]
    assert [line["message"] for line in lines(tmp_path / "host.jsonl")] == ["a detail", "a warning"]
    assert logging.getLogger("crowdgrad").level == logging.NOTSET


def test_an_error_comes_with_its_trace(tmp_path: Path) -> None:
    with install(tmp_path / "host.jsonl"):
        try:
            raise ValueError("strange\x1b[2J")
        except ValueError:
            logger.exception("no answer could be given")
    (line,) = lines(tmp_path / "host.jsonl")
    assert line["error"][-1] == "ValueError: strange [2J"


@given(st.text(max_size=200))
def test_whatever_is_said_is_one_clean_line(text: str) -> None:
    said = clean(f"{text}\x1b[31m\r\n\u202e")
    assert said.isprintable() or all(c.isprintable() or ord(c) > 0x9F for c in said)
    assert "\x1b" not in said
    assert len(json.dumps(entry(a_record(text))).splitlines()) == 1


@pytest.mark.parametrize(
    "said",
    [
        "Authorization: Bearer 0123456789abcdef0123456789abcdef",
        "the token is 'token=0123456789abcdef0123456789abcdef'",
        'token: "0123456789abcdef0123456789abcdef"',
    ],
)
def test_no_secret_is_kept(said: str) -> None:
    found = entry(a_record(said, fields={"token": "0123456789abcdef", "name": "ada", "n": 1.5}))
    assert "0123456789abcdef" not in json.dumps(found)
    assert found["fields"] == {"token": "…", "name": "ada", "n": 1.5}


def test_fields_that_json_cannot_say_are_words(tmp_path: Path) -> None:
    found = entry(a_record("x", fields={"path": tmp_path, "loss": float("nan"), "here": True}))
    assert found["fields"] == {"path": str(tmp_path), "loss": None, "here": True}


def test_it_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    book = Logbook(path, max_bytes=2000)
    for number in range(200):
        book.handle(a_record(f"line {number}"))
    book.close()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["host.jsonl", *(f"host.jsonl.{n}" for n in range(1, KEPT + 1))]
    assert all(file.stat().st_size <= 2000 for file in tmp_path.iterdir())
    told = [line["message"] for name in reversed(names) for line in lines(tmp_path / name)]
    assert told == [f"line {number}" for number in range(200 - len(told), 200)]


def test_a_second_host_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    for number in range(3):
        with install(path):
            logger.warning("host %d", number)
    assert [line["message"] for line in lines(path)] == ["host 0", "host 1", "host 2"]


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path, capsys) -> None:
    path = tmp_path / "host.jsonl"
    with install(path):
        with full_at(4000):
            for number in range(100):
                logger.info("line %d", number)
        cut = len(lines(path))
        assert 0 < cut < 100, "whole lines only"
        logger.info("there is room again")
    assert lines(path)[-1]["message"] == "there is room again"
    assert capsys.readouterr().err == ""


def test_what_cannot_be_said_or_written_does_not_raise(tmp_path: Path) -> None:
    class Strange:
        def __str__(self) -> str:
            raise RuntimeError("no")

    (tmp_path / "file").touch()
    for path in (tmp_path / "host.jsonl", tmp_path / "file" / "host.jsonl"):
        with install(path):
            logger.info("%s", Strange())
            logger.info("%d", "three")
            logger.info("\ud800 half a character", extra={"fields": {"x": Strange()}})
            logger.info("still here")
    assert lines(tmp_path / "host.jsonl")[-1]["message"] == "still here"
