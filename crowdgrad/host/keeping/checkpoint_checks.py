"""Whether training can go on from a checkpoint that was read: it may be a stranger's, or another's.

`contradiction` looks at the checkpoint alone, `misfit` compares it with the job. What passes both
can be restored, and whatever is restored can be trained on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from crowdgrad.domain.data import Manifest
from crowdgrad.domain.job import Job
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Unit
from crowdgrad.host.evaluation import FIRST_ID, Scores
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.planner import passes
from crowdgrad.planner.assignment import AssignmentState, Progress
from crowdgrad.planner.batches import BatchPlan, EpochPlans
from crowdgrad.planner.entries import KeptUnit
from crowdgrad.planner.leases import BookState
from crowdgrad.recipes.base import Recipe

MAX_COUNTED = 1 << 62
"""There must always be a next number."""


def contradiction(checkpoint: Checkpoint) -> str:
    """What cannot be true, whatever the job is; "" where nothing is."""
    return next(_contradictions(checkpoint), "")


def _contradictions(checkpoint: Checkpoint) -> Iterator[str]:
    saved, course, accounts = checkpoint.saved, checkpoint.course, checkpoint.ledger.accounts
    lengths = {len(vector) for vector in saved.memory.vectors.values()}
    if len(lengths) > 1 or any(length > len(saved.vector) for length in lengths):
        yield f"{len(saved.vector):,} numbers and a memory of {sorted(lengths)}"
    counts = [saved.version.incarnation, saved.version.count, saved.memory.steps]
    counts += [checkpoint.setbacks, checkpoint.starts, checkpoint.metrics_bytes]
    counts += [checkpoint.book.next_id, checkpoint.book.done_units, checkpoint.book.done_batches]
    counts += [checkpoint.growths, checkpoint.shards]
    counts += [checkpoint.book.done_samples, checkpoint.ledger.next_position]
    counts += [n for account in accounts for n in (account.position, account.units)]
    counts += [account.samples for account in accounts]
    counts += [n for pair in checkpoint.staleness for n in pair]
    if any(not 0 <= count < MAX_COUNTED for count in counts):
        yield "something was counted that cannot be counted so far"
    if not all(map(math.isfinite, saved.memory.numbers.values())):
        yield f"its rule remembers {saved.memory.numbers}"
    if not 0 < checkpoint.rate_factor < math.inf:
        yield f"the learning rate is multiplied by {checkpoint.rate_factor}"
    if not math.isfinite(course.elapsed_s):
        yield f"{course.elapsed_s} seconds have passed"
    places = [account.position for account in accounts if not account.own]  # theirs are all 0
    for told in ([account.volunteer.id for account in accounts], places):
        if len(set(told)) < len(told):
            yield "two members have one place, or one has two"
    yield from _of_the_book(checkpoint.book)


def _of_the_book(book: BookState) -> Iterator[str]:
    units = [kept.unit for kept in (*book.waiting, *book.set_aside)]
    if len({unit.id for unit in units}) < len(units):
        yield "a unit waits twice"
    for unit in units:
        if unit.kind != "train" or unit.id >= book.next_id:
            yield f"unit {unit.id} of {book.next_id} is none of training's"
    if book.next_id > FIRST_ID // 2:  # beyond are those of evaluations
        yield f"{book.next_id} units have begun"
    for kept in (*book.waiting, *book.set_aside):
        if any(not 0 < times < MAX_COUNTED for _, times in kept.failed_on):
            yield f"unit {kept.unit.id} failed never, or for ever"
    if any(len(kept.story) < 2 for kept in book.set_aside):
        yield "a unit was set aside for no reason"


def misfit(
    checkpoint: Checkpoint, *, job: Job, spec: ProgramSpec, manifest: Manifest, recipe: Recipe
) -> str:
    """Why it is not a checkpoint of this job; "" where it may be."""
    plans = EpochPlans.of(manifest, "train", job.local, spec)
    segments = recipe.serving().assignment == "segments"
    if checkpoint.shards > len(manifest.shards):
        return f"it knows {checkpoint.shards:,} shards, the data has {len(manifest.shards):,}"
    found = _of_the_sizes(checkpoint, spec, recipe)
    return next(found, "") or next(_of_the_work(checkpoint.book, plans, job, segments), "")


def _of_the_sizes(checkpoint: Checkpoint, spec: ProgramSpec, recipe: Recipe) -> Iterator[str]:
    saved, course = checkpoint.saved, checkpoint.course
    if len(saved.vector) != spec.state_words:
        yield f"it has {len(saved.vector):,} numbers, the program {spec.state_words:,}"
    rule = recipe.server_rule()
    if set(saved.memory.vectors) != set(rule.vectors):
        yield f"its rule remembers {sorted(saved.memory.vectors)}, {rule.name} {rule.vectors}"
    if any(len(vector) != spec.size for vector in saved.memory.vectors.values()):
        yield f"its rule remembers vectors of another length than {spec.size:,}"
    names = [metric.name for metric in spec.metrics]
    if not all(_measures(scores, names) for scores in (*course.history, course.best)):
        yield f"it has not measured {names}"


def _measures(scores: Scores | None, names: Sequence[str]) -> bool:
    return scores is None or list(scores.metrics) == list(names)


def _of_the_work(book: BookState, plans: EpochPlans, job: Job, segments: bool) -> Iterator[str]:
    epochs = job.stop.epochs
    for kept in (*book.waiting, *book.set_aside):
        unit = kept.unit
        if unit.epoch >= epochs or not _in_plan(unit, plans):
            yield f"its unit {unit.id} is not one of this data's"
        if (kept.owner is not None) != segments:
            yield f"its unit {unit.id} belongs to {kept.owner}"
    if segments:
        yield from _of_segments(book.assignment, book.waiting, plans, epochs)
    else:
        yield from _of_ranges(book.assignment, plans, epochs)


def _in_plan(unit: Unit, plans: EpochPlans) -> bool:
    plan = plans.at(unit.epoch)
    if unit.shard not in plan.places:
        return False
    numbers = plan.of_shard(unit.shard)
    return numbers.start <= unit.first_batch and unit.first_batch + unit.batches <= numbers.stop


def _of_ranges(state: AssignmentState, plans: EpochPlans, epochs: int) -> Iterator[str]:
    if len(state.progress) != 1 or state.progress[0].who is not None:
        yield "its batches were handed out in another way"
        return
    (progress,) = state.progress
    if not -1 <= progress.epoch < epochs:
        yield f"it is in epoch {progress.epoch + 1} of {epochs}"
    elif progress.epoch >= 0:
        plan = plans.at(progress.epoch)
        yield from filter(None, [passes.wrong(state.passes, progress.epoch, len(plan.shards))])
        for first, stop in progress.taken:
            if first != stop and not _of_one_shard(first, stop, plan):  # a shard may be empty
                yield f"batches {first} to {stop} were handed out, of another epoch's"


def _of_one_shard(first: int, stop: int, plan: BatchPlan) -> bool:
    return 0 <= first < plan.total and first <= stop <= plan.of_shard(plan.shard_of(first)).stop


def _of_segments(
    state: AssignmentState, waiting: Iterable[KeptUnit], plans: EpochPlans, epochs: int
) -> Iterator[str]:
    members = [progress.who for progress in state.progress]
    if None in members or len(set(members)) < len(members):
        yield "its batches were handed out in another way"
    if len(set(state.ranked)) < len(state.ranked):
        yield "a member has two segments"
    if not {kept.owner for kept in waiting} <= set(members):
        yield "a unit belongs to somebody who never came"
    for progress in state.progress:
        if not 0 <= progress.epoch < epochs:
            yield f"somebody is in epoch {progress.epoch + 1} of {epochs}"
        elif not _spans_fit(progress, plans.at(progress.epoch).total):
            yield f"somebody has batches that epoch {progress.epoch + 1} has not"


def _spans_fit(progress: Progress, total: int) -> bool:
    spans = (*progress.taken, *progress.done)
    return all(0 <= start < stop <= total for start, stop in spans)
