"""Two laptops on one link find each other, and a machine without a network says so once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from crowdgrad.domain.routes import Route
from crowdgrad.errors import NoNeighbours
from crowdgrad.net import lan
from crowdgrad.net.lan import SERVICE, Watcher, announce, look
from crowdgrad.net.nearby import Nearby, Place
from tests.namespaces import Machine, Net, needs_namespaces

KEY = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
WAIT_S = 30.0


async def until(watcher: Watcher, keys: set[str]) -> dict[str, Nearby]:
    async with asyncio.timeout(WAIT_S):
        while {found.key for found in watcher.nearby} != keys:
            await watcher.changed.wait()
            watcher.changed.clear()
    return {found.key: found for found in watcher.nearby}


def test_our_own_addresses_are_known() -> None:
    assert "127.0.0.1" in {place.address for place in lan.places()}
    assert not any(place.loopback for place in lan.networks())


def test_a_machine_without_a_network_says_so_once_and_goes_on() -> None:
    told: list[NoNeighbours] = []
    heard = asyncio.Event()

    def tell(error: NoNeighbours) -> None:
        told.append(error)
        heard.set()

    looks = 0
    enough = asyncio.Event()

    def nowhere() -> tuple[Place, ...]:
        nonlocal looks
        looks += 1
        if looks == 10:
            enough.set()
        return ()

    async def main() -> None:
        async with Watcher(tell=tell, here=nowhere, look_s=0.001) as watcher:
            async with asyncio.timeout(WAIT_S):
                await heard.wait()
                await enough.wait()
            assert watcher.nearby == ()
        assert await look(0.01, tell=tell, here=nowhere) == []

    asyncio.run(main())
    assert len(told) == 2  # each of the two said it once
    assert "no network" in told[0].message
    assert "HOST:PORT" in told[0].advice


def test_an_interface_that_is_not_there_is_no_reason_to_fail() -> None:
    told: list[NoNeighbours] = []

    async def main() -> None:
        async with announce(
            port=8701, key=KEY, job="j", title="t", tell=told.append, host="192.0.2.77",
            here=lambda: (Place(address="192.0.2.77", prefix=24, interface=77),),
        ) as settled, asyncio.timeout(WAIT_S):  # fmt: skip
            await settled.wait()

    asyncio.run(main())
    assert len(told) == 1


def test_nonsense_is_not_announced() -> None:
    async def main() -> None:
        async with announce(port=8701, key="short", job="j", title="t"):
            pytest.fail("it was")

    with pytest.raises(ValueError, match="64 digits"):
        asyncio.run(main())


def laptop(machine: Machine, key: str, look_s: float = 5.0) -> subprocess.Popen[str]:
    return machine.popen(
        ["python", "tests/net/laptop.py", key, "job-2", "Theirs", "8702", str(look_s)],
        stdin=subprocess.PIPE,
    )


@needs_namespaces
def test_two_laptops_on_one_link_find_each_other_and_notice_who_leaves(tmp_path: Path) -> None:
    async def ours() -> None:
        async with (
            announce(port=8701, key=KEY, job="job-1", title="Digits", cause="fun", host="::"),
            Watcher() as watcher,
        ):
            found = await until(watcher, {KEY, OTHER})
            assert found[KEY].cause == "fun"  # we hear ourselves, too
            assert found[OTHER].title == "Theirs"
            first, second = found[OTHER].routes
            assert first == Route(host="10.77.0.3", port=8702)
            assert second.host.startswith("fe80:")  # of IPv6, which only this link knows
            assert dials(first)
            assert dials(second)
            assert child.stdout is not None
            line = await asyncio.to_thread(child.stdout.readline)
            assert line.split() == [KEY, "job-1", "10.77.0.2:8701"]
            assert child.stdin is not None
            child.stdin.close()
            await until(watcher, {KEY})

    with Net(tmp_path) as net:
        child = laptop(net.add("theirs", "10.77.0.3"), OTHER)
        with net.add("ours", "10.77.0.2").inside():
            asyncio.run(ours())
        assert child.wait(WAIT_S) == 0


@needs_namespaces
def test_a_host_that_gets_another_address_is_found_there(tmp_path: Path) -> None:
    async def watch() -> None:
        async with Watcher() as watcher:
            await until(watcher, {OTHER})
            await asyncio.to_thread(theirs.readdress, "10.77.0.9")
            async with asyncio.timeout(WAIT_S):
                while "10.77.0.9" not in hosts(watcher):
                    await watcher.changed.wait()
                    watcher.changed.clear()

    def hosts(watcher: Watcher) -> list[str]:
        return [route.host for found in watcher.nearby for route in found.routes]

    with Net(tmp_path) as net:
        theirs = net.add("theirs", "10.77.0.3")
        laptop(theirs, OTHER, look_s=0.1)
        with net.add("ours", "10.77.0.2").inside():
            asyncio.run(watch())


@needs_namespaces
def test_looking_ends_with_the_first_that_is_wanted(tmp_path: Path) -> None:
    with Net(tmp_path) as net:
        laptop(net.add("theirs", "10.77.0.3"), OTHER)
        with net.add("ours", "10.77.0.2").inside():
            found = asyncio.run(look(WAIT_S, until=lambda nearby: nearby.key == OTHER))
    assert [(nearby.key, nearby.job) for nearby in found] == [(OTHER, "job-2")]


@needs_namespaces
def test_a_stranger_who_floods_the_network_with_records_is_not_remembered_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lan, "MAX_NEARBY", 8)

    async def watch() -> None:
        async with Watcher() as watcher:
            await asyncio.to_thread(child.stdin.write, "go\n")  # type: ignore[union-attr]
            await asyncio.to_thread(child.stdin.flush)  # type: ignore[union-attr]
            async with asyncio.timeout(WAIT_S):
                while len(watcher.nearby) < 8:
                    await watcher.changed.wait()
                    watcher.changed.clear()
                assert child.stdout is not None
                assert await asyncio.to_thread(child.stdout.readline) == "said\n"
            assert len(watcher.nearby) == 8

    with Net(tmp_path) as net:
        child = net.add("theirs", "10.77.0.3").popen(
            ["python", "tests/net/flood.py", "40"], stdin=subprocess.PIPE
        )
        with net.add("ours", "10.77.0.2").inside():
            asyncio.run(watch())


def test_records_of_no_use_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lan, "MAX_NEARBY", 4)
    added = SimpleNamespace(name="Added")

    async def useless(self: Watcher, zeroconf: object, name: str) -> bool:
        return True

    async def main() -> None:
        monkeypatch.setattr(Watcher, "_heard", useless)
        watcher = Watcher()
        for number in range(4):
            watcher._noticed(None, SERVICE, f"junk {number}", added)  # type: ignore[arg-type]
        watcher._noticed(None, SERVICE, "too early", added)  # type: ignore[arg-type]
        assert "too early" not in watcher._records, "those are still being asked"
        await asyncio.gather(*watcher._asking.values())
        watcher._noticed(None, SERVICE, "a host", added)  # type: ignore[arg-type]
        await asyncio.gather(*watcher._asking.values())
        assert len(watcher._records) == 4
        assert "a host" in watcher._records

    asyncio.run(main())


def dials(route: Route) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.create_connection((route.host, route.port), timeout=10),
    ):
        return True
    return False
