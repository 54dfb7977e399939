"""What must never be, looked for all along: the monitor sees everything and outlives every crash.

It knows the state behind every version there ever was and what was credited by then. What
contradicts that is a violation (`story.py`). It only listens: the code it watches is told nothing
and behaves as always. What the disk has promised is looked after by `promises.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from crowdgrad.domain.work import UnitId, Version
from crowdgrad.host.keeping.checkpoint_files import Found
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.parameters import Parameters
from crowdgrad.host.state import Done
from crowdgrad.host.training import Training
from crowdgrad.host.units import Granted
from crowdgrad.host.updates import Taken
from crowdgrad.net.messages import Grant
from crowdgrad.numerics.vectors import Vector
from crowdgrad.simulator.job import SmallJob
from crowdgrad.simulator.promises import Promises, Versions
from crowdgrad.simulator.story import Story

SLACK_S = 2.0
"""How long after its end a lease may still be in the book: a few ticks of the host."""
BLAMELESS = ("already_done", "not_yours", "wrong_base")
"""Refusals that honest volunteers meet: an answer was lost, or somebody else was faster."""


class Monitor:
    def __init__(self, job: SmallJob, story: Story) -> None:
        self._job = job
        self._story = story
        self._must = story.must
        self._versions = Versions()
        self.promises = Promises(job, story, self._versions)
        self._tally: dict[int, int] = {}
        """Samples that were applied, also what a setback undid, by the position of who computed."""
        self._applied: set[tuple[int, UnitId]] = set()
        self._granted: dict[int, Version] = {}
        """The newest base given to anybody, by incarnation."""

    # -- a host at work -----------------------------------------------------------------------

    def watch(self, training: Training, alive: Callable[[], bool]) -> None:
        """Look at everything a training does, as long as its host lives."""
        state, parameters = training.state, training.parameters
        lease, applied, go_back = training.lease, state.applied, parameters.go_back
        settle = training.settle

        def watched_lease(
            now: float,
            account: Contribution,
            holds: Collection[int],
            base: Version,
            after: UnitId | None = None,
        ) -> tuple[Granted | None, str]:
            granted, reason = lease(now, account, holds, base, after)
            if granted is not None and alive():
                self._grant(training, account, granted)
            return granted, reason

        def watched_applied(staleness: int, units: Iterable[UnitId]) -> None:
            numbers = list(units)
            done = [state.unapplied[number] for number in numbers]
            applied(staleness, numbers)
            if alive():
                for one in done:
                    self._in_parameters(training, one)
                self._changed(training)

        def watched_settle(now: float, account: Contribution, taken: Taken) -> None:
            settle(now, account, taken)
            if alive():
                update, who = taken.update, account.volunteer.id
                one = Done(
                    unit=taken.unit, base=update.base, who=who, samples=update.samples, at=now
                )
                self._in_parameters(training, one)
                self._changed(training)

        async def watched_go_back(saved: Any, version: Version, *args: Any, **more: Any) -> None:
            await go_back(saved, version, *args, **more)
            if alive():
                self._went_back(training, saved.version, version)

        training.lease = watched_lease  # type: ignore[method-assign]
        training.settle = watched_settle  # type: ignore[method-assign]
        state.applied = watched_applied  # type: ignore[method-assign]
        parameters.go_back = watched_go_back  # type: ignore[method-assign]
        if not self._versions.states:
            self._note_state(training)

    def _grant(self, training: Training, account: Contribution, granted: Granted) -> None:
        unit, base, name = granted.unit, granted.base, account.volunteer.name
        self._story.tell(f"{name} gets unit {unit.id} {unit.kind} of {base}, link {granted.link}")
        if unit.kind != "train":
            return
        now = training.parameters.version
        self._must(
            base.incarnation == now.incarnation,
            "old version",
            f"unit {unit.id} was given from {base}, and the parameters are at {now}",
        )
        if granted.link:
            return
        newest = self._granted.get(base.incarnation, base)
        self._must(base >= newest, "old version", f"{base} was given after {newest}")
        self._granted[base.incarnation] = max(base, newest)

    def _in_parameters(self, training: Training, done: Done) -> None:
        now, unit = training.parameters.version, done.unit
        self._story.counts["applied"] += 1
        self._must(
            done.base.incarnation == now.incarnation,
            "old version",
            f"unit {unit.id}, computed from {done.base}, is in version {now}",
        )
        key = (now.incarnation, unit.id)
        self._must(key not in self._applied, "twice", f"unit {unit.id} was applied twice")
        self._applied.add(key)
        position = training.ledger[done.who].position
        self._tally[position] = self._tally.get(position, 0) + done.samples

    def _changed(self, training: Training) -> None:
        """The parameters are another version now."""
        self._note_state(training)
        if not self._job.overlapping:
            twice = np.flatnonzero(_state(training) > 1.0)
            self._must(not len(twice), "twice", f"batches {twice.tolist()} are applied twice")
        self._check_credit(training)

    def _note_state(self, training: Training) -> None:
        version, state = training.parameters.version, _state(training)
        self._story.tell(f"version {version} holds {''.join(str(int(n)) for n in state)}")
        known = self._versions.states.setdefault(version, state.tobytes())
        self._must(
            known == state.tobytes(), "version", f"{version} is the name of two different states"
        )
        self._versions.credit[version] = dict(self._tally)
        remembered = {int(k): n for k, n in _parameters(training)._memory.numbers.items()}
        here = {int(place): float(state[place]) for place in np.flatnonzero(state)}
        self._must(remembered == here, "restore", "the rule remembers another state than this one")

    def _went_back(self, training: Training, old: Version, new: Version) -> None:
        self._story.tell(f"went back to {old} as {new}")
        states = self._versions.states
        self._must(new not in states, "version", f"{new} was there before")
        same = states.get(old) == _state(training).tobytes()
        self._must(same, "restore", f"what was restored is not what {old} was")
        self._note_state(training)

    def resumed(self, training: Training, found: Found | None, number: int) -> None:
        """A host goes on from what it found."""
        self._tally = {}
        if found is not None:
            self.promises.goes_on_from(number)
            kept, best = found.checkpoint, training.course.best
            self._tally = dict(self._versions.credit.get(kept.saved.version, {}))
            done = training.book.done_batches == kept.book.done_batches
            self._must(done, "restore", "the book counts otherwise")
            seen = len(training.course.history) == len(kept.course.history)
            self._must(seen, "restore", "what evaluations found is forgotten")
            if best is not None:
                same = self._versions.states.get(best.version)
                right = same == training.course.best_vector.tobytes()
                self._must(right, "best", f"{best.version} was another state")
        self._versions.credit[training.parameters.version] = dict(self._tally)
        self._check_credit(training)

    # -- credit -------------------------------------------------------------------------------

    def _check_credit(self, training: Training) -> None:
        ledger = training.ledger
        accounts = {a.position: a.samples for a in ledger.everyone() if a.samples}
        tally = {who: n for who, n in self._tally.items() if n}
        self._must(accounts == tally, "credit", f"credited {accounts}, in the parameters {tally}")
        total = sum(accounts.values())
        self._must(
            ledger.total_samples == total,
            "credit",
            f"{ledger.total_samples} samples in all, but {total} in the accounts",
        )
        credit = sum(account.credit for account in ledger.everyone())
        right = abs(credit - self._job.spec.work_per_sample * total) < 1e-6
        self._must(right, "credit", f"{credit} for {total} samples")
        if training.state.setbacks == 0:  # going back takes nobody's credit away
            inside = self._samples(_state(training))
            self._must(total == inside, "credit", f"{total} credited, {inside} in the parameters")

    def _samples(self, state: Vector) -> int:
        places = np.flatnonzero(state).tolist()
        return sum(int(state[place]) * self._job.samples(place) for place in places)

    # -- what volunteers see ------------------------------------------------------------------

    def received(self, who: str, base: Version, state: Vector) -> None:
        same = self._versions.states.get(base) == state.tobytes()
        self._must(same, "version", f"{who} got another state as version {base}")

    def went_on(self, who: str, grant: Grant, before: Grant | None) -> None:
        told = f"{who}: link {grant.link} of {grant.base}"
        if before is None:
            self._story.violate("chain", f"{told} goes on from nothing")
            return
        goes_on = (
            grant.verdict == "accepted"
            and grant.base == before.base
            and grant.link == before.link + 1
        )
        after = f"link {before.link} of {before.base}, which was {grant.verdict or 'not sent'}"
        self._must(goes_on, "chain", f"{told} goes on from {after}")

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now: float, training: Training) -> None:
        for unit, who, ends_at in training.book.running():
            over_s = now - ends_at
            self._must(over_s < SLACK_S, "lease", f"{who} holds unit {unit}, {over_s:.0f} s over")
        if training.ledger.total_samples != sum(self._tally.values()):
            self._check_credit(training)

    def finished(self, training: Training) -> None:
        """The job is over: everything is in the parameters once, and credited."""
        ending, book, state = training.course.ending, training.book, _state(training)
        reached = ending is not None and ending.state == "finished"
        self._must(reached, "ending", f"it ended as {ending}")
        self._must(book.leased == 0, "lease", f"{book.leased} leases at the end")
        if not self._job.overlapping:
            missing = np.flatnonzero(state == 0.0).tolist()
            self._must(not missing, "missing", f"batches {missing} are in no update")
        counted = book.done_batches == int(state.sum())
        self._must(counted, "missing", "the book counts otherwise")
        self._check_credit(training)
        self._check_copies(training)
        self._check_blame(training)

    def _check_copies(self, training: Training) -> None:
        backups: Any = _parameters(training)._backups
        kept = backups is not None and bool(backups._kept)
        held = kept or bool(_parameters(training)._held)
        self._must(not held, "kept", "copies are kept that nobody works from any more")

    def _check_blame(self, training: Training) -> None:
        aside = [entry.unit.id for entry in training.book.set_aside]
        self._must(not aside, "blame", f"units {aside} were set aside")
        for account in training.ledger.everyone():
            blamed = {why: n for why, n in account.refused.items() if why not in BLAMELESS}
            name = account.volunteer.name
            self._must(not blamed, "blame", f"{name} is blamed: {blamed}")
            self._must(not account.failures, "blame", f"{name} failed {account.failures} times")


def _state(training: Training) -> Vector:
    return _parameters(training)._state


def _parameters(training: Training) -> Parameters:
    assert isinstance(training.parameters, Parameters)
    return training.parameters
