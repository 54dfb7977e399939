"""Chunks within a quota that may become another."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.volunteer.shelf import Shelf
from tests.replication.test_store import chunk


def held(shelf: Shelf, count: int = 10) -> list[int]:
    return [number for number in range(count) if shelf.holds(chunk(number)[0])]


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_what_is_too_much_by_now_goes_at_once_the_oldest_first(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 10_000)
    for number in range(10):
        shelf.put(*chunk(number))
    shelf.get(chunk(0)[0])
    shelf.resize(500)
    assert shelf.quota_bytes == 500
    assert bytes_in(tmp_path) <= 500
    kept = held(shelf)
    assert 0 in kept, "it was used last"
    assert kept[1:] == list(range(10))[-len(kept[1:]) :]


def test_more_room_keeps_more_and_the_same_changes_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 300)
    for number in range(10):
        shelf.put(*chunk(number))
    before = held(shelf)
    shelf.resize(300)
    assert held(shelf) == before
    shelf.resize(10_000)
    for number in range(10):
        shelf.put(*chunk(number))
    assert held(shelf) == list(range(10))
    assert shelf.get(chunk(3)[0]) == chunk(3)[1]


def test_where_nothing_was_used_yet_it_is_kept_from_the_next_chunk_on(tmp_path: Path) -> None:
    before = Shelf(tmp_path, 10_000)
    for number in range(9):
        before.put(*chunk(number))
    shelf = Shelf(tmp_path, 10_000)
    shelf.resize(400)
    shelf.put(*chunk(9))
    assert bytes_in(tmp_path) <= 400
    assert 9 in held(shelf)
