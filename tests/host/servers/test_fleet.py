"""Keeping servers at hand: what is begun again, what is given up, and what nobody waits for."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.domain.work import Version
from crowdgrad.errors import PeerError
from crowdgrad.host.servers.fleet import Elsewhere
from crowdgrad.host.servers.link import take_charge
from crowdgrad.numerics.rules import Adam
from tests.host.servers.specs import spec_of
from tests.host.servers.town import BEGIN, JOB, SECRET, Town, begins, gradient, in_town
from tests.virtual_time import run_virtual

SPEC = spec_of([(300,), (40, 5)])


def test_after_the_fleet_has_stopped_nobody_waits_for_a_copy() -> None:
    async def test(town: Town) -> None:
        link = town.parameters.crew._links[0]
        assert link is not None
        await town.fleet.stop()
        assert town.parameters.away
        for asked in (town.parameters.copy(), town.parameters.save(lambda: None)):
            with pytest.raises(PeerError):
                await asked
        with pytest.raises(PeerError, match="gone"):
            await link.save()

    in_town(SPEC, 2, test)


def test_a_server_that_nobody_looks_after_any_more_is_away() -> None:
    async def test(town: Town) -> None:
        def staged(server: int, said: object) -> None:
            raise RuntimeError("a mistake of ours")

        town.fleet._staged = staged
        ada = await town.volunteer("ada")
        await ada.push(0, gradient(SPEC, 1))
        await asyncio.sleep(0.1)
        assert town.lost
        with pytest.raises(PeerError):
            await town.parameters.copy()

    in_town(SPEC, 2, test)


def test_before_any_server_is_there_a_copy_is_what_they_will_be_given() -> None:
    async def main() -> None:
        town = Town(SPEC, 2, rule=Adam())
        version = Version(incarnation=3, count=7)
        before = town.parameters.anew(begins(SPEC, seed=5), BEGIN)
        await town.parameters.go_back(before, version)
        kept, beside = await town.parameters.save(lambda: "beside")
        assert (kept.version, beside) == (version, "beside")
        assert kept.vector.tobytes() == before.vector.tobytes()
        kept.vector[:] = 0  # it is the caller's own
        copy, said = await town.parameters.copy()
        assert (copy.tobytes(), said) == (before.vector.tobytes(), version)
        await town.open()
        try:
            assert (await town.parameters.copy())[0].tobytes() == before.vector.tobytes()
        finally:
            await town.close()

    run_virtual(main())


def test_one_of_ours_that_does_not_answer_is_ended() -> None:
    ended: list[str] = []

    class Stuck(Elsewhere):
        @property
        def stuck(self) -> bool:
            return not ended

        def end(self) -> None:
            ended.append(self.address)

    async def test(town: Town) -> None:
        town.fleet._posts = [Stuck("server:1"), Elsewhere("server:2")]
        await town.stop_server(0)
        await asyncio.sleep(6.0)
        assert ended == ["server:1"]
        town.fleet._posts = [Elsewhere("server:1"), Elsewhere("server:2")]

    in_town(SPEC, 2, test)


def test_a_host_whose_server_was_taken_by_another_gives_up() -> None:
    """Two that take it from each other again and again would both get nothing done."""

    async def test(town: Town) -> None:
        other = await town.network.connect("server", 1)
        equip = town._equip(town.parameters.crew.parts[0].spec)
        await take_charge(other, SECRET, JOB, equip, software="another host", vectors=0)
        await asyncio.sleep(6.0)
        assert town.lost == ["another host has taken charge of parameter server 1"]
        assert town.parameters.away

    in_town(SPEC, 2, test)
