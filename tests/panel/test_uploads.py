"""Uploads are whole or not there, under their own names, and within their bounds."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect

from crowdgrad.errors import DiskFull, UserError
from crowdgrad.panel import uploads
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
