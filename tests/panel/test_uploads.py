"""Uploads are whole or not there, under their own names, and within their bounds."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect

from crowdgrad.errors import DiskFull, UserError
from crowdgrad.panel import uploads
from crowdgrad.panel.errands import data
from crowdgrad.panel.uploads import Uploads


async def pieces(*given: bytes | BaseException) -> AsyncIterator[bytes]:
    for piece in given:
        await asyncio.sleep(0)
        if isinstance(piece, BaseException):
            raise piece
        yield piece


def everything(folder: Path) -> list[str]:
    return sorted(str(found.relative_to(folder)) for found in folder.rglob("*") if found.is_file())


def test_names_that_differ_stay_apart(tmp_path):
    async def scenario() -> None:
        taking = Uploads(tmp_path)
        first = await taking.take("😀/a.png", "", pieces(b"1"))
        await taking.take("😁/a.png", first.set, pieces(b"2"))
        assert everything(tmp_path / first.set) == ["😀/a.png", "😁/a.png"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (ClientDisconnect(), ClientDisconnect),
        (asyncio.CancelledError(), asyncio.CancelledError),
        (OSError(errno.ENOSPC, "full"), DiskFull),
    ],
)
def test_an_upload_that_breaks_off_leaves_nothing(tmp_path, end, said):
    async def scenario() -> None:
        taking = Uploads(tmp_path)
        with pytest.raises(said):
            await taking.take("a/b.csv", "", pieces(b"12345", end))
        assert everything(tmp_path) == []
        assert [found.name for found in tmp_path.iterdir()] == [uploads.DRAFTS]

    asyncio.run(scenario())


def test_the_same_files_of_the_same_names_have_the_same_contents(tmp_path):
    async def scenario() -> None:
        taking = Uploads(tmp_path)

        async def dropped(*files: tuple[str, bytes]) -> str:
            into = ""
            for name, body in files:
                into = (await taking.take(name, into, pieces(body[:2], body[2:]))).set
            return taking.contents(into)

        first = await dropped(("a.csv", b"1234"), ("b.csv", b"5"))
        assert first == await dropped(("b.csv", b"5"), ("a.csv", b"1234"))
        others = [
            await dropped(("a.csv", b"1235"), ("b.csv", b"5")),
            await dropped(("a.csv", b"1234")),
            await dropped(("a.csv", b"1234"), ("c.csv", b"5")),
            await dropped(("a.csv", b"5"), ("b.csv", b"1234")),
        ]
        assert len({first, *others}) == 5
        assert taking.contents("set-0123456789abcdef") == "", "it has never come to this panel"
        (tmp_path / "set-0123456789abcdef").mkdir()
        (tmp_path / "set-0123456789abcdef" / "a.csv").write_bytes(b"1234")
        await taking.take("b.csv", "set-0123456789abcdef", pieces(b"5"))
        assert taking.contents("set-0123456789abcdef") == "", "nor all of it to this one"

    asyncio.run(scenario())


def test_what_is_uploaded_again_is_prepared_once(tmp_path):
    lines = "".join(f"{n},{n % 7},{'ab'[n % 2]}\n" for n in range(60))

    async def uploaded() -> tuple[list[str], str]:
        taking = Uploads(tmp_path / "uploads")
        into = (await taking.take("one.csv", "", pieces(b"n,m,label\n" + lines.encode()))).set
        await taking.take("two.csv", into, pieces(b"n,m,label\n" + lines.encode()))
        sources = taking.sources(into)
        assert sources is not None
        return sources, taking.contents(into)

    found = []
    for _ in range(3):
        sources, contents = asyncio.run(uploaded())
        wish = {"sources": sources, "contents": contents, "home": str(tmp_path), "target": "label"}
        found.append(data.run(wish, lambda **told: None).data)
        shutil.rmtree(tmp_path / "uploads")
    (only,) = (tmp_path / "prepared").iterdir()
    assert set(found) == {str(only)}
    assert only.name.startswith("upload-")


def test_a_disk_without_modes_is_no_obstacle(tmp_path, monkeypatch, caplog):
    def refused(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    taken = asyncio.run(Uploads(tmp_path / "uploads").take("a.csv", "", pieces(b"1")))
    assert everything(tmp_path / "uploads") == [f"{taken.set}/a.csv"]
    assert "others may be able to read" in caplog.text


def test_what_a_killed_panel_left_is_thrown_away_and_what_another_writes_is_not(tmp_path):
    drafts = tmp_path / uploads.DRAFTS
    drafts.mkdir()
    (drafts / "old.part").touch()
    os.utime(drafts / "old.part", (0, 0))
    (drafts / "new.part").touch()
    asyncio.run(Uploads(tmp_path).take("a", "", pieces(b"")))
    assert everything(drafts) == ["new.part"]


def test_uploads_at_once_share_the_bound_of_their_set(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_SET_BYTES", 10)

    async def scenario() -> None:
        taking = Uploads(tmp_path)
        into = (await taking.take("first", "", pieces(b"1"))).set
        many = [taking.take(str(n), into, pieces(b"12", b"34")) for n in range(4)]
        ended = await asyncio.gather(*many, return_exceptions=True)
        assert sum(isinstance(one, UserError) for one in ended) >= 2
        taken = sum(file.stat().st_size for file in (tmp_path / into).iterdir())
        assert taken <= 10
        room = 10 - taken
        await taking.take("rest", into, pieces(b"x" * room))  # those refused take no room
        with pytest.raises(UserError, match="larger"):
            await taking.take("more", into, pieces(b"x"))

    asyncio.run(scenario())


def test_nothing_is_a_file_and_a_folder(tmp_path):
    async def scenario() -> None:
        taking = Uploads(tmp_path)
        into = (await taking.take("a/b", "", pieces(b"1"))).set
        for name in ("a", "a/b/c"):
            with pytest.raises(UserError, match="a file and a folder"):
                await taking.take(name, into, pieces(b"2"))
        assert everything(tmp_path) == [f"{into}/a/b"]

    asyncio.run(scenario())


def test_all_sets_together_have_a_bound_those_of_earlier_panels_too(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_ALL_BYTES", 10)

    async def scenario() -> None:
        earlier = (await Uploads(tmp_path).take("a", "", pieces(b"123456"))).set
        taking = Uploads(tmp_path)
        await taking.take("b", "", pieces(b"123"))
        with pytest.raises(UserError, match="All uploads") as refused:
            await taking.take("c", "", pieces(b"12"))
        assert str(tmp_path) in refused.value.advice
        await taking.take("d", earlier, pieces(b"1"))  # its first six are not counted twice
        assert tmp_path.stat().st_mode & 0o777 == 0o700

    asyncio.run(scenario())


def test_what_was_only_prepared_goes_with_the_panel(tmp_path):
    async def scenario() -> None:
        earlier = (await Uploads(tmp_path).take("a.csv", "", pieces(b"1"))).set
        taking = Uploads(tmp_path)
        used = (await taking.take("b.npz", "", pieces(b"2"))).set
        await taking.take("c.csv", "", pieces(b"3"))
        taking.used(str(tmp_path / used / "b.npz"))
        taking.used(str(tmp_path.parent / "prepared" / "c.data"))
        taking.used("digits")
        taking.end()
        assert everything(tmp_path) == sorted([f"{earlier}/a.csv", f"{used}/b.npz"])

    asyncio.run(scenario())


def test_a_slow_disk_holds_up_nobody_else(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slowly(done):
        def act(*given):
            begun.set()
            assert go_on.wait(30), "all else was held up"
            return done(*given)

        return act

    async def scenario() -> None:
        for name in ("_add", "_size_of"):
            begun.clear()
            go_on.clear()
            with monkeypatch.context() as patch:
                patch.setattr(uploads, name, slowly(getattr(uploads, name)))
                taking = asyncio.create_task(Uploads(tmp_path).take("a.csv", "", pieces(b"1,2")))
                while not begun.is_set():  # noqa: ASYNC110 (set by another thread)
                    await asyncio.sleep(0.01)
                go_on.set()
                assert (await taking).bytes == 3

    asyncio.run(scenario())
