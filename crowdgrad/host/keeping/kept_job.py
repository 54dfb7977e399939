"""`resume/job.pack`: a prepared job as a run folder keeps it, so that it can go on anywhere.

Program, manifest and data lie in it as they travel, named by their hashes; the rest is what only a
host knows: the recipe as a table, names, notes. Nothing in it is code, so going on needs neither
the job file nor the model's source. It is written once, before the first checkpoint. Chunks of a
data folder lie beside it (`kept_data.py`), under the manifest they have by now.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from crowdgrad.data.folder import DataFolder, missing_chunks, open_folder
from crowdgrad.data.shards import content_hash, decode_manifest
from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.job import Job, StoppingRule
from crowdgrad.domain.program import Program
from crowdgrad.domain.spreading import Spreading
from crowdgrad.errors import DataAltered, DataMalformed, JobFileError
from crowdgrad.files import REAL, Disk, remove_drafts
from crowdgrad.host.appeal import NO_APPEAL, Appeal
from crowdgrad.host.blobs import Blobs
from crowdgrad.host.earlier import Earlier
from crowdgrad.host.job import NEEDED, Prepared, Start
from crowdgrad.host.keeping import kept_data
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.batches import largest_batch
from crowdgrad.planner.growing import unusable
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import check
from crowdgrad.recipes import from_table
from crowdgrad.recipes.table import as_table
from crowdgrad.store import packed

NAME = "job.pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of a job besides its blobs."""

    job: Job
    recipe: dict[str, object]
    minimum: int
    maximum: int
    start: Start
    max_gradient_error: float
    note: str = ""
    names: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    classes: int | None = None
    split_seed: int = 0
    started_from: str = ""
    continues: str = ""
    continued: int = 0
    appeal: Appeal = NO_APPEAL
    spreading: Spreading = NEEDED
    on_disk: bool = False
    """Its chunks lie in a folder of their own."""
    source: str = ""
    """The data folder that may have grown since, on the machine it was hosted on."""
    began_with: str = ""
    """The manifest it was published with, where it had grown before this was written."""


def save(folder: Path, prepared: Prepared, disk: Disk = REAL) -> None:
    """Durable when it returns. Raises OSError."""
    earlier = prepared.earlier
    kept = Kept(
        job=prepared.job,
        recipe=as_table(prepared.recipe),
        minimum=prepared.minimum,
        maximum=prepared.maximum,
        start=prepared.start,
        max_gradient_error=prepared.max_gradient_error,
        note=prepared.note,
        names=dict(prepared.names),
        notes=prepared.notes,
        classes=prepared.classes,
        split_seed=prepared.split_seed,
        started_from=prepared.started_from,
        continues=earlier.id if earlier is not None else "",
        continued=earlier.times + 1 if earlier is not None else 0,
        appeal=prepared.appeal,
        spreading=prepared.spreading,
        on_disk=prepared.folder is not None,
        source=str(prepared.source or ""),
        began_with=prepared.began_with or "",
    )
    remove_drafts(disk, folder, NAME)  # of hosts that were killed while they wrote it
    blobs = prepared.blobs
    if prepared.folder is not None:
        blobs = {name: blobs[name] for name in (prepared.job.program, prepared.job.manifest)}
    packed.write(disk, folder / NAME, msgspec.msgpack.encode(kept), blobs)


def load(folder: Path, disk: Disk = REAL) -> Prepared:
    """The job, all hashes verified; its first parameters are not kept: a checkpoint has later ones.

    Raises OSError, DataAltered, DataMalformed, ProgramRefused or RecipeError.
    """
    found = packed.read(disk, folder / NAME)
    try:
        kept = msgspec.msgpack.decode(found.header, type=Kept)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataMalformed(f"{folder / NAME} cannot be understood: {error}.") from None
    blobs = {ChunkHash(name): bytes(part) for name, part in found.parts.items()}
    for name, data in blobs.items():
        if content_hash(data) != name:
            raise DataAltered(f"{folder / NAME}: the bytes named {name[:12]}… are others.")
    if kept.job.program not in blobs or kept.job.manifest not in blobs:
        raise DataMalformed(f"{folder / NAME} holds no program or no manifest.")
    program = decode(blobs[kept.job.program])
    manifest = decode_manifest(blobs[kept.job.manifest])
    if kept.on_disk:
        return _with_data(kept, _prepared(kept, program, manifest, blobs), folder)
    missing = {c.hash for shard in manifest.shards for c in shard.chunks} - set(blobs)
    if missing:
        raise DataMalformed(f"{folder / NAME} lacks {len(missing)} chunks of its data.")
    return _prepared(kept, program, manifest, blobs)


def _prepared(
    kept: Kept, program: Program, manifest: Manifest, blobs: dict[ChunkHash, bytes]
) -> Prepared:
    return Prepared(
        job=kept.job,
        program=program,
        manifest=manifest,
        blobs=blobs,
        initial=np.empty(0, np.float32),
        recipe=from_table(kept.job.recipe, kept.recipe),
        minimum=kept.minimum,
        maximum=kept.maximum,
        start=kept.start,
        max_gradient_error=kept.max_gradient_error,
        note=kept.note,
        names=kept.names,
        notes=kept.notes,
        classes=kept.classes,
        split_seed=kept.split_seed,
        started_from=kept.started_from,
        earlier=_earlier(kept) if kept.continues else None,
        appeal=kept.appeal,
        spreading=kept.spreading,
    )


def _with_data(kept: Kept, prepared: Prepared, folder: Path) -> Prepared:
    """With the chunks that lie beside it, and what was added to them since. Raises DataError."""
    data = open_folder(folder / kept_data.FOLDER)
    why = unusable(prepared.manifest, data.manifest)
    if why:
        raise DataAltered(f"{data.path} is not the data of its run: {why}.")
    missing = missing_chunks(data.path, data.manifest.shards)
    if missing:
        raise DataMalformed(f"{data.path} lacks {len(missing):,} chunks of its data.")
    job = prepared.job
    grown = data.name != job.manifest
    return replace(
        prepared,
        job=replace(job, manifest=data.name),
        manifest=data.manifest,
        blobs=_blobs_of(prepared, data),
        folder=data,
        source=Path(kept.source) if kept.source else None,
        began_with=ChunkHash(kept.began_with) or (job.manifest if grown else None),
    )


def _blobs_of(prepared: Prepared, data: DataFolder) -> Blobs:
    program = prepared.job.program
    return Blobs(
        (program, prepared.blobs[program]), (data.name, data.raw), data.manifest, [data.path]
    )


def _earlier(kept: Kept) -> Earlier:
    """The run that this one had continued: only its name matters any more."""
    return Earlier(
        folder=Path(),
        id=kept.continues,
        title=kept.job.title,
        split_seed=kept.split_seed,
        times=kept.continued - 1,
        records={},
        told={},
    )


def going_on(
    prepared: Prepared, state: Vector, epochs: int | None, *, only_epochs: bool
) -> Prepared:
    """The job from this state on, until `epochs` are done where that is wanted.

    `only_epochs`: whatever else had ended it does not end it again. Raises JobFileError.
    """
    spec, job = prepared.program.spec, prepared.job
    if len(state) != spec.state_words:
        raise JobFileError(
            f"The checkpoint holds {len(state):,} numbers; the program has {spec.state_words:,}.",
            advice="It belongs to another job.",
        )
    if epochs is not None:
        try:
            rule = replace(job.stop, epochs=epochs)
        except ValueError as error:
            raise JobFileError(f"{error}.", advice="Give another number of epochs.") from None
        job = replace(job, stop=StoppingRule(epochs=epochs) if only_epochs else rule)
    records = [shard.records for shard in prepared.manifest.shards]
    check(prepared.program, largest_batch(job.local, spec, records, job.stop.epochs))
    return replace(prepared, job=job, initial=state)
