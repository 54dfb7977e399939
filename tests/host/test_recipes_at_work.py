"""What each recipe makes the host do, worked out by hand; volunteers are scripted."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdgrad.domain.work import Version
from crowdgrad.host.allocation import INLINE_BYTES
from crowdgrad.numerics.rules import SGD
from crowdgrad.numerics.schedules import Schedule
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.averaging import WeightAveraging
from crowdgrad.recipes.base import Penalty
from crowdgrad.recipes.crowd import Crowd
from crowdgrad.recipes.dc_asgd import DCASGD
from crowdgrad.recipes.downpour import Downpour
from crowdgrad.recipes.synchronous import Synchronous
from tests.host import small
from tests.host.people import D, Person, gradient_of, plain_manifest, run, stage, weights

# -- Downpour ---------------------------------------------------------------------------------


def test_downpour_with_push_4_and_fetch_8_is_its_sequential_transcription() -> None:
    """Two volunteers take turns; each fetches every eighth batch and pushes every fourth."""
    recipe = Downpour(
        lr=0.1, local_lr=0.05, batch_size=10, push_every=4, fetch_every=8, overlap=0, rule=SGD()
    )
    turns = [0, 1, 0, 0, 1, 1, 0, 1]  # who pushes next

    async def ours() -> NDArray[np.float64]:
        training, people = stage(recipe, 2)
        for person in people:
            await person.ask()
        for who in turns:
            assert await people[who].push() == "accepted"
            granted = await people[who].ask()
            if who == turns[-1] and granted is None:
                break
        assert training.parameters.version.count == len(turns)
        return await weights(training)

    def transcription() -> NDArray[np.float64]:
        w = np.zeros(D)
        replica = {0: w.copy(), 1: w.copy()}
        pushes = {0: 0, 1: 0}
        unit = {0: 0, 1: 1}  # the first two units, given out before anything is pushed
        following = 2
        for who in turns:
            total = np.zeros(D)
            for k in range(4 * unit[who], 4 * unit[who] + 4):
                g = gradient_of(k, replica[who])
                total += g
                replica[who] = replica[who] - 0.05 * g
            w = w - 0.1 * total
            pushes[who] += 1
            unit[who], following = following, following + 1
            if pushes[who] % 2 == 0:  # eight batches since the last fetch
                replica[who] = w.copy()
        return w

    found = asyncio.run(ours())
    assert np.linalg.norm(found) > 0.1
    np.testing.assert_allclose(found, transcription(), rtol=1e-5, atol=1e-6)


def test_a_chain_goes_on_only_after_its_own_accepted_unit() -> None:
    async def scenario() -> None:
        recipe = Downpour(batch_size=10, push_every=2, fetch_every=6, overlap=0)
        training, (ada,) = stage(recipe, 1)
        links = []
        for _ in range(5):
            granted = await ada.ask()
            assert granted is not None
            links.append((granted.link, granted.base.count))
            await ada.push()
        assert links == [(0, 0), (1, 0), (2, 0), (0, 3), (1, 3)]
        ada.after = None  # its trainer died and it asks without an update
        granted = await ada.ask()
        assert granted is not None
        assert granted.link == 0
        assert granted.base.count == training.parameters.version.count == 5

    run(scenario)


def test_one_volunteer_warms_up_alone_and_another_takes_over() -> None:
    async def scenario() -> None:
        recipe = Downpour(batch_size=10, push_every=2, fetch_every=2, warm_start_batches=6)
        training, (ada, ben) = stage(recipe, 2)
        await ada.step()
        assert await ben.ask() is None
        assert "warm start: one volunteer trains alone for the first 6 batches" in ben.reason
        training.leave(ada.account.volunteer.id, "gone")
        await ben.step()
        await ben.step()
        training.join(0.0, small.volunteer("v0"), own=False)
        assert await ada.ask() is not None, ada.reason

    run(scenario)


# -- rounds -----------------------------------------------------------------------------------


def test_a_round_is_one_step_with_the_sample_weighted_mean() -> None:
    async def scenario() -> None:
        recipe = Synchronous(lr=0.5, batch_size=10)
        training, (ada, ben) = stage(recipe, 2, plain_manifest(25, 20))
        granted = [await ada.ask(), await ben.ask()]
        units = [g.unit for g in granted if g is not None]
        samples = [training.book.samples(unit) for unit in units]
        assert samples[0] != samples[1]
        assert await ada.push() == "accepted"
        assert training.parameters.version.count == 0
        assert await ada.ask() is None
        assert ada.reason == "waiting for the others of this round"
        assert ada.account.units == 0, "what is not in the parameters is not credited"
        assert await ben.push() == "accepted"
        assert training.parameters.version.count == 1
        gradients = [gradient_of(unit.first_batch, np.zeros(D)) for unit in units]
        mean = np.average(gradients, axis=0, weights=samples)
        np.testing.assert_allclose(await weights(training), -0.5 * mean, rtol=1e-6)
        assert (ada.account.units, ben.account.units) == (1, 1)
        assert dict(training.state.staleness) == {0: 2}

    run(scenario)


def test_a_quorum_waits_a_moment_and_what_comes_later_is_trained_on_again() -> None:
    async def scenario() -> None:
        recipe = Synchronous(lr=0.5, batch_size=10, quorum=0.5, grace_s=2.0)
        training, people = stage(recipe, 4)
        for person in people:
            await person.ask(0.0)
        assert await people[0].push(1.0) == "accepted"
        await training.tick(5.0)
        assert training.parameters.version.count == 0, "one of four is no quorum"
        assert await people[1].push(6.0) == "accepted"
        await training.tick(7.9)
        assert training.parameters.version.count == 0, "the others still have a moment"
        late = people[2].granted
        assert late is not None
        await training.tick(8.0)
        assert training.parameters.version.count == 1
        assert await people[2].push(8.5) == "too_late"
        assert (people[2].account.ignored, people[2].account.refused) == (1, {})
        again = await people[0].ask(9.0)
        assert again is not None
        assert again.unit == late.unit

    run(scenario)


def test_backup_volunteers_are_not_waited_for() -> None:
    async def scenario() -> None:
        training, people = stage(Synchronous(batch_size=10, backup=1), 3)
        for person in people:
            await person.ask()
        await people[0].push()
        assert training.parameters.version.count == 0
        await people[1].push()
        assert training.parameters.version.count == 1

    run(scenario)


def test_nobody_waits_for_someone_who_left_or_whose_lease_ran_out() -> None:
    async def scenario() -> None:
        training, people = stage(Synchronous(batch_size=10), 3)
        for person in people:
            await person.ask(0.0)
        await people[0].push(1.0)
        training.leave(people[1].account.volunteer.id, "laptop closed")
        await training.tick(2.0)
        assert training.parameters.version.count == 0
        for now in range(3, int(small.LEASE_S) + 3):
            await training.tick(float(now))
        assert training.parameters.version.count == 1

    run(scenario)


def test_synchronous_training_ends_although_there_are_more_people_than_units() -> None:
    async def scenario() -> None:
        training, people = stage(Synchronous(batch_size=10), 4, plain_manifest(25, 20), epochs=1)
        for now in range(6):
            for person in people:
                if await person.ask(float(now)):
                    await person.push(float(now))
            await training.tick(float(now))
        assert training.course.ending is not None, training.turns._round
        assert training.course.ending.state == "finished"
        assert training.ledger.total_updates == 5
        assert training.parameters.version.count == 2

    run(scenario)


# -- staleness, delay compensation, averaging -------------------------------------------------


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("publish_every", [1, 3])
def test_dc_asgd_corrects_a_late_gradient_as_its_formula_says(
    half: bool, publish_every: int
) -> None:
    async def scenario() -> None:
        recipe = DCASGD(
            lr=0.1, batch_size=10, mode="constant", strength=0.5, overlap=0,
            half_backups=half, publish_every=publish_every,
        )  # fmt: skip
        training, (slow, fast) = stage(recipe, 2)
        await fast.step()
        granted = await slow.ask()
        assert granted is not None
        start = slow.parameters.astype(np.float64)
        for _ in range(5):
            await fast.step()
        before = await weights(training)
        assert training.parameters.backup_bytes > 0
        await slow.push()
        g = gradient_of(granted.unit.first_batch, start)
        expected = before - 0.1 * (g + 0.5 * g * g * (before - start))
        np.testing.assert_allclose(await weights(training), expected, rtol=2e-5 if half else 1e-6)
        assert max(training.state.staleness) == (5 if publish_every == 1 else 6)

    run(scenario)


def test_backups_are_shared_and_let_go() -> None:
    async def scenario() -> None:
        recipe = DCASGD(batch_size=10, overlap=0, publish_every=2)
        training, people = stage(recipe, 4)
        for person in people:
            await person.ask()
        assert training.parameters.backup_bytes == 4 * D, "all pulled the same version"
        await people[0].push()
        await people[0].ask()
        assert training.parameters.backup_bytes == 4 * D, "published every second version"
        await people[1].push()
        await people[1].ask()
        assert training.parameters.backup_bytes == 8 * D
        for person in people:
            await person.push()
        assert training.parameters.backup_bytes == 0

    run(scenario)


def test_staleness_lowers_the_rate_and_too_old_updates_are_ignored() -> None:
    async def scenario() -> None:
        recipe = AsyncSGD(lr=0.1, batch_size=10, overlap=0, patience=2.0, max_staleness=8)
        training, (slow, older, fast) = stage(recipe, 3)
        granted = await slow.ask()
        await older.ask()
        assert granted is not None
        for _ in range(8):
            await fast.step()
        before = await weights(training)
        assert await slow.push() == "accepted"
        g = gradient_of(granted.unit.first_batch, np.zeros(D))
        np.testing.assert_allclose(await weights(training), before - 0.1 * 2 / 8 * g, rtol=1e-5)
        late = older.granted
        assert await older.push() == "too_old"
        assert (older.account.ignored, older.account.units) == (1, 0)
        again = await fast.ask()
        assert again is not None
        assert late is not None
        assert again.unit == late.unit

    run(scenario)


def test_averaging_takes_the_mean_with_the_received_weights() -> None:
    async def scenario() -> None:
        recipe = WeightAveraging(lr=0.2, batch_size=10, batches_per_unit=2, overlap=0)
        training, (ada, ben) = stage(recipe, 2)
        for person in (ada, ben):
            await person.ask()
        w = np.zeros(D)
        for person in (ada, ben):
            assert person.granted is not None
            first, local = person.granted.unit.first_batch, np.zeros(D)
            for k in (first, first + 1):
                local = local - 0.2 * gradient_of(k, local)
            w = (w + local) / 2
            await person.push()
            np.testing.assert_allclose(await weights(training), w, rtol=1e-5)

    run(scenario)


# -- sizes, schedules, start ------------------------------------------------------------------


def test_units_are_matched_to_speed_not_to_the_link() -> None:
    async def scenario() -> None:
        training, (quick, slow) = stage(AsyncSGD(batch_size=10, batches_per_unit=8, overlap=0), 2)
        for person, seconds in ((quick, 1.0), (slow, 4.0)):
            await person.ask(0.0)
            await person.push(39.0, batch_s=seconds)  # both are far away
        await training.tick(40.0)
        sizes = {}
        for person in (quick, slow):
            granted = await person.ask(40.0)
            assert granted is not None
            sizes[person.account.volunteer.name] = granted.unit.batches
        assert sizes == {"v0": 8, "v1": 2}

    run(scenario)


def test_the_default_sends_every_gradient_on_the_same_machine_only() -> None:
    async def scenario() -> None:
        training, (far,) = stage(Crowd(batch_size=10), 1)
        near = training.join(0.0, small.volunteer("near"), own=False, near=True)
        for account, batches in ((far.account, 4), (near, 1)):
            granted, _ = training.lease(0.0, account, (), training.parameters.version)
            assert granted is not None
            assert granted.unit.batches == batches

    run(scenario)


def test_nobody_begins_before_the_whole_roster_is_here() -> None:
    async def scenario() -> None:
        training, (ada,) = stage(AsyncSGD(batch_size=10), 1, wait_for=2)
        own = training.join(0.0, small.volunteer("own"), own=True)
        assert await ada.ask() is None
        assert ada.reason == "it begins when one more is ready"
        assert training.lease(0.0, own, (), training.parameters.version)[0] is None
        assert training.course.started_at is None
        ben = training.join(0.0, small.volunteer("ben"), own=False)
        assert await ada.ask() is None, "ben has connected but is not ready"
        assert training.lease(0.0, ben, (), training.parameters.version)[0] is not None
        assert await ada.ask() is not None
        training.leave(ben.volunteer.id, "gone")
        await ada.push()
        assert await ada.ask() is not None, "once begun, nobody is waited for"

    run(scenario)


def test_the_rate_follows_the_schedule_and_reaches_volunteers() -> None:
    async def scenario() -> None:
        recipe = AsyncSGD(
            lr=0.4, batch_size=10, overlap=0, schedule=Schedule(shape="step", step_every=1.0)
        )
        training, (ada,) = stage(recipe, 1, plain_manifest(20), epochs=3)
        rates = []
        for _ in range(6):
            granted = await ada.ask()
            assert granted is not None
            rates.append((granted.rate, training.state.rate))
            await ada.push()
        np.testing.assert_allclose([r for r, _ in rates], [0.4, 0.4, 0.04, 0.04, 0.004, 0.004])
        np.testing.assert_allclose([r for _, r in rates], [r for r, _ in rates])

    run(scenario)


def test_the_rate_grows_with_those_at_work() -> None:
    async def scenario() -> None:
        recipe = Synchronous(
            lr=0.1, batch_size=10, schedule=Schedule(scale_with_volunteers=True, warmup_epochs=1)
        )
        training, people = stage(recipe, 4, plain_manifest(80), epochs=2)
        assert training.state.rate == pytest.approx(0.1)
        for _ in range(2):
            for person in people:
                await person.ask()
            for person in people:
                await person.push()
        assert training.book.epochs_done == 1.0
        assert training.state.rate == pytest.approx(0.4)

    run(scenario)


def test_decoupled_decay_leaves_frozen_parameters_alone() -> None:
    async def scenario() -> None:
        recipe = AsyncSGD(lr=0.1, batch_size=10, overlap=0, penalty=Penalty(decay=0.5))
        training, _ = stage(recipe, 1)
        parameters = training.parameters
        parameters._vector[:] = 1.0
        parameters._trained = (slice(0, 1),)
        await parameters.apply(np.zeros(D, np.float32), parameters.version, rate=0.1)
        np.testing.assert_allclose(await weights(training), [0.95, 1.0, 1.0])

    run(scenario)


def test_who_warms_up_and_stalls_or_fails_is_replaced() -> None:
    async def scenario() -> None:
        recipe = Downpour(batch_size=10, push_every=2, fetch_every=2, warm_start_batches=6)
        training, (ada, ben) = stage(recipe, 2)
        await ada.ask(0.0)
        assert await ben.ask(1.0) is None
        await training.tick(small.LEASE_S + 1.0)  # ada is here, but nothing comes
        assert await ben.ask(small.LEASE_S + 1.0) is not None, ben.reason
        assert ben.granted is not None
        training.give_back(small.LEASE_S + 2.0, ben.account, ben.granted.unit.id, "trainer died")
        cy = Person(training, training.join(0.0, small.volunteer("cy"), own=False))
        assert await cy.ask(small.LEASE_S + 2.0) is not None, cy.reason

    run(scenario)


def test_what_is_let_go_while_a_backup_is_being_made_is_not_kept() -> None:
    async def scenario() -> None:
        training, _ = stage(DCASGD(batch_size=10, overlap=0, half_backups=True), 1)
        parameters = training.parameters
        async with parameters.published() as snapshot:
            await parameters._lock.acquire()
            holding = asyncio.create_task(parameters.hold(snapshot))
            await asyncio.sleep(0)
            parameters.drop([snapshot.version])
            parameters._lock.release()
            await holding
        assert snapshot.version not in parameters._backups  # type: ignore[operator]
        assert snapshot.users == 0

    run(scenario)


@pytest.mark.parametrize("half", [False, True])
def test_who_is_cancelled_while_a_backup_is_made_leaves_it_to_others(half: bool) -> None:
    async def scenario() -> None:
        recipe = DCASGD(batch_size=10, overlap=0, half_backups=half)
        training = small.training(recipe=recipe, size=INLINE_BYTES // 4 + 1)
        parameters = training.parameters
        assert parameters._backups is not None
        going, goes_on = threading.Event(), threading.Event()
        keep = parameters._backups.keep

        def slowly(version: Version, vector: Vector) -> None:
            going.set()
            assert goes_on.wait(20)
            keep(version, vector)

        parameters._backups.keep = slowly  # type: ignore[method-assign]
        async with parameters.published() as snapshot:
            first = asyncio.create_task(parameters.hold(snapshot))
            await asyncio.to_thread(going.wait)
            second = asyncio.create_task(parameters.hold(snapshot))
            first.cancel()
            await asyncio.sleep(0.01)
            assert not second.done(), "nobody looks while a thread is at it"
            goes_on.set()
            await asyncio.gather(first, second, return_exceptions=True)
            assert first.cancelled()
        assert snapshot.version in parameters._backups
        assert snapshot.users == (not half), "a shared backup is the snapshot itself"
        parameters.drop([snapshot.version])
        assert snapshot.users == 0

    run(scenario)


@pytest.mark.parametrize("half", [False, True])
def test_what_is_wanted_again_while_a_backup_is_being_made_is_kept(half: bool) -> None:
    async def scenario() -> None:
        training, _ = stage(DCASGD(batch_size=10, overlap=0, half_backups=half), 1)
        parameters = training.parameters
        async with parameters.published() as snapshot:
            await parameters._lock.acquire()
            holding = [asyncio.create_task(parameters.hold(snapshot))]
            await asyncio.sleep(0)
            parameters.drop([snapshot.version])
            holding.append(asyncio.create_task(parameters.hold(snapshot)))
            await asyncio.sleep(0)
            parameters._lock.release()
            await asyncio.gather(*holding)
        assert snapshot.version in parameters._backups  # type: ignore[operator]
        assert snapshot.users == (not half), "a shared backup is the snapshot itself"
        parameters.drop([snapshot.version])
        assert snapshot.version not in parameters._backups  # type: ignore[operator]
        assert snapshot.users == 0

    run(scenario)


def test_the_hosts_own_worker_warms_up_if_it_is_ready() -> None:
    async def scenario() -> None:
        recipe = Downpour(batch_size=10, push_every=2, fetch_every=2, warm_start_batches=6)
        training, (slow,) = stage(recipe, 1, wait_for=1)
        own = training.join(0.0, small.volunteer("own"), own=True)
        training.lease(0.0, own, (), training.parameters.version)
        assert await slow.ask() is None
        assert "warm start" in slow.reason

    run(scenario)
