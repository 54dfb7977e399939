"""Looks: the loss of single training records, the same ones several times in a run.

A look is a round of units for worker 0, like an evaluation, of up to a thousand training records
one at a time. Shards are shuffled before they are cut, so records that lie side by side are as good
a sample as any: a unit is a run of them, and so a look needs few exchanges. Their losses come back
as the unit's metrics, named by the number of their batch.

When it is time: a few times over the run and as time doubles, but never for more than a fiftieth of
worker 0's time; and once at the end, with the best parameters. What is concluded is decided in
`crowdgrad/planner/label_noise.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from crowdgrad.data.dataset import shuffled
from crowdgrad.data.shards import shard_arrays
from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalSteps
from crowdgrad.planner.assignment import Piece
from crowdgrad.planner.batches import BatchPlan, EpochPlans
from crowdgrad.planner.label_noise import LAST, SUSPECTS, UNKNOWN, LabelNoise, Suspect, judge

if TYPE_CHECKING:
    from crowdgrad.host.job import Prepared

SAMPLES = 1000
"""Records of a look, at most."""
RUN = 125
"""Records of one unit: their losses are metrics of an update, which has a bounded number."""
MARKS = 8
"""Looks in a run, by its progress; that at the end not counted."""
FIRST_S = 2.0
"""The first look by time; then whenever the time has doubled."""
LOOK_SHARE = 0.02
"""The most of worker 0's time that looks take."""
_STREAM = 0x6C6F6F6B

Run = tuple[int, int]
"""The first record of a run by its number in the split, and how many they are."""
LabelOf = Callable[[int, int], str]
"""The label of a record by shard and row, for people; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look has found; a checkpoint keeps the last ones."""

    runs: tuple[Run, ...]
    losses: tuple[float, ...]
    """Of the records of all runs, one after the other; NaN where one has none."""
    at_s: float
    progress: float

    def by_record(self) -> dict[int, float]:
        numbers = (first + i for first, count in self.runs for i in range(count))
        return dict(zip(numbers, self.losses, strict=True))


class Looking:
    def __init__(
        self,
        manifest: Manifest,
        spec: ProgramSpec,
        local: LocalSteps,
        *,
        seed: int,
        classes: int | None = None,
        label: LabelOf = lambda shard, row: "",
    ) -> None:
        """`classes`: how many a classification has. What the manifest has now is looked at, also
        where the data grows."""
        self.plans = EpochPlans.of_kind(manifest, "look", local, spec)
        self._plan = self.plans.at(0)
        self._classes = classes
        self._label = label
        self.runs = draw(self._plan, seed)
        self.looks: list[Look] = []
        self.noise: LabelNoise = UNKNOWN
        self.over = False
        """There will be no further look."""
        self._looked_at = -math.inf
        self._cost_s = 0.0
        if spec.fixed_batch > 1:
            self.give_up(
                f"the program takes batches of {spec.fixed_batch} alone, so the loss of a single "
                "record cannot be seen"
            )

    def give_up(self, why: str) -> None:
        """What was found before stays."""
        self.over = True
        if not self.looks:
            self.noise = replace(UNKNOWN, reason=why)

    def due(self, now: float, elapsed_s: float, progress: float) -> bool:
        """Whether to look now, while it trains."""
        if self.over or now - self._looked_at < self._cost_s / LOOK_SHARE:
            return False
        before_s = self.looks[-1].at_s if self.looks else 0.0
        mark = int(MARKS * self.looks[-1].progress) if self.looks else 0
        return int(MARKS * progress) > mark or elapsed_s >= max(FIRST_S, 2 * before_s)

    def pieces(self) -> list[Piece]:
        return [
            Piece(epoch=0, shard=self._plan.shard_of(first), first_batch=first, batches=count)
            for first, count in self.runs
        ]

    def add(
        self,
        now: float,
        losses: Mapping[int, float],
        *,
        at_s: float,
        progress: float,
        cost_s: float,
        last: bool,
    ) -> None:
        """A look has ended. `losses`: by the record's number. `last`: it was that at the end."""
        numbers = [first + i for first, count in self.runs for i in range(count)]
        found = tuple(losses.get(number, math.nan) for number in numbers)
        self.looks.append(Look(runs=self.runs, losses=found, at_s=at_s, progress=progress))
        del self.looks[:-LAST]
        self._looked_at, self._cost_s = now, cost_s
        self.over = self.over or last
        self._conclude()

    def restore(self, looks: tuple[Look, ...]) -> None:
        """Go on with the records of earlier looks, where they are there; else begin anew."""
        kept = [look for look in looks[-LAST:] if look.runs == looks[-1].runs and self._fits(look)]
        if kept and not self.over:
            self.runs, self.looks = kept[-1].runs, kept
            self._conclude()

    def _conclude(self) -> None:
        noise, high = judge([look.by_record() for look in self.looks], self._classes)
        lasting = [look.by_record() for look in self.looks]
        suspects = []
        for number in high[:SUSPECTS]:
            shard, row = self._plan.shard_of(number), self._plan.rows(number)[0]
            loss = min(look[number] for look in lasting)
            suspects.append(Suspect(shard=shard, row=row, loss=loss, label=self._label(shard, row)))
        self.noise = replace(noise, suspects=tuple(suspects))

    def _fits(self, look: Look) -> bool:
        """A checkpoint may be a stranger's, or of other data."""
        if not 0 < sum(count for _, count in look.runs) == len(look.losses) <= SAMPLES:
            return False
        if not (math.isfinite(look.at_s) and 0 <= look.progress <= 1):
            return False
        return all(
            0 < count <= RUN
            and 0 <= first < self._plan.total
            and first + count <= self._plan.of_shard(self._plan.shard_of(first)).stop
            for first, count in look.runs
        )


def looking_at(prepared: Prepared) -> Looking:
    """At the training records of a job."""
    spec = prepared.program.spec
    return Looking(
        prepared.manifest,
        spec,
        prepared.job.local,
        seed=prepared.job.seed,
        classes=prepared.classes,
        label=labels_of(prepared.manifest, prepared.blobs, spec),
    )


def draw(plan: BatchPlan, seed: int) -> tuple[Run, ...]:
    """Runs of records, a different choice for every seed, at most `SAMPLES` records in all."""
    every: list[Run] = []
    for shard in plan.shards:
        numbers = plan.of_shard(shard)
        every += [(n, min(RUN, numbers.stop - n)) for n in range(numbers.start, numbers.stop, RUN)]
    chosen: list[Run] = []
    left = SAMPLES
    for place in shuffled(len(every), seed, _STREAM):
        first, count = every[int(place)]
        chosen.append((first, min(count, left)))
        left -= chosen[-1][1]
        if left == 0:
            break
    return tuple(sorted(chosen))


def labels_of(manifest: Manifest, blobs: Mapping[ChunkHash, bytes], spec: ProgramSpec) -> LabelOf:
    """Labels read from the data where the target is one number."""
    place = len(spec.inputs) - 1 - spec.weighted
    names = manifest.card.classes

    def label(shard: int, row: int) -> str:
        if not 0 <= place < len(manifest.fields) or manifest.fields[place].shape:
            return ""
        data = b"".join(blobs[chunk.hash] for chunk in manifest.shards[shard].chunks)
        value = shard_arrays(manifest, shard, data)[place][row]
        if not np.issubdtype(value.dtype, np.integer):
            return f"{value:g}"
        number = int(value)
        name = names[number] if 0 <= number < len(names) else str(number)
        return name if name == str(number) else f"{number} ({name})"

    return label
