"""The last lines of the log, for whoever looks while a host runs."""

from __future__ import annotations

import logging
from pathlib import Path

from crowdgrad.host.telling import logbook
from crowdgrad.host.telling.recent import Recent


def said(recent: Recent, *texts: str) -> None:
    for text in texts:
        recent.handle(logging.LogRecord("crowdgrad.x", logging.INFO, "", 0, text, (), None))


def test_lines_are_numbered_and_told_once() -> None:
    recent = Recent()
    said(recent, "one", "two")
    first = recent.after(0)
    assert [(line.n, line.level, line.text) for line in first.lines] == [
        (1, "info", "one"), (2, "info", "two"),
    ]  # fmt: skip
    assert recent.after(first.next).lines == []
    said(recent, "three")
    assert [line.text for line in recent.after(first.next).lines] == ["three"]


def test_only_the_last_are_kept() -> None:
    recent = Recent(kept=3)
    said(recent, *map(str, range(10)))
    assert [line.text for line in recent.after(2).lines] == ["7", "8", "9"]


def test_who_knows_of_another_life_hears_all() -> None:
    recent = Recent()
    said(recent, "one")
    assert [line.n for line in recent.after(500).lines] == [1]
    assert Recent().after(500).next == 0


def test_secrets_and_what_moves_a_cursor_are_not_told() -> None:
    recent = Recent()
    said(recent, "token: abcdefgh12345678\x1b[2J\nnew")
    (line,) = recent.after(0).lines
    assert "abcdefgh" not in line.text
    assert "\x1b" not in line.text
    assert "\n" not in line.text


def test_it_hears_what_the_logbook_keeps(tmp_path: Path) -> None:
    recent = Recent()
    with logbook.install(tmp_path / "host.jsonl", recent):
        logging.getLogger("crowdgrad.host.x").info("hello")
        logging.getLogger("crowdgrad.host.x").debug("nobody")
    logging.getLogger("crowdgrad.host.x").warning("too late")
    assert [line.text for line in recent.after(0).lines] == ["hello"]
