"""One contract for both places for chunks, then what only the disk can get wrong."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.errors import CannotWrite, DataAltered, DiskFull, MachineError
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.store import ChunkStore, MemoryChunks

Make = Callable[[int], Chunks]


def chunk(number: int, size: int = 100) -> tuple[ChunkHash, bytes]:
    data = number.to_bytes(4, "big") * (size // 4)
    return ChunkHash(hashlib.sha256(data).hexdigest()), data


def on_disk(folder: Path, quota_bytes: int = 1 << 20) -> ChunkStore:
    ticks = itertools.count(1)
    return ChunkStore(folder, quota_bytes, now_ns=lambda: next(ticks) * 1000)


@pytest.fixture(params=["disk", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        return MemoryChunks
    return lambda quota_bytes: on_disk(tmp_path / "chunks", quota_bytes)


def test_what_was_put_is_held_and_comes_back(make: Make) -> None:
    chunks = make(1 << 20)
    for number in range(5):
        chunks.put(*chunk(number))
    assert all(chunks.holds(chunk(number)[0]) for number in range(5))
    assert [chunks.get(chunk(number)[0]) for number in range(5)] == [chunk(n)[1] for n in range(5)]


def test_what_was_never_put_is_missing(make: Make) -> None:
    chunks = make(1 << 20)
    assert chunks.get(chunk(1)[0]) is None
    assert not chunks.holds(chunk(1)[0])


def test_wrong_bytes_are_refused_and_not_kept(make: Make) -> None:
    chunks = make(1 << 20)
    name, data = chunk(1)
    with pytest.raises(DataAltered, match="100 bytes"):
        chunks.put(name, data[:-1] + b"!")
    assert not chunks.holds(name)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "/" + "a" * 63])
def test_a_name_that_is_no_hash_reaches_nothing(make: Make, name: str) -> None:
    chunks = make(1 << 20)
    for call in (chunks.get, chunks.holds, lambda name: chunks.put(name, b"x")):
        with pytest.raises(ValueError, match="64 hexadecimal"):
            call(ChunkHash(name))


def test_putting_twice_counts_once(make: Make) -> None:
    chunks = make(350)
    for number in (1, 2, 1, 1, 1, 1, 1, 1):
        chunks.put(*chunk(number))
    assert chunks.holds(chunk(2)[0])


def test_over_the_quota_the_least_recently_used_goes(make: Make) -> None:
    chunks = make(400)
    for number in range(4):
        chunks.put(*chunk(number))
    assert chunks.get(chunk(0)[0])
    chunks.put(*chunk(4))
    held = [number for number in range(5) if chunks.holds(chunk(number)[0])]
    assert 1 not in held
    assert {0, 4} <= set(held)
    assert 100 * len(held) <= 400


def test_the_chunk_put_last_stays_whatever_the_quota(make: Make) -> None:
    chunks = make(10)
    chunks.put(*chunk(1))
    chunks.put(*chunk(2))
    assert chunks.get(chunk(2)[0]) == chunk(2)[1]
    assert not chunks.holds(chunk(1)[0])


def test_a_quota_holds_something(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        ChunkStore(tmp_path, 0)


def test_a_new_store_finds_the_old_chunks_and_their_size(tmp_path: Path) -> None:
    store = on_disk(tmp_path, 400)
    for number in range(4):
        store.put(*chunk(number))
    again = on_disk(tmp_path, 400)
    assert again.get(chunk(3)[0]) == chunk(3)[1]
    again.put(*chunk(9))
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 400


@pytest.mark.parametrize("damage", [b"", b"x" * 100, b"\0" * 99])
def test_a_corrupt_chunk_is_missing_and_deleted(tmp_path: Path, damage: bytes) -> None:
    store = on_disk(tmp_path)
    name, data = chunk(1)
    store.put(name, data)
    path = tmp_path / name[:2] / name
    path.write_bytes(damage)
    assert store.get(name) is None
    assert not path.exists()
    store.put(name, data)
    assert store.get(name) == data


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    (tmp_path / "old.part").write_bytes(b"half")
    seen: list[list[str]] = []

    def watch(file: BinaryIO, data: bytes) -> None:
        file.write(data[:10])
        ChunkStore(tmp_path, 1 << 20)  # another process starts in the middle of our write
        seen.append([path.name for path in tmp_path.glob("*.part")])
        file.write(data[10:])

    store = ChunkStore(tmp_path, 1 << 20, write=watch)
    assert not (tmp_path / "old.part").exists()
    name, data = chunk(1)
    store.put(name, data)
    assert len(seen[0]) == 1
    assert store.get(name) == data
    assert not list(tmp_path.glob("*.part"))


def test_an_unfinished_file_taken_away_is_written_again(tmp_path: Path) -> None:
    taken: list[Path] = []

    def stolen(file: BinaryIO, data: bytes) -> None:
        file.write(data)
        if not taken:
            taken.extend(tmp_path.glob("*.part"))
            taken[0].unlink()

    store = ChunkStore(tmp_path, 1 << 20, write=stolen)
    store.put(*chunk(1))
    assert store.get(chunk(1)[0]) == chunk(1)[1]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, CannotWrite)],
)
def test_a_disk_that_refuses_is_named_and_nothing_half_written_stays(
    tmp_path: Path, number: int, expected: type[MachineError]
) -> None:
    def refuse(file: BinaryIO, data: bytes) -> None:
        file.write(data[:7])
        raise OSError(number, os.strerror(number))

    store = ChunkStore(tmp_path, 1 << 20, write=refuse)
    with pytest.raises(expected) as caught:
        store.put(*chunk(1))
    assert type(caught.value) is expected
    assert caught.value.advice
    assert str(tmp_path) in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_really_full_disk(tiny_disk: Path) -> None:
    store = ChunkStore(tiny_disk, 1 << 20)
    store.put(*chunk(0, 4096))
    with pytest.raises(DiskFull):
        store.put(*chunk(1, 100_000))
    assert not list(tiny_disk.glob("*.part"))
    assert store.get(chunk(0, 4096)[0]) == chunk(0, 4096)[1]


FILL = """
import hashlib, sys
from pathlib import Path
from crowdgrad.replication.store import ChunkStore

store = ChunkStore(Path(sys.argv[1]), 40_000)
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 60):
    data = bytes([number % 80]) * 1000
    store.put(hashlib.sha256(data).hexdigest(), data)
    store.get(hashlib.sha256(bytes([number * 7 % 80]) * 1000).hexdigest())
"""


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL, str(tmp_path)]
    workers = [subprocess.Popen([*command, str(first)]) for first in (0, 20, 40)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in files)
    assert sum(path.stat().st_size for path in files) <= 40_000 * (1 + 3 / 16)
