"""Chunks within a quota that may become another."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.replication.store import ChunkStore
from tests.replication.test_store import chunk


def held(store: ChunkStore, count: int = 10) -> list[int]:
    return [number for number in range(count) if store.holds(chunk(number)[0])]


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_what_is_too_much_by_now_goes_at_once_the_oldest_first(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 10_000)
    for number in range(10):
        store.put(*chunk(number))
    store.get(chunk(0)[0])
    store.resize(500)
    assert store.quota_bytes == 500
    assert bytes_in(tmp_path) <= 500
    kept = held(store)
    assert 0 in kept, "it was used last"
    assert kept[1:] == list(range(10))[-len(kept[1:]) :]


def test_more_room_keeps_more_and_the_same_changes_nothing(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 300)
    for number in range(10):
        store.put(*chunk(number))
    before = held(store)
    store.resize(300)
    assert held(store) == before
    store.resize(10_000)
    for number in range(10):
        store.put(*chunk(number))
    assert held(store) == list(range(10))
    assert store.get(chunk(3)[0]) == chunk(3)[1]


def test_what_others_left_there_goes_too(tmp_path: Path) -> None:
    before = ChunkStore(tmp_path, 10_000)
    for number in range(9):
        before.put(*chunk(number))
    ChunkStore(tmp_path, 10_000).resize(400)
    assert 0 < bytes_in(tmp_path) <= 400
