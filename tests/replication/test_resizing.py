"""Chunks within a quota that may become another."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.replication.store import ChunkStore
from tests.replication.test_store import chunk


def held(store: ChunkStore, count: int = 10) -> list[int]:
    return [number for number in range(count) if store.holds(chunk(number)[0])]


def resize(store: ChunkStore, quota_bytes: int) -> None:
    store.quota_bytes = quota_bytes
    store.shrink()


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_what_is_too_much_by_now_goes_at_once_the_oldest_first(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 10_000)
    for number in range(10):
        store.put(*chunk(number))
    store.get(chunk(0)[0])
    resize(store, 500)
    assert bytes_in(tmp_path) <= 500
    kept = held(store)
    assert 0 in kept, "it was used last"
    assert kept[1:] == list(range(10))[-len(kept[1:]) :]


def test_more_room_keeps_more_and_the_same_changes_nothing(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 300)
    for number in range(10):
        store.put(*chunk(number))
    before = held(store)
    resize(store, 300)
    assert held(store) == before
    resize(store, 10_000)
    for number in range(10):
        store.put(*chunk(number))
    assert held(store) == list(range(10))
    assert store.get(chunk(3)[0]) == chunk(3)[1]


def test_what_others_left_there_goes_too(tmp_path: Path) -> None:
    before = ChunkStore(tmp_path, 10_000)
    for number in range(9):
        before.put(*chunk(number))
    resize(ChunkStore(tmp_path, 10_000), 400)
    assert 0 < bytes_in(tmp_path) <= 400


def test_whoever_shrinks_last_the_quota_set_last_counts(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 10_000)
    for number in range(10):
        store.put(*chunk(number))
    store.quota_bytes = 400
    store.quota_bytes = 10_000  # before anybody came to shrink
    store.shrink()
    store.shrink()
    assert held(store) == list(range(10))


def test_what_is_written_keeps_to_a_new_quota_before_anybody_has_shrunk(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, 10_000)
    for number in range(9):
        store.put(*chunk(number))
    store.quota_bytes = 400
    store.put(*chunk(9))
    assert 0 < bytes_in(tmp_path) <= 400
