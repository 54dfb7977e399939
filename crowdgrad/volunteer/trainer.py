"""The trainer process: checks the program, then turns units into updates until the pipe ends.

It has no network, no keys and writes no files: parameters, data and updates lie in the memory it
inherits, and it hears of units on its standard input. When the agent goes, so does the trainer: by
end-of-file everywhere, and on Linux at once, by the parent-death signal.

    python -m crowdgrad.volunteer.trainer ARENA_FD
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import BinaryIO, Final

import numpy as np

from crowdgrad.data.shards import decode_manifest, shard_arrays
from crowdgrad.domain.data import Split
from crowdgrad.domain.work import Unit, UnitKind
from crowdgrad.errors import ComputeError, CrowdgradError
from crowdgrad.numerics.noise import order
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.planner.batches import BatchPlan, EpochPlans
from crowdgrad.process import die_with_parent
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import check
from crowdgrad.program.engines.base import Batch, Column, Engine, UnitResult, UnitWork
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
        self._engine: Engine = _load(program, setup.threads)
        self._manifest = decode_manifest(bytes(setup.plan.manifest.of(self._memory)))
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
            samples=result.samples,
            loss=result.loss,
            metrics=result.metrics,
            compute_s=time.perf_counter() - started,
        )

    def _result(self, ask: talk.Compute) -> UnitResult:
        work = UnitWork(
            unit=ask.unit,
            local=self._setup.local,
            seed=self._setup.seed,
            batches=[self._batch(ask.unit, number) for number in ask.numbers],
            rate=ask.rate,
            lane=ask.slot,
            fresh=ask.fresh,
            add=ask.add,
        )
        regions = self._setup.plan.slots[ask.slot]
        parameters = as_vector(regions.parameters.of(self._memory))
        if ask.unit.kind == "train":
            update = as_vector(regions.update.of(self._memory))
            return self._engine.train(work, parameters, update)
        return self._engine.evaluate(work, parameters)

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
        return Batch(number=number, fields=tuple(column[rows] for column in columns))

    def _plan(self, unit: Unit) -> BatchPlan:
        if unit.kind not in self._plans:
            split = SPLITS[unit.kind]
            self._plans[unit.kind] = EpochPlans.of(self._manifest, split, self._setup.local)
        # Batches grow with the epochs; those of an evaluation stay as they were in the first.
        return self._plans[unit.kind].at(unit.epoch if unit.kind == "train" else 0)

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


def _load(program: object, threads: int) -> Engine:
    # Only now, after the check, is the runtime loaded into this process.
    from crowdgrad.domain.program import Program
    from crowdgrad.program.engines.onnx import OnnxEngine

    assert isinstance(program, Program)
    return OnnxEngine(program, threads=threads)


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
    _send(say, talk.Ready(engine=type(trainer._engine).__name__))
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
