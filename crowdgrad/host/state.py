"""Everything a job at work consists of: what is leased, learned, credited, and how it goes.

The parts of `Training` (who gets which unit, what becomes of updates, going back) act on one state.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.job import Job
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Unit, UnitId, Version, VolunteerId
from crowdgrad.host.course import Course
from crowdgrad.host.looking import Looking
from crowdgrad.host.members.ledger import Ledger
from crowdgrad.host.members.turns import Turns
from crowdgrad.host.numbers import Numbers
from crowdgrad.host.parameters import Parameters
from crowdgrad.numerics.noise import shard_order
from crowdgrad.numerics.rules import Rule
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.leases import LeaseBook
from crowdgrad.planner.ranges import Ranges
from crowdgrad.planner.segments import Segments
from crowdgrad.recipes.base import Recipe

MAX_RATE_FACTOR = 1e6
"""How far an owner may go from the recipe's learning rate."""
Hold = Callable[[Vector, Rule, Version], Numbers[Any]]
"""Who holds the parameters, given what they begin with and what changes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit that is done but not in the parameters yet, and whom it is credited to when it is."""

    unit: Unit
    base: Version
    who: VolunteerId
    samples: int
    at: float


class State:
    def __init__(
        self,
        *,
        job: Job,
        spec: ProgramSpec,
        manifest: Manifest,
        initial: Vector,
        recipe: Recipe,
        lease_s: float,
        wait_for: int = 0,
        metrics_bytes: Callable[[], int] = lambda: 0,
        hold: Hold | None = None,
        looking: Looking | None = None,
    ) -> None:
        """`wait_for`: volunteers that must be here before anybody begins.

        `initial` is the training's own from now on: it becomes the state that is trained.
        `metrics_bytes`: how long the file of metrics is, for checkpoints. `hold`: who holds the
        parameters; by default this process does. `looking`: at single training records.
        """
        self.job = job
        self.manifest = manifest
        self.train_records = manifest.records("train")
        self.metrics_bytes = metrics_bytes
        self.spec = spec
        self.serving = recipe.serving()
        self.lease_s = lease_s
        rule = recipe.server_rule()
        version = Version(incarnation=0, count=0)
        self.parameters: Numbers[Any] = (
            hold(initial, rule, version)
            if hold is not None
            else Parameters(initial, rule, version, self.serving, spec, codec=job.local.codec)
        )
        self.ledger = Ledger(spec.work_per_sample)
        self.turns = Turns(self.serving, wait_for=wait_for, patience_s=lease_s)
        self._plans = EpochPlans.of(manifest, "train", job.local, spec)
        self._assigned = self._assignment(self._plans)
        self.book = LeaseBook(
            self._assigned,
            kind="train",
            lease_s=lease_s,
            track_bases=rule.needs_base,
        )
        self.course = Course(job, spec, manifest, initial.copy(), looking)
        self.unapplied: dict[UnitId, Done] = {}
        self.staleness: Counter[int] = Counter()
        self.train_loss: float | None = None
        self.setbacks = 0
        """How often it went back to a checkpoint because the numbers were not finite any more."""
        self.rate_factor = 1.0
        """What the recipe's learning rate is multiplied by, at its owner's wish."""
        self.starts = 1
        """How often a host was started for this run: once, and after every crash."""
        self.notice = ""
        """What people should know about how it goes."""
        self.warning = ""
        """What looks wrong at the moment."""
        self.data_warning = ""
        """What is wrong with the data, or with what is added to it."""
        self.growths = 0
        """How often the data has grown."""
        self._freed: set[Version] = set()
        self._tracks_bases = rule.needs_base
        self._steady = self.serving.schedule.constant

    def _assignment(self, plans: EpochPlans) -> Ranges | Segments:
        seed, epochs = self.job.seed, self.job.stop.epochs
        if self.serving.assignment == "segments":
            return Segments(plans, epochs=epochs)

        def order(epoch: int) -> list[int]:
            shards = plans.shards
            return [shards[place] for place in shard_order(seed, epoch, len(shards))]

        return Ranges(plans, epochs=epochs, shard_order=order)

    def segments_of(self, volunteer: VolunteerId) -> tuple[tuple[int, int], ...]:
        if not isinstance(self._assigned, Segments):
            return ()
        found = self._assigned.shards_of(volunteer)
        return ((found.start, found.stop),) if found else ()

    def grow(self, manifest: Manifest, name: ChunkHash) -> None:
        """There is more to train on from the next epoch on."""
        assert self.serving.assignment != "segments", "such a job is refused when it is prepared"
        self._plans.grow(manifest, "train")
        self.manifest, self.job = manifest, replace(self.job, manifest=name)
        self.train_records = manifest.records("train")
        self.growths += 1

    # -- the learning rate --------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """The host's learning rate now, before staleness."""
        if self._steady:
            return self.serving.rate * self._scale
        helping = 1
        if self.serving.schedule.scale_with_volunteers:  # who has helped already, not who only asks
            helping = sum(a.asked and a.units > 0 for a in self.ledger.connected())
        return self.serving.rate * self._factor(volunteers=helping)

    @property
    def local_rate(self) -> float:
        """A replica's: its step has one batch, however many others there are."""
        if self._steady:
            return self.serving.local_rate * self._scale
        return self.serving.local_rate * self._factor(volunteers=1)

    def set_rate(self, wanted: float) -> bool:
        """Be `wanted` now, and go on with the schedule from there; a replica's changes alike.

        Whether that is another than it was. Raises ValueError where it is too far from the
        recipe's.
        """
        factor = self.rate_factor * wanted / self.rate if self.rate else math.inf
        if not 1 / MAX_RATE_FACTOR <= factor <= MAX_RATE_FACTOR:
            raise ValueError(
                f"a learning rate of {wanted:.3g} is more than {MAX_RATE_FACTOR:,.0f} times away "
                f"from its schedule's, which is {self.rate / self.rate_factor:.3g} now"
            )
        changed = not math.isclose(factor, self.rate_factor, rel_tol=1e-9)
        if changed:
            self.rate_factor = factor
        return changed

    @property
    def _scale(self) -> float:
        return self.rate_factor * 0.5**self.setbacks

    def _factor(self, *, volunteers: int) -> float:
        return self._scale * self.serving.schedule.factor(
            epoch=self.book.epochs_done, epochs=self.job.stop.epochs, volunteers=volunteers
        )

    # -- what follows from changes ------------------------------------------------------------

    def tell_members(self) -> None:
        """Only who asks for units has a part in them: others may never begin."""
        self.book.members([a.volunteer.id for a in self.ledger.connected() if a.asked])

    def applied(self, staleness: int, units: Iterable[UnitId]) -> None:
        """These are in the parameters now: only what is there is credited."""
        for number in units:
            done = self.unapplied.pop(number)
            self.credit(done.who, staleness, samples=done.samples, at=done.at)

    def credit(self, who: VolunteerId, staleness: int, *, samples: int, at: float) -> None:
        """What is in the parameters."""
        self.staleness[staleness] += 1
        self.ledger.accept(at, who, samples=samples, staleness=staleness)

    def free(self) -> None:
        """Let go of what nobody works from any more and no update still waits for."""
        if not self._tracks_bases:
            return
        self._freed.update(self.book.freed())
        if not self._freed:
            return
        wanted = {done.base for done in self.unapplied.values()}
        # A version may have been leased again since it was free: then it is heard of again.
        self.parameters.drop(
            base for base in self._freed - wanted if not self.book.works_from(base)
        )
        self._freed &= wanted
