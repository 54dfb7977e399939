"""A job as its host describes it, and as it is published.

`JobPlan` (public name `cg.Job`) holds the live objects: a task with a PyTorch model, a data set, a
recipe. `prepare` turns it into what travels: a program, a manifest, chunks, the first parameters.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from crowdgrad.data.dataset import DataSet, split_off
from crowdgrad.data.inspect import check_classes, check_finite
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import ChunkHash, Manifest, Split
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.program import Program
from crowdgrad.errors import JobFileError
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.artifact import encode
from crowdgrad.recipes.base import Recipe, hyperparameters
from crowdgrad.recipes.crowd import Crowd

if TYPE_CHECKING:
    from crowdgrad.capture.task import Task

VALIDATION_SHARE = 0.1
MAX_VALIDATION = 5000
GATE_RECORDS = 256
"""Real records that the program and autograd are compared on."""
Progress = Callable[[str], None]
Start = Literal["any", "all"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    task: Task
    data: DataSet
    title: str = "untitled"
    cause: str = ""
    recipe: Recipe = field(default_factory=Crowd)
    stop: StoppingRule = field(default_factory=lambda: StoppingRule(epochs=5))
    seed: int = 0
    minimum: int = 0
    """Volunteers the matchmaker sends here before it serves later jobs."""
    start: Start = "any"
    """any: train as soon as somebody is here; all: wait until `minimum` volunteers are."""
    maximum: int = 1000
    """Volunteers at once, the host's own worker not counted."""
    validation: int | None = None
    """Records kept out of training to steer it; by default a tenth, at most 5,000."""

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum <= 1000 or self.maximum < 1:
            raise JobFileError(
                f"minimum {self.minimum} and maximum {self.maximum} volunteers do not fit.",
                advice="Give 0 ≤ minimum ≤ maximum ≤ 1000.",
            )
        if self.start not in ("any", "all"):
            raise JobFileError(f"start is {self.start!r}.", advice="Write any or all.")
        if self.start == "all" and self.minimum == 0:
            raise JobFileError(
                "start = all waits for the whole roster, but no volunteers are asked for.",
                advice="Give minimum: how many volunteers to wait for.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything a run needs; nothing in here knows PyTorch."""

    job: Job
    program: Program
    manifest: Manifest
    blobs: dict[ChunkHash, bytes]
    initial: Vector
    recipe: Recipe
    minimum: int
    maximum: int
    start: Start
    max_gradient_error: float
    note: str
    """What the data set says about itself, e.g. that it stands in for another."""


def prepare(plan: JobPlan, progress: Progress = lambda text: None) -> Prepared:
    """Capture the model and cut the data. Raises ProgramError, DataError or UserError."""
    from crowdgrad.capture.capture import capture  # PyTorch: only a host that captures pays for it

    data = _with_validation(plan)
    progress("Looking at the data")
    check_finite(data)
    classes = _classes(plan, data)
    if classes is not None:
        check_classes(data, classes)
    progress("Cutting the data into shards")
    local = plan.recipe.local()
    largest = local.batch_size_at(plan.stop.epochs - 1)  # a batch lies in one shard, grown too
    manifest, chunks = cut(data, seed=plan.seed, batch_size=largest)
    some = [column[:GATE_RECORDS] for column in data.splits["train"]]
    captured = capture(plan.task, data.fields, progress, some)
    if plan.stop.target is not None and not captured.program.spec.metrics:
        raise JobFileError(
            "There is a target but no metric to reach it.",
            advice="Give the task metrics={...}, or stop by epochs or minutes.",
        )
    program_bytes, manifest_bytes = encode(captured.program), encode_manifest(manifest)
    blobs = dict(chunks)
    program_hash, manifest_hash = content_hash(program_bytes), content_hash(manifest_bytes)
    blobs[program_hash], blobs[manifest_hash] = program_bytes, manifest_bytes
    try:
        job = Job(
            id=new_id(plan.title),
            title=plan.title,
            cause=plan.cause,
            program=program_hash,
            manifest=manifest_hash,
            recipe=plan.recipe.name,
            hyperparameters=hyperparameters(plan.recipe),
            local=local,
            stop=plan.stop,
            seed=plan.seed,
        )
    except ValueError as error:
        raise JobFileError(f"The job makes no sense: {error}.", advice="Mend it.") from None
    return Prepared(
        job=job,
        program=captured.program,
        manifest=manifest,
        blobs=blobs,
        initial=captured.parameters.copy(),
        recipe=plan.recipe,
        minimum=plan.minimum,
        maximum=plan.maximum,
        start=plan.start,
        max_gradient_error=captured.max_gradient_error,
        note=data.note,
    )


def _classes(plan: JobPlan, data: DataSet) -> int | None:
    """How many classes the model tells apart, where example and data agree that it does."""
    from crowdgrad.capture.capture import classes_of

    if len(data.fields) != len(plan.task.example) or data.fields[-1].shape != ():
        return None  # `capture` says what does not fit
    return classes_of(plan.task)


def new_id(title: str) -> JobId:
    """A name for a run's folder that sorts by time, says what it is, and does not collide."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split()
    slug = "-".join(words)[:24].strip("-") or "job"
    return JobId(f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}-{secrets.token_hex(2)}")


def _with_validation(plan: JobPlan) -> DataSet:
    if plan.data.splits.get("validation"):
        return plan.data
    records = plan.data.records("train")
    wanted = plan.validation
    if wanted is None:
        wanted = min(MAX_VALIDATION, max(1, int(records * VALIDATION_SHARE)))
    if not 0 < wanted < records:
        raise JobFileError(
            f"{wanted} of {records} records cannot be kept for validation.",
            advice="Keep at least one, and leave at least one to train on.",
        )
    return split_off(plan.data, "validation", records=wanted, seed=plan.seed)


def describe(prepared: Prepared) -> dict[str, object]:
    """The part of `job.json` that is known before training."""
    job = prepared.job
    return {
        "id": job.id,
        "title": job.title,
        "cause": job.cause,
        "recipe": job.recipe,
        "hyperparameters": dict(job.hyperparameters),
        "stop": asdict(job.stop),
        "seed": job.seed,
        "program": job.program,
        "manifest": job.manifest,
        "parameters": prepared.program.spec.size,
        "data": {
            "title": prepared.manifest.title,
            "note": prepared.note,
            "records": {split: prepared.manifest.records(split) for split in SPLITS},
        },
    }
