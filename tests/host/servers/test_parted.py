"""Several servers are one: same changes, same numbers to the bit, all of an update or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import LocalSteps, UnitId, Version, VolunteerId
from crowdgrad.errors import PeerError
from crowdgrad.host.parameters import Parameters, Saved
from crowdgrad.host.servers.cut import cut
from crowdgrad.net.messages import Push
from crowdgrad.numerics.rules import RULES, SGD, Adam, DelayCompensated, NAdam, Rule, rule_from
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.base import Serving, local_rule
from tests.host.servers.specs import spec_of, specs
from tests.host.servers.town import (
    BEGIN,
    SERVING,
    Town,
    Volunteer,
    alone,
    begins,
    gradient,
    in_town,
    same,
    saved,
)

SPEC = spec_of([(300,), (40, 5)])
WHO = ("ada", "ben", "cleo")


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_told_to_a_server_as_it_is(name: str) -> None:
    rule = RULES[name]()
    told = local_rule(rule)
    assert rule_from(told.name, told.settings) == rule


@settings(max_examples=25, deadline=None)
@given(
    spec=specs(largest=200),
    servers=st.integers(1, 4),
    rule=st.sampled_from([SGD(), Adam(), NAdam(), RULES["adagrad"](), RULES["momentum"]()]),
    serving=st.builds(
        Serving,
        rate=st.just(0.1),
        local_rate=st.just(0.1),
        patience=st.sampled_from([0.0, 2.0]),
        decay=st.sampled_from([0.0, 1e-2]),
    ),
    data=st.data(),
)
def test_whatever_comes_in_whatever_order_they_are_as_one(
    spec: ProgramSpec, servers: int, rule: Rule, serving: Serving, data: st.DataObject
) -> None:
    if spec.size <= 2 * (servers - 1):
        return

    async def test(town: Town) -> None:
        one, people = alone(town), [await town.volunteer(name) for name in WHO]
        saves: list[tuple[asyncio.Task[Saved], Saved]] = []
        for turn in range(data.draw(st.integers(1, 4))):
            updates = {n: gradient(spec, 10 * turn + n) for n in range(len(people))}
            bad = data.draw(st.sets(st.integers(0, 2), max_size=1))
            for n in bad:
                updates[n][data.draw(st.integers(0, spec.size - 1))] = np.nan
            parts = [(n, k) for n in range(len(people)) for k in range(servers)]
            bases = {n: one.version for n in range(len(people))}
            for n, k in data.draw(st.permutations(parts)):
                push = Push(unit=UnitId(turn), granted=bases[n])
                await people[n].push_to(k, push, updates[n])
            for n in data.draw(st.permutations(range(len(people)))):
                arrival = await town.receive(WHO[n], turn, bases[n])
                wanted = data.draw(st.booleans())
                if await town.parameters.acceptable(arrival) and wanted:
                    for held in (town.parameters, one):
                        await held.apply(  # type: ignore[attr-defined]
                            arrival if held is not one else updates[n],
                            bases[n],
                            rate=0.1,
                            batches=2,
                            under_way=n,
                        )
                town.parameters.let_go(arrival)
                assert (n in bad) == (not arrival.sound)
                if data.draw(st.booleans()):
                    saves.append((town.begin(saved(town.parameters)), await saved(one)))
                    await asyncio.sleep(0)
        found = await asyncio.gather(*(task for task, _ in saves))
        for kept, (_, expected) in zip(found, saves, strict=True):
            same(kept, expected)
        same(await saved(town.parameters), await saved(one))
        assert (await town.parameters.copy())[0].tobytes() == (await one.copy())[0].tobytes()
        versions, state = await people[0].pull(since=one.version)
        assert versions == [one.version] * servers
        assert state.tobytes() == (await one.copy())[0].tobytes()

    in_town(spec, servers, test, rule=rule, serving=serving)


@settings(max_examples=10, deadline=None)
@given(spec=specs(largest=100), servers=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_round_is_one_step_on_all(spec: ProgramSpec, servers: int, seed: int) -> None:
    if spec.size <= 2 * (servers - 1):
        return

    async def test(town: Town) -> None:
        one, people = alone(town), [await town.volunteer(name) for name in WHO]
        for turn in range(2):
            base = one.version
            for n, person in enumerate(people):
                update = gradient(spec, seed + 10 * turn + n)
                await person.push(turn, update)
                arrival = await town.receive(WHO[n], turn)
                counts = {"samples": 3 + n, "batches": 1}
                assert await town.parameters.merge(arrival, base, **counts)
                await one.merge(update, base, **counts)
                town.parameters.let_go(arrival)
            for held in (town.parameters, one):
                await held.apply_merged(rate=0.2)  # type: ignore[attr-defined]
            same(await saved(town.parameters), await saved(one))
        before = town.parameters.version
        await town.parameters.apply_merged(rate=0.2)  # nothing was merged
        assert town.parameters.version == before

    in_town(spec, servers, test, rule=Adam())


@pytest.mark.parametrize("codec", ["fp16", "bf16"])
def test_parts_travel_in_half_precision(codec: str) -> None:
    local = LocalSteps(batch_size=1, codec=codec)  # type: ignore[arg-type]
    counter = TensorSpec(name="n", dtype="int64", shape=(1,))
    spec = spec_of([(101,), (40,)], buffers=(counter,))

    async def test(town: Town) -> None:
        one, ada = alone(town), await town.volunteer("ada")
        parts = town.parameters.crew.parts
        update = gradient(spec, 1)
        payload = memoryview(bytearray(one.update_bytes))
        one._packing.encode(update, payload)
        answers = []
        for number, part in enumerate(parts):
            size = part.spec.size
            start, stop = 2 * part.start, 2 * (part.start + size)
            tail = b"" if number < len(parts) - 1 else bytes(payload[stop:])
            ada.part_of = lambda n, u, p=bytes(payload[start:stop]) + tail: p  # type: ignore
            push = Push(unit=UnitId(0), granted=BEGIN)
            answers.append(await ada.push_to(number, push, update))
        arrival = await town.receive("ada", 0)
        await town.parameters.apply(arrival, BEGIN, rate=0.5)
        vector = await one.received(VolunteerId("ada"), None, payload)
        assert vector is not None
        await one.apply(vector, BEGIN, rate=0.5)
        one.let_go(vector)
        same(await saved(town.parameters), await saved(one))
        pulled = b"".join([bytes((await answer)[1]) for answer in answers])
        async with one.published() as snapshot:
            assert pulled == bytes(snapshot.payload)

    in_town(spec, 2, test, local=local)


def test_large_parts_are_worked_on_beside_and_still_in_order() -> None:
    spec = spec_of([(620_000,)])

    async def test(town: Town) -> None:
        one, people = alone(town), [await town.volunteer(name) for name in WHO]
        keeping = []
        for turn in range(2):
            updates, base = [gradient(spec, 3 * turn + n) for n in range(3)], one.version
            for person, update in zip(people, updates, strict=True):
                await person.push(turn, update, base)
            for name, update in zip(WHO, updates, strict=True):
                arrival = await town.receive(name, turn, base)
                await town.parameters.apply(arrival, base, rate=0.1)
                keeping.append(town.begin(saved(town.parameters)))
                await asyncio.sleep(0)  # it is asked for now, while others are under way
                await one.apply(update, base, rate=0.1)
                keeping.append(town.begin(saved(one)))
                await asyncio.sleep(0.5)
        found = await asyncio.gather(*keeping)
        for kept, expected in zip(found[::2], found[1::2], strict=True):
            same(kept, expected)

    in_town(spec, 2, test, rule=RULES["momentum"]())


# -- what a unit started from ---------------------------------------------------------------------


def test_delay_compensation_knows_what_each_part_started_from() -> None:
    async def test(town: Town) -> None:
        ada, ben = await town.volunteer("ada"), await town.volunteer("ben")
        one = alone(town)
        async with one.published() as snapshot:
            await one.hold(snapshot)
        versions, _ = await ada.pull()
        assert versions == [BEGIN, BEGIN]
        await ben.pull()
        for n, (name, person) in enumerate((("ben", ben), ("ada", ada))):
            update = gradient(SPEC, n)
            said = Push(unit=UnitId(n), granted=BEGIN, base=BEGIN)
            for server in range(2):
                await person.push_to(server, said, update)
            arrival = await town.receive(name, n, BEGIN)
            await town.parameters.apply(arrival, BEGIN, rate=0.1)
            await one.apply(update, BEGIN, rate=0.1)
        same(await saved(town.parameters), await saved(one))

    in_town(SPEC, 2, test, rule=DelayCompensated())


def test_what_is_not_held_any_more_counts_as_not_late() -> None:
    async def test(town: Town) -> None:
        ada, one = await town.volunteer("ada"), alone(town)
        update: Vector = gradient(SPEC, 1)
        await ada.push(0, update)  # it says nothing of where it started
        arrival = await town.receive("ada", 0)
        await town.parameters.apply(arrival, BEGIN, rate=0.1)
        plain = Parameters(begins(SPEC), SGD(), BEGIN, SERVING, SPEC)
        await plain.apply(update, BEGIN, rate=0.1)
        assert (await town.parameters.copy())[0].tobytes() == (await plain.copy())[0].tobytes()
        del one

    in_town(SPEC, 2, test, rule=DelayCompensated())


def test_a_checkpoint_fits_any_number_of_servers() -> None:
    kept: list[Saved] = []

    async def make(town: Town) -> None:
        ada = await town.volunteer("ada")
        await ada.push(0, gradient(SPEC, 1))
        await town.parameters.apply(await town.receive("ada", 0), BEGIN, rate=0.1)
        kept.append(await saved(town.parameters))

    async def take(town: Town) -> None:
        await town.parameters.go_back(kept[0], kept[0].version)
        same(await saved(town.parameters), kept[0])

    in_town(SPEC, 3, make, rule=Adam())
    for servers in (1, 2, 5):
        in_town(SPEC, servers, take, rule=Adam())
    assert len(cut(SPEC, 5)) == 5


def test_who_needs_a_version_gets_it_though_others_get_an_older_one() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        await ada.pull()
        for unit in range(3):
            await ada.push(unit, gradient(SPEC, unit), BEGIN)
            await town.parameters.apply(await town.receive("ada", unit, BEGIN), BEGIN, rate=0.1)
        now = town.parameters.version
        waiting = town.begin(ada.pull(since=now.next()))
        assert (await ada.pull())[0] == [BEGIN, BEGIN]  # every fifth is published
        assert (await ada.pull(since=now))[0] == [now, now]
        assert not waiting.done()
        await ada.push(3, gradient(SPEC, 3), BEGIN)
        await town.parameters.apply(await town.receive("ada", 3, BEGIN), BEGIN, rate=0.1)
        assert (await waiting)[0] == [now.next(), now.next()]

    serving = replace(SERVING, publish_every=5)
    in_town(SPEC, 2, test, serving=serving)


def test_nobody_hears_of_a_version_that_has_not_begun() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        push = Push(unit=UnitId(0), granted=Version(incarnation=7, count=0))
        with pytest.raises(PeerError, match=r"no version 7\.0"):
            await (await ada.push_to(0, push, gradient(SPEC, 1)))

    in_town(SPEC, 2, test)


def test_what_was_pushed_before_is_not_answered_on_another_connection() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        await ada.push(0, gradient(SPEC, 1))
        await asyncio.sleep(0.1)
        ada.go()
        back = await Volunteer.enter(town, "ada")  # the host has not noticed anything yet
        again = await back.push(0, gradient(SPEC, 1))
        await asyncio.sleep(0.1)  # what it pushed first is refused by now
        await town.parameters.apply(await town.receive("ada", 0), BEGIN, rate=0.1)
        assert [(await answer)[0].base for answer in again] == [BEGIN.next()] * 2
        assert (await back.pull())[0] == [BEGIN.next()] * 2

    in_town(SPEC, 2, test)


def test_units_are_granted_from_what_is_published() -> None:
    async def test(town: Town) -> None:
        ada, one = await town.volunteer("ada"), alone(town)
        for unit in range(7):
            async with one.published() as here, town.parameters.published() as there:
                assert there.version == here.version
            assert (await ada.pull())[0] == [there.version] * 2
            update, now = gradient(SPEC, unit), one.version
            await ada.push(unit, update)
            await town.parameters.apply(await town.receive("ada", unit), now, rate=0.1)
            await one.apply(update, now, rate=0.1)
            await asyncio.sleep(0.1)

    in_town(SPEC, 2, test, serving=replace(SERVING, publish_every=3))
