"""Mirrors in object stores: fsspec's memory, and stand-ins for the packages of the large ones."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry as registered

from crowdgrad.errors import (
    CrowdgradError,
    DataAltered,
    DataMissing,
    MissingExtra,
    NotAgreed,
    Unreachable,
)
from crowdgrad.replication.mirrors import HttpMirror, StoreMirror, mirror_of
from tests.replication.one_chunk import DATA, FILE, NAME, SIZE, failure, fetch

HERE = "127.0.0.1"


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    file_system = MemoryFileSystem()
    file_system.pipe(f"/mirror{FILE}", DATA)
    yield file_system
    file_system.store.clear()


def test_an_open_file_system_is_a_mirror(memory: MemoryFileSystem) -> None:
    mirror = StoreMirror("memory://mirror/", file_system=memory)
    assert mirror.name == "memory://mirror"
    assert asyncio.run(fetch(mirror)) == DATA
    assert asyncio.run(fetch(StoreMirror("/mirror", file_system=memory))) == DATA


@pytest.mark.parametrize(
    ("there", "error", "words"),
    [
        (None, DataMissing, "does not have a chunk"),
        (DATA[:-1], DataAltered, f"has {SIZE - 1} bytes"),
        (DATA + b"!", DataAltered, f"has more than {SIZE} bytes"),
        (DATA[:-1] + b"!", DataAltered, "other bytes"),
    ],
)
def test_what_a_store_has_is_verified(
    memory: MemoryFileSystem, there: bytes | None, error: type[CrowdgradError], words: str
) -> None:
    memory.rm(f"/mirror{FILE}")
    if there is not None:
        memory.pipe(f"/mirror{FILE}", there)
    found = failure(StoreMirror("memory://mirror", file_system=memory))
    assert type(found) is error
    assert words in found.message


class Failing(MemoryFileSystem):
    cachable = False

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self.act = act

    def cat_file(self, *_: Any, **__: Any) -> bytes:
        return bytes(self.act())


def test_whatever_a_store_raises_is_said_in_words() -> None:
    def refused() -> bytes:
        raise PermissionError("Access Denied")

    def broken() -> bytes:
        raise RuntimeError("the store is on fire\nand more")

    assert type(failure(StoreMirror("x", file_system=Failing(refused)))) is DataMissing
    found = failure(StoreMirror("x", file_system=Failing(broken)))
    assert type(found) is Unreachable
    assert found.message == "x cannot be read: the store is on fire."


def test_a_store_that_does_not_answer_has_its_time_and_holds_few_threads() -> None:
    over = threading.Event()

    def hang() -> bytes:
        over.wait()
        return b""

    mirror = StoreMirror("x", file_system=Failing(hang), within_s=0.05)

    async def main() -> list[Any]:
        return await asyncio.gather(
            *(mirror.get(NAME, SIZE) for _ in range(40)), return_exceptions=True
        )

    found = [str(error) for error in asyncio.run(main())]
    over.set()
    assert sum("within 0.05 s" in words for words in found) == 32
    assert sum("still owes us 32 answers" in words for words in found) == 8


# Those of strangers, with stand-ins for the packages of the stores.


class Bucket(MemoryFileSystem):
    protocol = ("s3", "gs", "abfs")
    cachable = False
    asked_with: dict[str, Any] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__()
        type(self).asked_with = options
        self.account_key = options.get("secret")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.partition("://")[2] if "://" in path else path


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> type[Bucket]:
    for scheme in ("s3", "gs", "abfs"):
        monkeypatch.setitem(registered, scheme, Bucket)
    return Bucket


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("s3://bucket/people", {"anon": True}),
        ("gs://bucket/people", {"token": "anon"}),
        ("abfs://box@account.dfs.core.windows.net/people", {"anon": True}),
    ],
)
def test_a_bucket_is_asked_without_saying_who_asks(
    bucket: type[Bucket], address: str, options: dict[str, Any], memory: MemoryFileSystem
) -> None:
    memory.pipe(f"/{address.partition('://')[2]}{FILE}", DATA)
    assert asyncio.run(fetch(mirror_of(address, host="8.8.8.8"))) == DATA
    assert bucket.asked_with == options


def test_no_password_of_this_machine_is_used(
    bucket: type[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "abfs", {"secret": "of the volunteer"})
    found = failure(mirror_of("abfs://box@account.dfs.core.windows.net/x", host="8.8.8.8"))
    assert type(found) is NotAgreed
    assert "of the volunteer" not in str(found)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    found = failure(mirror_of("s3://bucket/people", host="8.8.8.8"))
    assert type(found) is MissingExtra
    assert "pip install s3fs" in str(found)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    found = failure(mirror_of("gs://bucket/people", host="8.8.8.8"))
    assert type(found) is MissingExtra
    assert "pip install gcsfs" in str(found)


@pytest.mark.parametrize("host", [HERE, "8.8.8.8"])
@pytest.mark.parametrize(
    "address",
    ["file:///etc", "/etc", "memory://mirror", "local://x", "sftp://example.org/x", "zip://x",
     "hdfs://10.0.0.1/x", "simplecache::s3://bucket", "s3://bucket::file:///etc"],
)  # fmt: skip
def test_nobody_is_sent_to_files_of_their_own(address: str, host: str) -> None:
    with pytest.raises(ValueError, match="address"):
        mirror_of(address, host=host)
    with pytest.raises(ValueError, match="address"):
        StoreMirror(address)


def test_each_kind_takes_only_its_own_addresses() -> None:
    with pytest.raises(ValueError, match="not in an object store"):
        StoreMirror("https://example.org")
    with pytest.raises(ValueError, match="begins with http"):
        HttpMirror("s3://bucket", host=HERE)
