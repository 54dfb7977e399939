"""Copies of everything: averaging loses nothing, and what is kept is their mean."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import UnitId, Version, VolunteerId
from crowdgrad.host.servers.copies import CopiedParameters, mean_of, offset
from crowdgrad.net.messages import Push
from crowdgrad.numerics.layout import StateLayout, is_floating, trained_parts
from crowdgrad.numerics.rules import Momentum
from tests.host.servers.specs import spec_of, specs
from tests.host.servers.town import BEGIN, Town, Volunteer, begins, gradient, in_town

SPEC = spec_of([(40,)], buffers=(TensorSpec(name="n", dtype="int64", shape=(1,)),))


def filled(spec: ProgramSpec, seed: int) -> np.ndarray:
    """A state whose buffers are numbers of their types."""
    state, layout = begins(spec, seed), StateLayout(spec)
    for number, (_, values) in enumerate([*layout.buffers(state), *layout.fixed(state)]):
        values[...] = seed + number
    return state


@given(specs(largest=60), st.integers(1, 4))
def test_whoever_adds_its_offset_is_the_mean(spec: ProgramSpec, copies: int) -> None:
    layout = StateLayout(spec)
    states = [filled(spec, seed) for seed in range(copies)]
    mean = mean_of(layout, states)
    for state in states:
        moved, off = state.copy(), offset(layout, mean, state)
        moved[: spec.size] += off[: spec.size]
        np.testing.assert_allclose(moved[: spec.size], mean[: spec.size], atol=1e-5)
        parts = zip(layout.buffers(off), layout.buffers(mean), layout.buffers(state), strict=True)
        for (tensor, by), (_, middle), (_, ours) in parts:
            if is_floating(tensor):
                np.testing.assert_allclose(ours + by, middle, rtol=1e-6)
            else:
                assert not by.any()
    for (_, ours), (_, first) in zip(layout.fixed(mean), layout.fixed(states[0]), strict=True):
        assert np.array_equal(ours, first)


def test_volunteers_are_spread_over_the_copies_and_come_back_to_theirs() -> None:
    parameters = CopiedParameters(begins(SPEC), Momentum(), BEGIN, SPEC, 2, average_every=5)
    people = [VolunteerId(name) for name in "abcd"]
    for who in people:
        parameters.joined(who)
    assert [list(parameters.servers_of(who)) for who in people] == [[0], [1], [0], [1]]
    parameters.left(people[0])
    parameters.left(people[2])
    parameters.joined(VolunteerId("e"))
    assert list(parameters.servers_of(VolunteerId("e"))) == [0]
    parameters.joined(people[0])
    assert list(parameters.servers_of(people[0])) == [0]


async def send(town: Town, person: Volunteer, unit: int, update: np.ndarray) -> None:
    """One update from a volunteer to its copy, accepted."""
    (server,) = person.links
    version = town.parameters.version
    await person.push_to(server, Push(unit=UnitId(unit), granted=version, base=version), update)
    arrival = await town.receive(person.name, unit)
    assert arrival.sound
    assert await town.parameters.apply(arrival, version, rate=0.1) == 0
    town.parameters.let_go(arrival)


def test_copies_go_their_own_way_until_they_are_averaged() -> None:
    async def test(town: Town) -> None:
        ada, ben = await town.volunteer("ada"), await town.volunteer("ben")
        first, second = gradient(SPEC, 1), gradient(SPEC, 2)
        await send(town, ada, 0, first)
        await send(town, ben, 1, second)
        parameters = town.parameters
        assert isinstance(parameters, CopiedParameters)
        kept, version = await parameters.copy()
        assert version.count == 2
        size = SPEC.size
        mean = begins(SPEC)[:size] - 0.05 * (first + second)[:size]
        np.testing.assert_allclose(kept[:size], mean, atol=1e-6)
        (_, mine), (_, other) = await ada.pull(), await ben.pull()
        np.testing.assert_allclose(mine[:size], (begins(SPEC) - 0.1 * first)[:size], atol=1e-6)
        assert not np.allclose(mine[:size], other[:size])
        third = gradient(SPEC, 3)
        await send(town, ada, 2, third)  # the third one makes them average
        await asyncio.sleep(1.0)
        assert parameters.averagings == 1
        (_, mine), (_, other) = await ada.pull(), await ben.pull()
        np.testing.assert_allclose(mine[:size], other[:size], atol=1e-6)
        np.testing.assert_allclose(mine[:size], mean - 0.05 * third[:size], atol=1e-6)

    in_town(SPEC, 2, test, average_every=3)


def test_what_is_learned_while_they_are_averaged_is_not_lost() -> None:
    async def test(town: Town) -> None:
        ada, ben = await town.volunteer("ada"), await town.volunteer("ben")
        updates = [gradient(SPEC, seed) for seed in range(6)]
        for unit, update in enumerate(updates):  # each of them makes them average
            await send(town, (ada, ben)[unit % 2], unit, update)
        await asyncio.sleep(1.0)
        assert isinstance(town.parameters, CopiedParameters)
        assert town.parameters.averagings >= 2
        kept, _ = await town.parameters.copy()
        size = SPEC.size
        every = begins(SPEC)[:size] - 0.05 * sum(update[:size] for update in updates)
        np.testing.assert_allclose(kept[:size], every, atol=1e-5)

    in_town(SPEC, 2, test, average_every=1)


def test_all_copies_go_back_to_the_same() -> None:
    async def test(town: Town) -> None:
        ada, ben = await town.volunteer("ada"), await town.volunteer("ben")
        await send(town, ada, 0, gradient(SPEC, 1))
        saved, _ = await town.parameters.save(lambda: None)
        await send(town, ben, 1, gradient(SPEC, 2))
        version = Version(incarnation=1, count=1)
        await town.parameters.go_back(saved, version)
        for person in (ada, ben):
            (base,), state = await person.pull(since=Version(incarnation=1, count=9))
            assert base == version
            assert state.tobytes() == saved.vector.tobytes()
        assert saved.memory.steps == 1
        assert list(saved.memory.vectors) == list(Momentum.vectors)

    in_town(SPEC, 2, test, average_every=100, rule=Momentum())


def test_averaging_that_meets_a_setback_changes_nothing() -> None:
    async def test(town: Town) -> None:
        ada = await town.volunteer("ada")
        saved, _ = await town.parameters.save(lambda: None)
        await send(town, ada, 0, gradient(SPEC, 1))
        await asyncio.sleep(0)  # the copies are asked for
        version = Version(incarnation=1, count=0)
        await town.parameters.go_back(saved, version)
        await asyncio.sleep(1.0)
        assert isinstance(town.parameters, CopiedParameters)
        assert town.parameters.averagings == 0
        state, _ = await town.parameters.copy()
        assert state.tobytes() == saved.vector.tobytes()

    in_town(SPEC, 2, test, average_every=1)


def test_what_is_frozen_is_not_averaged() -> None:
    """The mean of a number with itself is not always that number."""
    spec = spec_of([(5000,), (31,)], frozen=("w0",))
    layout, state = StateLayout(spec), begins(spec)
    for copies in (3, 5, 6, 7):
        mean = mean_of(layout, [state] * copies, trained_parts(spec))
        assert mean[:5000].tobytes() == state[:5000].tobytes()
