"""How fast a program's step is here, against the same step in PyTorch.

Both on one thread, on the same records, in turns (so that whatever else the machine does meets
both), the median of each. A step is loss, gradients and new buffers; the optimiser is left out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crowdgrad.capture.capture import Captured
from crowdgrad.capture.fields import Reader, Records, draw_batch, readers
from crowdgrad.capture.quiet import untouched
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine

WARM_UP = 2
FEWEST = 3
"""Rounds, however slow they are."""
_SEED = 0x73706565


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    batch: int
    program_ms: float
    torch_ms: float
    rounds: int

    @property
    def ratio(self) -> float:
        """The program's speed where PyTorch's is one."""
        return self.torch_ms / self.program_ms

    @property
    def samples_per_s(self) -> float:
        return 1000 * self.batch / self.program_ms


def measure(
    task: Task,
    captured: Captured,
    *,
    batch: int,
    seconds: float,
    fields: tuple[Field, ...] | None = None,
    records: Records | None = None,
) -> Speed:
    """Time both for about `seconds`; the module is left as it was."""
    reading = readers(task, fields, records, weighted=captured.program.spec.weighted)
    generator = torch.Generator().manual_seed(_SEED)
    stored = draw_batch(reading, batch, generator)
    with untouched(task.model, task.loss), _one_thread():
        task.model.train()
        steps = (_program_step(captured, stored), lambda: _torch_step(task, reading, stored))
        for step in steps * WARM_UP:
            step()
        times = _alternate(steps, seconds)
    return Speed(
        batch=batch,
        program_ms=1000 * statistics.median(times[0]),
        torch_ms=1000 * statistics.median(times[1]),
        rounds=len(times[0]),
    )


def _program_step(captured: Captured, stored: list[Tensor]) -> Callable[[], object]:
    engine = OnnxEngine(captured.program, threads=1)
    unit = Unit(id=UnitId(0), kind="train", epoch=0, shard=0, first_batch=0, batches=1)
    batch = Batch(number=0, fields=tuple(column.numpy() for column in stored))
    local = LocalSteps(batch_size=batch.samples)
    work = UnitWork(unit=unit, local=local, seed=_SEED, batches=[batch])
    update = np.zeros(captured.program.spec.update_words, np.float32)
    return lambda: engine.train(work, captured.state, update)


def _torch_step(task: Task, reading: tuple[Reader, ...], stored: list[Tensor]) -> None:
    """What a plain loop does of a batch: read it, run the model, ask for the gradients."""
    read = [reader.read(column) for reader, column in zip(reading, stored, strict=True)]
    inputs, rest = read[: len(task.inputs)], read[len(task.inputs) :]
    given = task.loss(task.model(*inputs), *rest[: len(task.targets)])
    losses = list(given.values()) if isinstance(given, Mapping) else [given]
    total = torch.stack([loss.mean() for loss in losses]).sum()
    wanted = [parameter for parameter in task.model.parameters() if parameter.requires_grad]
    torch.autograd.grad(total, wanted, allow_unused=True)


def _alternate(steps: tuple[Callable[[], object], ...], seconds: float) -> tuple[list[float], ...]:
    times: tuple[list[float], ...] = tuple([] for _ in steps)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < FEWEST:
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
    return times


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
