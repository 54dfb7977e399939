"""The trainer process: checks the program, then turns units into updates until the pipe ends.

It has no network, no keys and writes no files: parameters, data and updates lie in the memory it
inherits, and it hears of units on its standard input. Where the machine's owner has named a model
of their own, PyTorch computes with that one (`capture.trusted`); otherwise nothing is imported that
is not ours. When the agent goes, so does the trainer: by end-of-file everywhere, and on Linux at
once, by the parent-death signal.

    python -m crowdgrad.volunteer.trainer ARENA_FD
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, overload

import numpy as np

from crowdgrad.data.shards import decode_manifest, shard_arrays
from crowdgrad.domain.data import Split
from crowdgrad.domain.program import Program
from crowdgrad.domain.work import Unit, UnitKind
from crowdgrad.errors import ComputeError, CrowdgradError, missing_module
from crowdgrad.numerics.noise import order
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.planner.batches import BatchPlan, EpochPlans
from crowdgrad.process import die_with_parent
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import check
from crowdgrad.program.engines.base import (
    Batch,
    Column,
    Engine,
    UnitResult,
    UnitWork,
    as_inputs,
)
from crowdgrad.program.engines.replica import stepping
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena

LOW_PRIORITY = 10
ORDERS_KEPT = 64
SPLITS: Final[dict[UnitKind, Split]] = {"train": "train", "validate": "validation", "test": "test"}


class Trainer:
    def __init__(self, setup: talk.Setup, arena: Arena) -> None:
        """Raises ProgramRefused, for program or local rule, before any runtime has seen them."""
        self._setup = setup
        self._memory = arena.memory
        program = decode(bytes(setup.plan.program.of(self._memory)))
        check(program)
        stepping(setup.local.rule)
        self._spec = program.spec
        self._manifest = decode_manifest(bytes(setup.plan.manifest.of(self._memory)))
        self._engine, self.engine_name = self._load(program)
        self._plans: dict[str, EpochPlans] = {}
        self._orders: dict[tuple[int, int], Column] = {}
        self._shards: dict[int, tuple[Column, ...]] = {}

    def compute(self, ask: talk.Compute) -> talk.Computed:
        started = time.perf_counter()
        result = self._result(ask)
        if self._setup.pace_s > 0 and ask.unit.kind == "train":  # a host waits for its evaluations
            time.sleep(self._setup.pace_s * len(ask.numbers))
        return talk.Computed(
            unit=ask.unit.id,
            samples=self._plan(ask.unit).samples(ask.numbers.start, len(ask.numbers)),
            loss=result.loss,
            metrics=result.metrics,
            compute_s=time.perf_counter() - started,
        )

    def _result(self, ask: talk.Compute) -> UnitResult:
        work = UnitWork(
            unit=ask.unit,
            local=self._setup.local,
            seed=self._setup.seed,
            batches=self._batches(ask),
            rate=ask.rate,
            lane=ask.slot,
            fresh=ask.fresh,
            add=ask.add,
        )
        regions = self._setup.plan.slots[ask.slot]
        state = as_vector(regions.state.of(self._memory))
        if ask.unit.kind == "train":
            update = as_vector(regions.update.of(self._memory))
            return self._engine.train(work, state, update)
        return self._engine.evaluate(work, state)

    def _load(self, program: Program) -> tuple[Engine, str]:
        """The engine and its name. Only now, after the check, is a runtime loaded."""
        if self._setup.trusted is not None:
            return self._load_trusted(program, self._setup.trusted)
        from crowdgrad.program.engines.onnx import OnnxEngine

        return OnnxEngine(program, threads=self._setup.threads), "onnxruntime"

    def _load_trusted(self, program: Program, trusted: talk.Trusted) -> tuple[Engine, str]:
        """The owner's own model. Raises what `capture.trusted.open_engine` does, MissingExtra."""
        try:
            from crowdgrad.capture import trusted as own
        except ModuleNotFoundError as error:
            raise missing_module(error) or error from None
        return own.open_named(
            program,
            self._manifest.fields,
            trusted.target,
            Path(trusted.folder),
            device=trusted.device,
            bf16=trusted.bf16,
            compiled=trusted.compile,
            threads=self._setup.threads,
            shared=[
                region.of(self._memory)
                for slot in self._setup.plan.slots
                for region in (slot.state, slot.update)
            ],
        )

    def _batches(self, ask: talk.Compute) -> Sequence[Batch]:
        gather = partial(self._batch, ask.unit)
        if self._setup.trusted is not None:
            return _Later(gather, ask.numbers)
        return [gather(number) for number in ask.numbers]

    def _batch(self, unit: Unit, number: int) -> Batch:
        batches = self._plan(unit)
        if batches.shard_of(number) != unit.shard:
            raise ValueError(f"batch {number} is not of shard {unit.shard}")
        start, stop = batches.rows(number)
        columns = self._columns(unit.shard)
        if unit.kind == "train":
            rows = self._order(unit.epoch, unit.shard, len(columns[0]))[start:stop]
        else:  # the order does not matter: take the records as they lie
            rows = np.arange(start, stop)
        fields = tuple(column[rows] for column in columns)
        return Batch(number=number, fields=as_inputs(self._spec, fields))

    def _plan(self, unit: Unit) -> BatchPlan:
        if unit.kind not in self._plans:
            split = SPLITS[unit.kind]
            self._plans[unit.kind] = EpochPlans.of(
                self._manifest, split, self._setup.local, self._spec
            )
        return self._plans[unit.kind].at(unit.epoch)

    def _columns(self, shard: int) -> tuple[Column, ...]:
        if shard not in self._shards:
            region = self._setup.plan.shards[shard]
            self._shards[shard] = shard_arrays(self._manifest, shard, region.of(self._memory))
        return self._shards[shard]

    def _order(self, epoch: int, shard: int, records: int) -> Column:
        key = (epoch, shard)
        if key not in self._orders:
            if len(self._orders) >= ORDERS_KEPT:
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = order(self._setup.seed, epoch, shard, records)
        return self._orders[key]


class _Later(Sequence[Batch]):
    """Batches that are gathered when they are asked for: a GPU computes meanwhile."""

    def __init__(self, gather: Callable[[int], Batch], numbers: range) -> None:
        self._gather = gather
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Batch]: ...

    def __getitem__(self, index: int | slice) -> Batch | Sequence[Batch]:
        if isinstance(index, slice):
            return _Later(self._gather, self._numbers[index])
        return self._gather(self._numbers[index])


def serve(arena_fd: int, hear: BinaryIO, say: BinaryIO) -> None:
    """Answer the agent until it goes."""
    first = _receive(hear)
    if not isinstance(first, talk.Setup):
        return
    arena = Arena(arena_fd, first.plan.total_bytes)
    try:
        trainer = Trainer(first, arena)
    except (CrowdgradError, ValueError) as error:
        _send(say, _failure(error))
        return
    _send(say, talk.Ready(engine=trainer.engine_name))
    while isinstance(message := _receive(hear), talk.Compute):
        try:
            _send(say, trainer.compute(message))
        except (CrowdgradError, ValueError, KeyError, IndexError, RuntimeError) as error:
            _send(say, _failure(error))


def _failure(error: Exception) -> talk.Failed:
    if isinstance(error, CrowdgradError):
        return talk.Failed(code=error.code, message=error.message, advice=error.advice)
    return talk.Failed(code=ComputeError.code, message=f"{type(error).__name__}: {error}"[:500])


def _receive(hear: BinaryIO) -> talk.ToTrainer | None:
    head = hear.read(talk.LENGTH.size)
    if len(head) < talk.LENGTH.size:
        return None
    length = talk.body_length(head)
    body = hear.read(length)
    return talk.decode_for_trainer(body) if len(body) == length else None


def _send(say: BinaryIO, message: talk.ToAgent) -> None:
    say.write(talk.encode(message))
    say.flush()


def main() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to answer
    with contextlib.suppress(OSError, AttributeError):
        os.nice(LOW_PRIORITY)
    say = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    hear = os.fdopen(0, "rb", buffering=1 << 16)
    with contextlib.suppress(BrokenPipeError):
        serve(int(sys.argv[1]), hear, say)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
