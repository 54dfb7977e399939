"""A job as its host describes it, and as it is published.

`JobPlan` (public name `cg.Job`) holds the live objects: a task with a PyTorch model, a data set, a
recipe. `prepare` turns it into what travels: a program, a manifest, chunks, the first parameters.
A data set in memory is cut for the recipe; a prepared data folder is taken as it lies on the disk.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crowdgrad.capture.collecting import uncollected
from crowdgrad.data.dataset import DataSet, split_off
from crowdgrad.data.folder import DataFolder
from crowdgrad.data.inspect import check_classes, check_finite
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain import cards
from crowdgrad.domain.data import ChunkHash, Field, Manifest, Split
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.matching import Requirements, Visibility
from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.domain.spreading import Spreading
from crowdgrad.domain.work import LocalSteps, VolunteerId
from crowdgrad.errors import DataMalformed, JobFileError, RecipeError
from crowdgrad.host.appeal import NO_APPEAL, NO_REQUIREMENTS, Appeal
from crowdgrad.host.blobs import Blobs
from crowdgrad.host.door import Admit
from crowdgrad.host.earlier import Earlier, read_run
from crowdgrad.host.folder_data import (
    check_usable,
    fields_of,
    look_through,
    records_of,
    small_shards,
    some_of,
)
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.batches import EpochPlans, largest_batch
from crowdgrad.program.artifact import encode
from crowdgrad.program.check import check
from crowdgrad.recipes.base import Recipe, hyperparameters
from crowdgrad.recipes.crowd import Crowd

if TYPE_CHECKING:
    from crowdgrad.capture.capture import Captured
    from crowdgrad.capture.task import Task

VALIDATION_SHARE = 0.1
MAX_VALIDATION = 5000
GATE_RECORDS = 256
"""Real records that the program and autograd are compared on."""
Progress = Callable[[str], None]
Start = Literal["any", "all"]
NEEDED = Spreading()
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    task: Task
    data: DataSet | DataFolder
    title: str = "untitled"
    cause: str = ""
    description: str = ""
    """For people who think of helping: what it is, what for, by whom; may have several lines."""
    contact: str = ""
    """Where people reach whoever hosts."""
    recipe: Recipe = field(default_factory=Crowd)
    stop: StoppingRule = field(default_factory=lambda: StoppingRule(epochs=5))
    seed: int = 0
    minimum: int = 0
    """Volunteers the matchmaker sends here before it serves later jobs."""
    start: Start = "any"
    """any: train as soon as somebody is here; all: wait until `minimum` volunteers are."""
    maximum: int = 1000
    """Volunteers at once, the host's own worker not counted."""
    visibility: Visibility = "public"
    """Who finds it at the matchmaker: everybody, who has its code or link, or who is invited."""
    invited: Sequence[str] = ()
    """Ids of the volunteers that may help, where only a group may."""
    admit: Admit | None = None
    """Whom the host lets in: `anyone` who dials it, or those its matchmaker has `introduced`; None:
    the latter where it is published."""
    requirements: Requirements = NO_REQUIREMENTS
    """What it needs of every volunteer; how much data there is to fetch is added."""
    validation: int | None = None
    """Records kept out of training to steer it; by default a tenth, at most 5,000. A data folder
    has its own."""
    weights: str | Path | None = None
    """What to start from instead of the model's own weights: a file, or a run folder."""
    spreading: Spreading = NEEDED
    """How the data reaches the volunteers."""
    continue_from: str | Path | None = None
    """The folder of a run to go on from: its parameters, buffers and splits."""

    def __post_init__(self) -> None:
        if self.weights is not None and self.continue_from is not None:
            raise JobFileError(
                "A job starts from weights or continues a run, not both.", advice="Leave one out."
            )
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
        if self.spreading.share == "segments" and self.recipe.serving().assignment != "segments":
            raise JobFileError(
                "Each volunteer gets just its own segments where the recipe gives it some.",
                advice='Choose recipe averaging with segments, or share = "needed".',
            )
        self.appeal.check()

    @property
    def appeal(self) -> Appeal:
        """What is said to those who might help."""
        return Appeal(
            description=self.description,
            contact=self.contact,
            visibility=self.visibility,
            invited=tuple(map(VolunteerId, self.invited)),
            requirements=self.requirements,
            admit=self.admit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything a run needs; nothing in here knows PyTorch."""

    job: Job
    program: Program
    manifest: Manifest
    blobs: Mapping[ChunkHash, bytes]
    """Program, manifest and chunks; those of a data folder lie on the disk (`Blobs`)."""
    initial: Vector
    """The state that training starts from: parameters, then buffers."""
    recipe: Recipe
    minimum: int
    maximum: int
    start: Start
    max_gradient_error: float
    note: str
    """What the data set says about itself, e.g. that it stands in for another."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Every key of the model's state dict → the tensor of the program that holds it."""
    notes: tuple[str, ...] = ()
    """What people should know of how the model travels."""
    classes: int | None = None
    """How many a classification tells apart."""
    split_seed: int = 0
    started_from: str = ""
    """Where its first weights come from, if not from the model itself."""
    earlier: Earlier | None = None
    """The run it continues."""
    appeal: Appeal = NO_APPEAL
    spreading: Spreading = NEEDED
    folder: DataFolder | None = None
    """Where its chunks lie, if not in memory: the data folder, or what the run has kept of it."""
    source: Path | None = None
    """The data folder that may grow, where the job is `growing`."""
    began_with: ChunkHash | None = None
    """The manifest it was published with, where it has grown since."""

    @property
    def label(self) -> int:
        """The number of the field that holds the classes, where there are any."""
        spec = self.program.spec
        return len(spec.inputs) - 1 - spec.weighted

    @property
    def volunteer_bytes(self) -> int:
        """What a volunteer fetches at most: program, manifest and the training data, each once."""
        data = sum(shard.bytes for shard in self.manifest.shards if shard.split == "train")
        return data + len(self.blobs[self.job.program]) + len(self.blobs[self.job.manifest])


def prepare(plan: JobPlan, progress: Progress = lambda text: None) -> Prepared:
    """Capture the model and cut the data. Raises ProgramError, DataError or UserError."""
    earlier = read_run(Path(plan.continue_from)) if plan.continue_from is not None else None
    data, classes = _look(plan, earlier, progress)
    captured = _capture(plan, earlier, data, progress)
    spec, local = captured.program.spec, plan.recipe.local()
    if plan.stop.target is not None and not spec.metrics:
        raise JobFileError(
            "There is a target but no metric to reach it.",
            advice="Give the task metrics={...}, or stop by epochs or minutes.",
        )
    largest = local.batch_size_at(plan.stop.epochs - 1)  # a batch lies in one shard, grown too
    _check_batches(spec, {local.batch_size, largest})
    cut = _cut(plan, data, captured.program, largest, progress)
    records = [shard.records for shard in cut.manifest.shards]
    check(captured.program, largest_batch(local, spec, records, plan.stop.epochs))
    folder = data if isinstance(data, DataFolder) else None
    growing = folder is not None and folder.growing
    return Prepared(
        job=_job(plan, cut, earlier, growing=growing),
        program=captured.program,
        manifest=cut.manifest,
        blobs=cut.blobs,
        initial=captured.state.copy(),
        recipe=plan.recipe,
        minimum=plan.minimum,
        maximum=plan.maximum,
        start=plan.start,
        max_gradient_error=captured.max_gradient_error,
        note=data.note if isinstance(data, DataSet) else "",
        names=dict(captured.names),
        notes=(*captured.notes, *_left_out(cut.manifest, local, spec), *cut.notes),
        classes=classes,
        split_seed=plan.seed,
        started_from="" if plan.weights is None else Path(plan.weights).name,
        earlier=earlier,
        appeal=plan.appeal,
        spreading=plan.spreading,
        folder=folder,
        source=folder.path.absolute() if folder is not None and growing else None,
    )


def _look(
    plan: JobPlan, earlier: Earlier | None, progress: Progress
) -> tuple[DataSet | DataFolder, int | None]:
    """The data with all its splits, looked through, and how many classes it has."""
    data = plan.data if isinstance(plan.data, DataFolder) else _with_validation(plan, plan.data)
    if isinstance(data, DataFolder):
        check_usable(data, plan.recipe)
    if earlier is not None:
        earlier.check(seed=plan.seed, records={split: records_of(data, split) for split in SPLITS})
    progress("Looking at the data")
    classes, label = _classes(plan.task, fields_of(data)), len(plan.task.example) - 1
    if isinstance(data, DataFolder):
        look_through(data, range(len(data.manifest.shards)), classes, label)
        return data, classes
    check_finite(data)
    if classes is not None:
        check_classes(data, classes, label)
    return data, classes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Data as it travels, with the program it is for."""

    program: ChunkHash
    name: ChunkHash
    """Of the manifest."""
    manifest: Manifest
    blobs: Mapping[ChunkHash, bytes]
    notes: tuple[str, ...] = ()


def _cut(
    plan: JobPlan,
    data: DataSet | DataFolder,
    program: Program,
    batch_size: int,
    progress: Progress,
) -> _Cut:
    encoded = encode(program)
    name = content_hash(encoded)
    if isinstance(data, DataFolder):
        return _Cut(
            program=name,
            name=data.name,
            manifest=data.manifest,
            blobs=Blobs((name, encoded), (data.name, data.raw), data.manifest, [data.path]),
            notes=small_shards(data.manifest, batch_size),
        )
    progress("Cutting the data into shards")
    manifest, chunks = cut(
        data,
        seed=plan.seed,
        batch_size=batch_size,
        smallest_batch=program.spec.smallest_batch,
    )
    raw = encode_manifest(manifest)
    blobs = {**chunks, name: encoded, content_hash(raw): raw}
    return _Cut(program=name, name=content_hash(raw), manifest=manifest, blobs=blobs)


def _capture(
    plan: JobPlan, earlier: Earlier | None, data: DataSet | DataFolder, progress: Progress
) -> Captured:
    # PyTorch: only a host that captures pays for it.
    from crowdgrad.capture.capture import capture
    from crowdgrad.capture.pretrained import holding_weights

    source = earlier.folder if earlier is not None else plan.weights
    some = list(some_of(data, GATE_RECORDS))
    batch_size = plan.recipe.local().batch_size
    with holding_weights(plan.task.model, Path(source) if source is not None else None):
        return capture(plan.task, fields_of(data), progress, some, batch_size=batch_size)


def _job(plan: JobPlan, data: _Cut, earlier: Earlier | None, *, growing: bool) -> Job:
    try:
        return Job(
            id=new_id(plan.title),
            title=plan.title,
            cause=plan.cause,
            program=data.program,
            manifest=data.name,
            recipe=plan.recipe.name,
            hyperparameters=hyperparameters(plan.recipe),
            local=plan.recipe.local(),
            stop=plan.stop,
            seed=plan.seed if earlier is None else earlier.next_seed(),
            growing=growing,
        )
    except ValueError as error:
        raise JobFileError(f"The job makes no sense: {error}.", advice="Mend it.") from None


def _classes(task: Task, fields: tuple[Field, ...]) -> int | None:
    """How many classes the model tells apart, where example and data agree that it does."""
    with uncollected():  # PyTorch's exporters, for the first time
        from crowdgrad.capture.capture import classes_of

    last = len(task.example) - 1  # one field more may follow: the weights of the samples
    if not last < len(fields) <= last + 2 or fields[last].shape != ():
        return None  # `capture` says what does not fit
    return classes_of(task)


def _check_batches(spec: ProgramSpec, sizes: set[int]) -> None:
    """Whether the program can take the recipe's batches, first and last. Raises RecipeError."""
    if spec.fixed_batch and sizes != {spec.fixed_batch}:
        raise RecipeError(
            f"the model was captured for batches of {spec.fixed_batch} alone, the recipe's have "
            f"{' to '.join(map(str, sorted(sizes)))} samples.",
            advice=f"Give the recipe batch_size = {spec.fixed_batch} and no growth.",
        )
    if min(sizes) < spec.smallest_batch:
        raise RecipeError(
            f"the model cannot train on batches of {min(sizes)} sample.",
            advice=f"Give the recipe a batch_size of at least {spec.smallest_batch}.",
        )


def _left_out(manifest: Manifest, local: LocalSteps, spec: ProgramSpec) -> tuple[str, ...]:
    """What a program of one batch size, or batch normalisation, makes of the ends of shards."""
    notes = []
    for split in SPLITS:
        total, used = manifest.records(split), EpochPlans.of(manifest, split, local, spec).records
        if split == "train" and used < spec.smallest_batch:
            raise DataMalformed(
                f"{total} training records are too few for one batch.",
                advice=f"The program takes batches of {spec.fixed_batch or spec.smallest_batch}.",
            )
        if used < total:
            notes.append(
                f"{total - used:,} of {total:,} {split} records are left out: they do not fill a "
                f"batch of {spec.fixed_batch}."
            )
    return tuple(notes)


def new_id(title: str) -> JobId:
    """A name for a run's folder that sorts by time, says what it is, and does not collide."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in title.lower()).split()
    slug = "-".join(words)[:24].strip("-") or "job"
    return JobId(f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}-{secrets.token_hex(2)}")


def validation_records(plan: JobPlan, records: int) -> int:
    """How many of so many training records are kept out, where the data has no split for it."""
    if plan.validation is not None:
        return plan.validation
    return min(MAX_VALIDATION, max(1, int(records * VALIDATION_SHARE)))


def _with_validation(plan: JobPlan, data: DataSet) -> DataSet:
    if data.splits.get("validation"):
        return data
    records = data.records("train")
    wanted = validation_records(plan, records)
    if not 0 < wanted < records:
        raise JobFileError(
            f"{wanted} of {records} records cannot be kept for validation.",
            advice="Keep at least one, and leave at least one to train on.",
        )
    return split_off(data, "validation", records=wanted, seed=plan.seed)


def describe(prepared: Prepared) -> dict[str, object]:
    """The part of `job.json` that is known before training."""
    job, spec, earlier = prepared.job, prepared.program.spec, prepared.earlier
    return {
        "id": job.id,
        "title": job.title,
        "cause": job.cause,
        "description": prepared.appeal.description,
        "contact": prepared.appeal.contact,
        "recipe": job.recipe,
        "hyperparameters": dict(job.hyperparameters),
        "stop": asdict(job.stop),
        "seed": job.seed,
        "split_seed": prepared.split_seed,
        "weights": prepared.started_from or None,
        "continues": earlier.id if earlier else None,
        "continued": earlier.times + 1 if earlier else 0,
        "notes": list(prepared.notes),
        "program": job.program,
        "manifest": job.manifest,
        "parameters": spec.size,
        "metrics": [asdict(metric) for metric in spec.metrics],
        "classes": prepared.classes,
        "forward_noise": [asdict(noise) for noise in spec.forward_noise],
        "data": {
            "title": prepared.manifest.title,
            "note": prepared.note,
            "records": {split: prepared.manifest.records(split) for split in SPLITS},
            "growing": job.growing,
            "card": cards.as_json(prepared.manifest.card),
        },
    }
