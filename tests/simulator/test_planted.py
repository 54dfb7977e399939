"""The simulation finds what it is there for: a bug of each kind, planted, within a few seeds."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crowdgrad import files as whole_files
from crowdgrad.domain.job import JobId
from crowdgrad.host import updates
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_files import Best, Name
from crowdgrad.host.keeping.keeper import Keeper
from crowdgrad.host.members.ledger import Ledger, LedgerState
from crowdgrad.host.setbacks import Setbacks
from crowdgrad.host.state import State
from crowdgrad.host.units import Granted, Units
from crowdgrad.matchmaker.mail import Connection
from crowdgrad.matchmaker.room import Room
from crowdgrad.net import rooms
from crowdgrad.planner import rooms as shard_rooms
from crowdgrad.planner.leases import LeaseBook
from crowdgrad.simulator.disk import _Writing
from crowdgrad.simulator.machine import WatchedFiles
from crowdgrad.simulator.storm import Planted, storm
from crowdgrad.store import packed
from crowdgrad.volunteer import conversation, matched

MOST_SEEDS = 300


@dataclass(frozen=True, kw_only=True)
class Bug:
    """What is wrong, what the simulation must call it, and where it shows."""

    kinds: tuple[str, ...]
    plant: Callable[[pytest.MonkeyPatch], Planted | None]
    recipes: tuple[str, ...]


BUGS: dict[str, Bug] = {}


def bug(*kinds: str, recipes: tuple[str, ...] = ("plain", "chains", "rounds")) -> Any:
    def note(plant: Callable[[pytest.MonkeyPatch], Planted | None]) -> Any:
        BUGS[plant.__name__] = Bug(kinds=kinds, plant=plant, recipes=recipes)
        return plant

    return note


# -- units, leases and credit -----------------------------------------------------------------


@bug("twice")
def a_finished_unit_stays_open(patch: pytest.MonkeyPatch) -> None:
    def done(self: Any, entry: Any) -> None:
        self.done_units += 1
        self.done_batches += entry.unit.batches
        self.done_samples += entry.samples
        for who in list(entry.leases):
            self._stop(entry, who, "finished, they say")

    patch.setattr(LeaseBook, "done", done)


@bug("credit")
def an_update_is_not_credited(patch: pytest.MonkeyPatch) -> None:
    accept = Ledger.accept

    def forgets_some(self: Any, now: Any, who: Any, *, samples: int, staleness: int) -> None:
        if staleness < 2:
            accept(self, now, who, samples=samples, staleness=staleness)

    patch.setattr(Ledger, "accept", forgets_some)


@bug("credit", "checkpoint")
def credit_is_given_before_the_update_is_applied(patch: pytest.MonkeyPatch) -> None:
    judge, applied = updates.Updates._accept, State.applied

    async def early(self: Any, now: Any, account: Any, update: Any, vector: Any) -> Any:
        lease = self._state.book.lease_of(update.unit, account.volunteer.id)
        if lease is not None:
            who = account.volunteer.id
            self._state.ledger.accept(now, who, samples=update.samples, staleness=0)
        return await judge(self, now, account, update, vector)

    def without_credit(self: Any, staleness: int, units: Any) -> None:
        accept, self.ledger.accept = self.ledger.accept, lambda *a, **k: None
        try:
            applied(self, staleness, units)
        finally:
            self.ledger.accept = accept

    patch.setattr(updates.Updates, "take_at_once", lambda self, *what: None)
    patch.setattr(updates.Updates, "_accept", early)
    patch.setattr(State, "applied", without_credit)


@bug("credit")
def what_was_taken_at_once_is_never_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(updates.Updates, "settle", lambda self, now, account, taken: None)


@bug("lease")
def leases_never_run_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseBook, "lapse", lambda self, now: [])


@bug("blame")
def who_comes_too_late_is_blamed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(updates, "IGNORED", ())


@bug("error", recipes=("lanes", "half-precision"))
def a_room_in_use_is_given_to_another_shard(patch: pytest.MonkeyPatch) -> None:
    choose = shard_rooms.Rooms._choose

    def careless(self: Any, shard: int) -> shard_rooms.Given:
        users, self._users = self._users, {}
        try:
            return choose(self, shard)
        finally:
            self._users = users

    patch.setattr(shard_rooms.Rooms, "_choose", careless)


# -- checkpoints ------------------------------------------------------------------------------


@bug("lost", "altered", "best")
def files_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Writing, "sync", lambda self: None)


@bug("lost")
def folders_are_not_synced_after_the_rename(patch: pytest.MonkeyPatch) -> None:
    def write_parts(disk: Any, path: Path, parts: Any) -> int:
        written = 0

        def fill(file: Any) -> None:
            nonlocal written
            for part in parts:
                file.write(part)
                written += memoryview(part).nbytes
            file.sync()

        whole_files._place(disk, disk.create, path, path.parent, fill)
        return written

    patch.setattr(packed, "write_parts", write_parts)


@bug("altered")
def hashes_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    unpack = packed.unpack

    def trusting(data: bytes, what: str = "") -> packed.Packed:
        return unpack(data[:-32] + hashlib.sha256(data[:-32]).digest(), what)

    patch.setattr(packed, "unpack", trusting)


@bug("lost")
def room_is_made_before_the_new_one_is_there(patch: pytest.MonkeyPatch) -> Planted:
    class Tidy(WatchedFiles):
        def write(self, checkpoint: Checkpoint, best: Best | None) -> int:
            names = [name for name in map(Name.parse, self._disk.names(self.folder)) if name]
            for name in names:
                self._disk.remove(self.folder / str(name))
            return super().write(checkpoint, best)

    return Planted(machine={"files": Tidy})


@bug("checkpoint")
def what_is_not_applied_yet_is_done_in_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    snapshot = LeaseBook.snapshot
    patch.setattr(LeaseBook, "snapshot", lambda self, unapplied=(): snapshot(self))


@bug("checkpoint", "credit")
def the_ledger_is_not_in_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "snapshot", lambda self: LedgerState())


@bug("best")
def the_best_parameters_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeper, "_best", lambda self: None)


@bug("best")
def the_best_file_is_removed_with_the_rest(patch: pytest.MonkeyPatch) -> Planted:
    class Forgetful(WatchedFiles):
        def _remove_all_but(self, kept: list[Name]) -> None:
            super()._remove_all_but(kept)
            if "best.pack" in self._disk.names(self.folder):
                self._disk.remove(self.folder / "best.pack")

    return Planted(machine={"files": Forgetful})


@bug("acknowledged")
def the_keeper_says_so_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    take = Keeper._take_and_write

    async def boastful(self: Any, now: float) -> None:
        self._health = replace(self._health, version=self._training.parameters.version)
        await take(self, now)

    patch.setattr(Keeper, "_take_and_write", boastful)


# -- incarnations and chains ------------------------------------------------------------------


@bug("incarnation")
def a_claim_is_not_on_the_disk(patch: pytest.MonkeyPatch) -> Planted:
    class Files(WatchedFiles):
        def claim(self) -> int:
            real, self._disk = self._disk, _Unsynced(self._disk)
            try:
                return super().claim()
            finally:
                self._disk = real

    return Planted(machine={"files": Files})


class _Unsynced:
    """A disk whose folders are never synced."""

    def __init__(self, disk: Any) -> None:
        self._real = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sync_folder(self, folder: Path) -> None:
        return None


@bug("version", "incarnation")
def a_restarted_host_keeps_its_incarnation(patch: pytest.MonkeyPatch) -> None:
    resume = Setbacks.resume

    async def same(
        self: Any, now: Any, checkpoint: Checkpoint, incarnation: int, *rest: Any, **more: Any
    ) -> None:
        before = checkpoint.saved.version.incarnation
        await resume(self, now, checkpoint, max(before, 1), *rest, **more)

    patch.setattr(Setbacks, "resume", same)


@bug("chain", "old version", recipes=("chains",))
def a_chain_goes_on_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    lease, chains = Units.lease, {}

    def remembering(
        self: Any, now: Any, account: Any, holds: Any, base: Any, after: Any = None
    ) -> tuple[Granted | None, str]:
        who = (id(self._state.spec), account.volunteer.id)
        if after is None and who in chains and not account.chains:
            after = -1
            account.chains[after] = chains.pop(who)
        if account.chains:
            chains[who] = next(iter(account.chains.values()))
        return lease(self, now, account, holds, base, after)

    patch.setattr(Units, "lease", remembering)


# -- finding each other -----------------------------------------------------------------------


@bug("stuck", "never ends")
def the_matchmaker_keeps_the_old_address(patch: pytest.MonkeyPatch) -> Planted:
    class Stubborn(Room):
        def host_arrives(self, key: str, body: rooms.Publish, connection: Connection) -> JobId:
            known = self._store.job(JobId(body.offer.id))
            if known is not None:
                address = known.listing.offer.address
                offer = msgspec.structs.replace(body.offer, address=address)
                body = msgspec.structs.replace(body, offer=offer)
            return super().host_arrives(key, body, connection)

    return Planted(room=Stubborn)


@bug("stuck", "never ends")
def a_job_whose_host_was_away_is_avoided_for_ever(patch: pytest.MonkeyPatch) -> None:
    async def unforgiving(presence: Any, left: Any, unwanted: Any, again_s: float) -> Any:
        return await presence.next_job()

    patch.setattr(matched, "_next", unforgiving)


@bug("stuck", "never ends")
def volunteers_do_not_notice_a_dead_link(patch: pytest.MonkeyPatch) -> None:
    async def asleep(*args: Any, **more: Any) -> None:
        await asyncio.sleep(1e6)

    patch.setattr(conversation, "keep_alive", asleep)


# -- the tests --------------------------------------------------------------------------------


def seeds(found: Bug) -> Iterator[tuple[str, int]]:
    for seed in range(MOST_SEEDS):
        yield found.recipes[seed % len(found.recipes)], seed


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_called_by_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = BUGS[name].plant(monkeypatch)
    for recipe, seed in seeds(BUGS[name]):
        told = storm(recipe, seed, planted=planted)
        if told.violation is not None:
            assert told.violation.kind in BUGS[name].kinds, f"{told.violation}: {told.replay}"
            return
    pytest.fail(f"not found in {MOST_SEEDS} seeds")
