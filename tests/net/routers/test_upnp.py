"""UPnP, with a device that stands in for the library's; a real one is in the integration tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import FOR_EVER, Grant
from crowdgrad.net.routers.gateway import WayOut
from crowdgrad.net.routers.upnp import PROGRAM, Apart, Refused, Upnp, in_thread

OUT = WayOut(gateway="192.168.1.1", local="192.168.1.5")


class Router:
    """As `miniupnpc.UPnP` does: bare exceptions, with the router's words."""

    def __init__(self, **behaviour: Any) -> None:
        self.url = "http://192.168.1.1:5000/ctl/IPConn"
        self.found: int | Exception = 1
        self.address = "203.0.113.7"
        self.taken: set[int] = set()
        self.refusal = ""
        self.only_for_ever = False
        self.open: dict[int, tuple[str, int, int]] = {}
        self.ended = 0
        for name, value in behaviour.items():
            setattr(self, name, value)

    def discover(self) -> int:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def selectigd(self) -> str:
        return self.url

    def externalipaddress(self) -> str:
        return self.address

    def addportmapping(
        self, external: int, protocol: str, host: str, port: int, title: str, remote: str,
        lifetime_s: int, /,
    ) -> bool:  # fmt: skip
        assert (protocol, remote) == ("TCP", "")
        if self.refusal:
            raise Exception(self.refusal)
        if external in self.taken:
            raise Exception("ConflictInMappingEntry")
        if lifetime_s and self.only_for_ever:
            raise Exception("OnlyPermanentLeasesSupported")
        self.open[external] = (host, port, lifetime_s)
        return True

    def deleteportmapping(self, external: int, protocol: str, /) -> bool:
        assert protocol == "TCP"
        del self.open[external]
        return True

    def end(self) -> None:
        self.ended += 1


def opened(router: Router, out: WayOut = OUT, others: Callable[[], int] = lambda: 0) -> Grant:
    """What it opens; raises RouterError."""

    def device(local: str) -> Router:
        assert local == out.local
        return router

    return asyncio.run(Upnp(out, 8701, other_ports=others, device=device).open(8701, 3600))


def test_a_port_is_opened_kept_and_given_back() -> None:
    router = Router()
    made = 0

    def device(local: str) -> Router:
        nonlocal made
        made += 1
        return router

    async def main() -> None:
        way = Upnp(OUT, 8701, other_ports=lambda: 0, device=device)
        way.look()
        way.look()
        grant = await way.open(8701, 3600)
        assert grant == Grant(address="203.0.113.7", port=8701, lifetime_s=3600)
        assert router.open == {8701: ("192.168.1.5", 8701, 3600)}
        assert await way.open(8701, 3600) == grant
        assert made == 1  # it was looked for once
        assert router.ended == 0
        await way.close(grant)
        assert router.open == {}
        assert router.ended == 1, "nobody needs it any longer"

    asyncio.run(main())


def test_where_a_port_is_taken_others_are_tried_and_not_without_end() -> None:
    numbers = iter([8702, 8703, 8704, 8705, 8706])
    assert opened(Router(taken={8701, 8702}), others=lambda: next(numbers)).port == 8703
    with pytest.raises(RouterError, match="ConflictInMappingEntry"):
        opened(Router(taken={8701}), others=lambda: 8701)


def test_a_router_that_knows_only_for_ever_is_asked_for_that() -> None:
    router = Router(only_for_ever=True)
    assert opened(router).lifetime_s == FOR_EVER
    assert router.open[8701][2] == 0


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"found": 0}, "does not answer"),
        ({"found": Exception("Success")}, "does not answer"),
        ({"refusal": "Action Not Authorized\x1b[2J"}, r"\] Action Not Authorized \[2J$"),
        ({"refusal": "x" * 5000}, r"\] x{200}$"),
        ({"address": "<b>"}, "its address outside is '<b>'"),
        ({"address": ""}, "no address outside"),
        ({"url": "http://192.168.1.66/ctl"}, "192.168.1.66 calls itself a router"),
        ({"url": "http://[::bad/"}, "calls itself a router"),
        ({"url": ""}, "calls itself a router"),
    ],
)
def test_what_stands_in_the_way_is_said_on_one_line(behaviour: dict[str, Any], words: str) -> None:
    with pytest.raises(RouterError, match=words) as caught:
        opened(router := Router(**behaviour))
    assert caught.value.message.isprintable()
    assert router.open == {}
    assert router.ended == 1


def test_where_the_gateway_is_a_guess_whoever_answers_is_the_router() -> None:
    guess = WayOut(gateway="192.168.1.254", local="192.168.1.5", guessed=True)
    assert opened(Router(), guess).port == 8701


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "miniupnpc", None)
    with pytest.raises(RouterError, match="miniupnpc is not installed"):
        Apart("127.0.0.1")


def test_a_router_that_never_ends_its_answer_keeps_nobody() -> None:
    stuck = threading.Event()

    async def main() -> None:
        with pytest.raises(RouterError, match="too long"):
            await in_thread(stuck.wait, 0.01)

    asyncio.run(main())  # the loop closes, and the thread still hangs
    stuck.set()


def test_the_process_that_asks_is_the_librarys_and_ends_when_it_is_told_to() -> None:
    device = Apart("127.0.0.1")
    with pytest.raises(Refused):  # nothing was looked for yet
        device.externalipaddress()
    asking = threading.Thread(target=lambda: failures.append(_failure(device.discover)))
    failures: list[str] = []
    asking.start()
    device.end()  # while it looks, or has looked in vain
    asking.join()
    assert len(failures) == 1
    assert "its end" in _failure(device.selectigd)
    device.end()


def _failure(call: Callable[[], object]) -> str:
    try:
        return f"no failure: {call()}"
    except (RouterError, Refused) as error:
        return str(error)


def test_what_answers_without_end_is_stopped_before_it_fills_the_memory() -> None:
    """In place of the library a program that takes all it can get."""
    greedy = "import sys; sys.path.insert(0, sys.argv[1]); import igd; igd.bound(); bytes(1 << 30)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", greedy, str(PROGRAM.parent)], capture_output=True, timeout=60
    )
    assert done.returncode == 1
    assert b"MemoryError" in done.stderr


def test_one_that_is_found_too_late_is_ended() -> None:
    stuck, made = threading.Event(), Router()

    def device(local: str) -> Router:
        stuck.wait()
        return made

    async def main() -> None:
        way = Upnp(OUT, 8701, other_ports=lambda: 0, device=device, patience_s=0.01)
        with pytest.raises(RouterError, match="too long"):
            await way.open(8701, 3600)
        stuck.set()
        while not made.ended:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_what_is_called_off_is_forgotten() -> None:
    stuck = threading.Event()

    def device(local: str) -> Router:
        stuck.wait()
        raise RouterError("nobody hears this")

    async def main() -> None:
        way = Upnp(OUT, 8701, other_ports=lambda: 0, device=device)
        way.look()
        await asyncio.sleep(0)
        way.forget()
        way.forget()
        way.look()  # and this one fails while nobody listens
        stuck.set()
        with pytest.raises(RouterError, match="nobody hears"):
            await way.open(8701, 3600)

    asyncio.run(main())
