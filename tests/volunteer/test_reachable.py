"""A volunteer learns once a day whether others could dial it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from crowdgrad.errors import Unreachable
from crowdgrad.net import reaching
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.rooms import Reachability, Tried
from crowdgrad.net.transport import secure
from crowdgrad.volunteer import reachable, speed

KEY = guest("a volunteer")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    speed.known(tmp_path, time.time(), measure=lambda: 1.0)
    return tmp_path


def known(home: Path) -> bool | None:
    found = speed.recall(home, time.time())
    assert found is not None
    return found.reachable


def test_the_matchmaker_dials_and_sees_our_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(url: str, key: Identity, addresses: tuple[str, ...]) -> Reachability:
        (asked,) = addresses
        host, port = asked.split(":")
        assert (url, host) == ("https://m", "*")
        assert await secure.knock("127.0.0.1", int(port), key.public) == KEY.public
        tried = Tried(address=asked, reached=True, why="", ms=1.0)
        return Reachability(observed="192.0.2.1", tried=(tried,))

    monkeypatch.setattr(reaching, "ask", ask)
    assert asyncio.run(reachable.look("https://m", KEY, home)) == reachable.REACHED
    assert known(home) is True
    assert asyncio.run(reachable.look("https://m", KEY, home)) == "", "once a day is enough"


def test_that_nobody_can_dial_is_no_trouble(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(url: str, key: Identity, addresses: tuple[str, ...]) -> Reachability:
        tried = Tried(address=addresses[0], reached=False, why="nobody answers", ms=1.0)
        return Reachability(observed="192.0.2.1", tried=(tried,))

    monkeypatch.setattr(reaching, "ask", ask)
    said = asyncio.run(reachable.look("https://m", KEY, home))
    assert "nobody answers" in said
    assert "That is fine" in said
    assert known(home) is False


def test_a_matchmaker_that_will_not_try_leaves_it_open(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(url: str, key: Identity, addresses: tuple[str, ...]) -> Reachability:
        raise Unreachable("Later.")

    monkeypatch.setattr(reaching, "ask", ask)
    assert asyncio.run(reachable.look("https://m", KEY, home)) == ""
    assert known(home) is None
