"""Sources at addresses: memory, a real web server, and a package that is not there."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest

from crowdgrad.data.preparing.bringing import remote_files
from crowdgrad.errors import DataMissing, MissingExtra
from tests.data.preparing.making import made, records, whole

TABLE = "a,y\n" + "".join(f"{n / 2},{n % 2}\n" for n in range(20))


class Handler(SimpleHTTPRequestHandler):
    asked: list[str] = []

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "web"
    root.mkdir()
    Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", root
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def values(found: dict[str, Any]) -> list[float]:
    return sorted(found["x"][:, 0].tolist())


def test_a_file_and_a_folder_in_memory(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/folder/train/a.csv", TABLE.encode())
    memory.pipe("/folder/test/b.csv", TABLE.encode())
    try:
        assert values(whole("memory://folder/train/a.csv", tmp_path / "one")) == [
            n / 2 for n in range(20)
        ]
        result = made("memory://folder", tmp_path / "all", validation=0)
        assert result.folder.manifest.records("test") == 20
        assert result.folder.manifest.title == "folder"
        assert made("memory://folder", tmp_path / "all", validation=0).reused
        memory.pipe("/folder/test/b.csv", TABLE.replace("9.5", "8.5").encode())
        assert not made("memory://folder", tmp_path / "all", validation=0).reused
    finally:
        memory.rm("/folder", recursive=True)


def test_a_file_on_the_web_is_fetched_once(tmp_path: Path, web: tuple[str, Path]) -> None:
    address, root = web
    (root / "table.csv").write_text(TABLE)
    result = made(f"{address}/table.csv", tmp_path / "out")
    assert values(records(result.folder)) == [n / 2 for n in range(20)]
    assert result.folder.manifest.card.source == "table.csv"
    assert Handler.asked == ["/table.csv"]
    assert made(f"{address}/table.csv", tmp_path / "out").reused
    assert Handler.asked == ["/table.csv"]


def test_a_file_that_changed_on_the_web_is_fetched_anew(
    tmp_path: Path, web: tuple[str, Path]
) -> None:
    """Of the same length: only its date tells."""
    address, root = web
    (root / "table.csv").write_text(TABLE)
    made(f"{address}/table.csv", tmp_path / "out")
    (root / "table.csv").write_text(TABLE.replace("9.5", "7.5"))
    os.utime(root / "table.csv", (1, 1_000_000_000))
    again = made(f"{address}/table.csv", tmp_path / "out")
    assert not again.reused
    assert 9.5 not in values(records(again.folder))


def test_a_folder_on_the_web(tmp_path: Path, web: tuple[str, Path]) -> None:
    address, root = web
    (root / "set").mkdir()
    (root / "set" / "train.csv").write_text(TABLE)
    (root / "set" / "test.csv").write_text(TABLE)
    result = made(f"{address}/set/", tmp_path / "out", validation=0)
    assert result.folder.manifest.records("train") == 20
    assert result.folder.manifest.records("test") == 20


def test_what_is_not_there(tmp_path: Path, web: tuple[str, Path]) -> None:
    with pytest.raises(DataMissing):
        made(f"{web[0]}/nothing.csv", tmp_path / "out")
    with pytest.raises(DataMissing, match="nothing at memory"):
        made("memory://nowhere/nothing.csv", tmp_path / "out")
    with pytest.raises(DataMissing, match="cannot be opened"):
        made("gopher://old.example/table.csv", tmp_path / "out")
    with pytest.raises(DataMissing, match="There is no"):
        made(tmp_path / "nothing.csv", tmp_path / "out")


def test_a_missing_package_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match="s3fs") as caught:
        remote_files("s3://bucket/table.csv")
    assert "pip install s3fs" in caught.value.advice


def test_a_strangers_name_leads_nowhere_else(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/evil/../../up.csv", TABLE.encode())
    names = [name for name in memory.store if "up.csv" in name]
    try:
        made("memory:/" + names[0], tmp_path / "deep" / "out")
        assert [p.name for p in tmp_path.rglob("*.csv")] == []
    finally:
        memory.store.clear()
