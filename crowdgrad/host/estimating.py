"""What a job will cost, before it begins: from its program, its data, and a few steps tried here.

A step takes a + b·(samples of the batch): both are told from steps at two batch sizes, by the
engine that volunteers use, on one thread. So sliders can be moved without trying again (`rescale`).
Volunteers are taken to be as fast as one thread of this machine and never to wait for the network:
what comes out is what can be hoped for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from crowdgrad.data.dataset import DataSet
from crowdgrad.domain.work import CODED_BYTES, CodecName, LocalSteps, Unit, UnitId, wire_place
from crowdgrad.host.folder_data import Columns, fields_of, records_of, some_of
from crowdgrad.host.job import JobPlan, validation_records
from crowdgrad.program.engines.base import Batch, UnitWork

if TYPE_CHECKING:
    from crowdgrad.capture.capture import Captured

ROUNDS = 5
SMALL = 4
"""The other batch is a quarter of the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a job takes on this machine alone."""

    parameters: int
    bytes_per_update: int
    """With the recipe's codec."""
    data_bytes: int
    """Of the training records: what a volunteer fetches at most."""
    samples: int
    """Records trained on in an epoch."""
    batch_size: int
    epochs: int
    volunteers: int
    """Who train besides the host's own worker."""
    steps_per_epoch: int
    step_s: float | None
    """One gradient, on one thread; None where nothing was measured, as in all times below."""
    samples_per_s: float | None
    """Of all of them together."""
    epoch_s: float | None
    total_s: float | None
    memory_bytes: int
    """State, update and values in between, at this batch size."""
    step_fixed_s: float = 0.0
    """What of a step does not depend on the batch, …"""
    step_sample_s: float = 0.0
    """… and what each sample adds."""
    memory_fixed_bytes: int = 0
    memory_sample_bytes: int = 0
    minutes: float | None = None
    """The time after which training ends in any case."""
    fixed_batch: int = 0
    """The only batch size the program takes; 0: any."""
    bytes_by_codec: dict[CodecName, int] = field(default_factory=dict)
    """What an update would have with each."""


def rescale(estimate: Estimate, *, batch_size: int, epochs: int, volunteers: int = 0) -> Estimate:
    """The same job with other numbers. Pure."""
    batch = max(1, estimate.fixed_batch or batch_size)
    steps = -(-estimate.samples // batch)
    changed = replace(
        estimate,
        batch_size=batch,
        epochs=epochs,
        volunteers=volunteers,
        steps_per_epoch=steps,
        memory_bytes=estimate.memory_fixed_bytes + estimate.memory_sample_bytes * batch,
    )
    if estimate.step_s is None:
        return changed
    step_s = estimate.step_fixed_s + estimate.step_sample_s * batch
    rounds = -(-steps // (1 + volunteers))  # nobody computes half a step
    epoch_s = rounds * step_s
    total_s = epochs * epoch_s
    if estimate.minutes is not None:
        total_s = min(total_s, 60 * estimate.minutes)
    return replace(
        changed,
        step_s=step_s,
        samples_per_s=estimate.samples / epoch_s if epoch_s > 0 else None,
        epoch_s=epoch_s,
        total_s=total_s,
    )


def of_plan(plan: JobPlan, captured: Captured, *, probe: bool = True) -> Estimate:
    """`probe`: try a few steps; without, there are no times."""
    spec = captured.program.spec
    batch = spec.fixed_batch or plan.recipe.local().batch_size
    samples = _samples(plan)
    fixed_s, sample_s = _line(captured, plan, batch) if probe else (0.0, 0.0)
    memory = captured.memory
    by_codec = {codec: wire_place(codec, spec.size, spec.update_words) for codec in CODED_BYTES}
    state = 4 * (spec.state_words + spec.update_words)
    bare = replace(
        NOTHING,
        parameters=spec.size,
        bytes_per_update=by_codec[plan.recipe.local().codec],
        bytes_by_codec=by_codec,
        data_bytes=samples * sum(one.bytes for one in fields_of(plan.data)),
        samples=samples,
        step_s=fixed_s + sample_s * batch if probe else None,
        step_fixed_s=fixed_s,
        step_sample_s=sample_s,
        memory_fixed_bytes=state + memory.fixed_bytes,
        memory_sample_bytes=memory.bytes_per_sample,
        minutes=plan.stop.minutes,
        fixed_batch=spec.fixed_batch,
    )
    return rescale(bare, batch_size=batch, epochs=plan.stop.epochs)


NOTHING = Estimate(
    parameters=0, bytes_per_update=0, data_bytes=0, samples=0, batch_size=1, epochs=0, volunteers=0,
    steps_per_epoch=0, step_s=None, samples_per_s=None, epoch_s=None, total_s=None, memory_bytes=0,
)  # fmt: skip


def _samples(plan: JobPlan) -> int:
    records = records_of(plan.data, "train")
    if isinstance(plan.data, DataSet) and not plan.data.splits.get("validation"):
        return max(0, records - validation_records(plan, records))
    return records


def _line(captured: Captured, plan: JobPlan, batch: int) -> tuple[float, float]:
    """Seconds of a step: what it always takes, and what each sample adds."""
    spec = captured.program.spec
    records = some_of(plan.data, max(1, batch))
    large = _measure(captured, records, batch)
    small_batch = max(spec.smallest_batch, batch // SMALL)
    if spec.fixed_batch or small_batch >= batch:
        return 0.0, large / batch
    small = _measure(captured, records, small_batch)
    slope = max(0.0, (large - small) / (batch - small_batch))
    return max(0.0, large - slope * batch), slope


def _measure(captured: Captured, records: Columns, batch: int) -> float:
    """The median of a few steps, the first one not counted."""
    step = _step(captured, records, batch)
    step()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _step(captured: Captured, records: Columns, batch: int) -> Callable[[], object]:
    from crowdgrad.program.engines.onnx import OnnxEngine

    spec = captured.program.spec
    engine = OnnxEngine(captured.program, threads=1)
    rows = np.arange(batch) % len(records[0])  # a small data set more than once
    columns = tuple(np.ascontiguousarray(column[rows]) for column in records)
    work = UnitWork(
        unit=Unit(id=UnitId(0), kind="train", epoch=0, shard=0, first_batch=0, batches=1),
        local=LocalSteps(batch_size=batch),
        seed=0,
        batches=[Batch(number=0, fields=columns)],
    )
    update = np.zeros(spec.update_words, np.float32)
    return lambda: engine.train(work, captured.state, update)
