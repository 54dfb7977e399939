"""The trainer process: checks the program, then turns units into updates until the pipe ends.

It has no network, no keys, no files: `start_trainer` has put up the walls before this module is
even imported, parameters, data and updates lie in the memory it inherits, and it hears of units on
its standard input. The order matters:

    check      our own reader judges the program; no runtime is loaded yet
    load       the runtime, and all it wants to open, with a graph of ours
    seal       from now on nothing can be opened at all
    begin      only now, if the owner agrees, does the runtime see the stranger's graph

Where the machine's owner has named a model of their own, PyTorch computes with that one
(`capture.trusted`), without walls: it is their own code. When the agent goes, so does the trainer:
by end-of-file everywhere, and on Linux at once, by the parent-death signal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, overload

import msgspec
import numpy as np

from crowdgrad.data.shards import decode_manifest, shard_arrays
from crowdgrad.domain.program import Program
from crowdgrad.domain.work import Unit
from crowdgrad.errors import ComputeError, CrowdgradError, ProgramRefused, missing_module
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.noise import order
from crowdgrad.numerics.vectors import Vector, as_vector
from crowdgrad.planner.batches import BatchPlan, EpochPlans
from crowdgrad.planner.growing import outgrows, unusable
from crowdgrad.planner.rooms import may_be_needed
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import Checked, check
from crowdgrad.program.engines.base import (
    Batch,
    Column,
    Engine,
    UnitResult,
    UnitWork,
    as_inputs,
)
from crowdgrad.program.engines.onnx_memory import RUNTIME_BYTES, Piece, piece_for, resident_bytes
from crowdgrad.program.engines.replica import held_bytes
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, Region
from crowdgrad.volunteer.pacing import Paced, Pacer
from crowdgrad.volunteer.sandbox.enter import limit_memory, seal
from crowdgrad.volunteer.sandbox.limits import STACK_BYTES
from crowdgrad.volunteer.sandbox.walls import Held

Load = Callable[[Program, int, Piece], Engine]
ORDERS_KEPT = 64
ORDERS_BYTES = 16 << 20
ORDER_ITEM_BYTES = 8
MARGIN = 1.2
"""How far beyond the prediction the memory may grow."""
MAX_WORDS = 500
"""Characters of an error that the agent hears."""
OBJECTS_BYTES = 5
"""What a byte of a manifest takes once objects are made of it."""
ROOM_BYTES = 256 << 20
"""Address space that libraries reserve and hardly touch."""
THREAD_BYTES = STACK_BYTES + (1 << 20)
"""… and each further thread: the runtime waits for ever for one that finds no room."""


class Trainer:
    """One program: checked when it is made, loaded by `begin`."""

    def __init__(self, setup: talk.Setup, arena: Arena) -> None:
        """Raises ProgramRefused, for program or local rule, before any runtime has seen them."""
        self._setup = setup
        self._memory = arena.memory
        self._program = program = decode(bytes(setup.plan.program.of(self._memory)))
        self._spec = spec = program.spec
        samples = spec.fixed_batch or setup.samples or setup.local.batch_size
        found = _checked(program, samples)
        self._piece = piece_for(found, setup.evaluates)
        self.work = max(found.gradient.work, found.forward.work)
        self._manifest = decode_manifest(bytes(setup.plan.manifest.of(self._memory)))
        self.memory_bytes = RUNTIME_BYTES + held_bytes(setup.local, spec) + self._gathered_bytes()
        self.memory_bytes += (
            2 * OBJECTS_BYTES * setup.plan.manifest_room
        )  # of the last and the next
        self.memory_bytes += resident_bytes(program, found, samples, evaluates=setup.evaluates)
        if setup.trusted is None:  # what the owner's own model takes is the owner's to judge
            _check_memory(self.memory_bytes, setup.memory_bytes)
        # A GPU is busy while this process is not.
        self._pacer = Pacer() if setup.trusted is None else Pacer(busy=None)
        self._load: Load | None = None
        self._engine: Engine | None = None
        self._packing = Packing(setup.local.codec, spec.size)
        self._plans: dict[str, EpochPlans] = {}
        self._orders: dict[tuple[int, int], Column] = {}
        self._shards: dict[int, tuple[Column, ...]] = {}
        """By number, where each has its place."""
        self._rooms: dict[int, tuple[int, tuple[Column, ...]]] = {}
        """By room, where they take turns: the shard that was in it last."""

    def close_in(self) -> tuple[Held, ...]:
        """Put up what is left of the walls: the memory is bounded, nothing can be opened any more.

        The runtime is loaded in between: it has files of its own to open.
        """
        reserved = ROOM_BYTES + THREAD_BYTES * (self._setup.threads - 1)
        limit_memory(int(MARGIN * self.memory_bytes) + reserved)
        self._load = _load_runtime()
        return seal(threads=self._setup.threads > 1)

    def begin(self) -> str:
        """Load the program; what computes, in words."""
        if self._setup.trusted is not None:
            self._engine, name = self._load_trusted(self._program, self._setup.trusted)
            return name
        load = self._load or _load_runtime()
        self._engine = load(self._program, self._setup.threads, self._piece)
        return "onnxruntime"

    def compute(self, ask: talk.Compute) -> talk.Computed:
        started = time.perf_counter()
        self._pacer.begin(ask.share)
        try:
            result = self._result(ask)
        finally:
            self._pacer.end()
        if self._setup.pace_s > 0 and ask.unit.kind == "train":  # a host waits for its evaluations
            time.sleep(self._setup.pace_s * len(ask.numbers))
        return talk.Computed(
            unit=ask.unit.id,
            samples=self._plan(ask.unit).samples(ask.numbers.start, len(ask.numbers)),
            loss=result.loss,
            metrics=result.metrics,
            compute_s=time.perf_counter() - started,
            turn=ask.turn,
        )

    def extend(self, news: talk.Extend) -> talk.Extended:
        """Know what was added to the data. Raises ProgramRefused for more than was reckoned with,
        ValueError or DataMalformed for what makes no sense."""
        plan, before = self._setup.plan, self._manifest
        for region in (news.manifest, *news.shards.values()):
            if not 0 <= region.offset <= region.offset + region.bytes <= plan.total_bytes:
                raise ValueError(f"a region of {region.bytes} bytes at {region.offset}")
        if news.manifest.bytes > plan.manifest_room:
            raise ProgramRefused(f"A manifest of {news.manifest.bytes:,} bytes has no room.")
        manifest = decode_manifest(bytes(news.manifest.of(self._memory)))
        if why := unusable(before, manifest):
            raise ValueError(f"the data is not what it was, grown: {why}")
        if outgrows(before, manifest):
            raise ProgramRefused("A shard was added that is larger than all there were.")
        self._manifest = manifest
        plan = dataclasses.replace(
            plan, manifest=news.manifest, shards={**plan.shards, **news.shards}
        )
        self._setup = msgspec.structs.replace(self._setup, plan=plan)
        self._plans.clear()
        return talk.Extended()

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
        slot = self._setup.plan.slots[ask.slot]
        state = as_vector(slot.state.of(self._memory))
        assert self._engine is not None
        if ask.unit.kind == "look":
            return _one_by_one(self._engine, work, state)
        if ask.unit.kind != "train":
            return self._engine.evaluate(work, state)
        update = as_vector(slot.update.of(self._memory))
        if slot.coded and ask.fresh:
            self._packing.decode(slot.comes.of(self._memory), state)
        result = self._engine.train(work, state, update)
        if slot.coded and ask.last:
            self._packing.encode(update, slot.goes.of(self._memory))
        return result

    def _gathered_bytes(self) -> int:
        """What a unit's records take once more, in the order of training, and the orders kept."""
        placed, evaluates = self._setup.plan.shards, self._setup.evaluates
        numbers = placed or may_be_needed(self._manifest, evaluates=evaluates)
        shards = [self._manifest.shards[number] for number in numbers]
        records = max((shard.records for shard in shards), default=0)
        weights = 4 * records if self._spec.weighted else 0
        orders = ORDERS_BYTES + 6 * ORDER_ITEM_BYTES * records  # making one takes some, too
        return max((shard.bytes for shard in shards), default=0) + weights + orders

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
        gather = partial(self._batch, ask.unit, self._columns(ask.unit.shard, ask.room))
        if self._setup.trusted is not None:
            return Paced(_Later(gather, ask.numbers), self._pacer.rest)
        return Paced([gather(number) for number in ask.numbers], self._pacer.rest)

    def _batch(self, unit: Unit, columns: tuple[Column, ...], number: int) -> Batch:
        batches = self._plan(unit)
        if batches.shard_of(number) != unit.shard:
            raise ValueError(f"batch {number} is not of shard {unit.shard}")
        start, stop = batches.rows(number)
        if unit.kind == "train":
            rows = self._order(unit.epoch, unit.shard, len(columns[0]))[start:stop]
        else:  # the order does not matter: take the records as they lie
            rows = np.arange(start, stop)
        fields = tuple(column[rows] for column in columns)
        return Batch(number=number, fields=as_inputs(self._spec, fields))

    def _plan(self, unit: Unit) -> BatchPlan:
        if unit.kind not in self._plans:
            self._plans[unit.kind] = EpochPlans.of_kind(
                self._manifest, unit.kind, self._setup.local, self._spec
            )
        return self._plans[unit.kind].at(unit.epoch)

    def _columns(self, shard: int, room: int) -> tuple[Column, ...]:
        """A shard's fields, in its place or in the room it is said to be in.

        Raises LookupError or ValueError for a shard, a room or a size that cannot be.
        """
        plan = self._setup.plan
        if not plan.rooms:
            if shard not in self._shards:
                self._shards[shard] = self._view(shard, plan.shards[shard])
            return self._shards[shard]
        last, columns = self._rooms.get(room, (-1, ()))
        if last != shard:
            columns = self._view(shard, plan.room(room, self._manifest.shards[shard].bytes))
            self._rooms[room] = shard, columns
        return columns

    def _view(self, shard: int, region: Region) -> tuple[Column, ...]:
        return shard_arrays(self._manifest, shard, region.of(self._memory))

    def _order(self, epoch: int, shard: int, records: int) -> Column:
        key = (epoch, shard)
        if key not in self._orders:
            kept = max(1, ORDERS_BYTES // (ORDER_ITEM_BYTES * records))
            while len(self._orders) >= min(ORDERS_KEPT, kept):
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = order(self._setup.seed, epoch, shard, records)
        return self._orders[key]


def _one_by_one(engine: Engine, work: UnitWork, state: Vector) -> UnitResult:
    """Every batch's own loss, as a metric under the batch's number."""
    losses = {}
    for batch in work.batches:
        found = engine.evaluate(replace(work, batches=[batch]), state)
        losses[str(batch.number)] = found.loss
    mean = sum(losses.values()) / len(losses)
    return UnitResult(samples=len(losses), loss=mean, metrics=losses)


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


def serve(arena_fd: int, hear: BinaryIO, say: BinaryIO, *, walled: bool) -> None:
    """Answer the agent until it goes. `walled`: the first walls are up, put up the others."""
    first = _receive(hear)
    if not isinstance(first, talk.Setup):
        return
    arena = Arena(arena_fd, first.plan.total_bytes)
    try:
        trainer = Trainer(first, arena)
        walls = trainer.close_in() if walled else ()
        _send(
            say,
            talk.Checked(memory_bytes=trainer.memory_bytes, work=trainer.work, walls=walls),
        )
        if not isinstance(_receive(hear), talk.Begin):
            return
        _send(say, talk.Ready(engine=trainer.begin()))
    except (CrowdgradError, ValueError, MemoryError) as error:
        _send(say, _failure(error))
        return
    while isinstance(message := _receive(hear), talk.Compute | talk.Extend):
        try:
            if isinstance(message, talk.Extend):
                _send(say, trainer.extend(message))
            else:
                _send(say, trainer.compute(message))
        except (CrowdgradError, ValueError, LookupError, RuntimeError, MemoryError) as error:
            _send(say, _failure(error))


def _load_runtime() -> Load:
    """What makes an engine. Everything the runtime opens, it opens now."""
    from crowdgrad.program.engines.onnx import OnnxEngine
    from crowdgrad.program.engines.onnx_runtime import warm_up

    warm_up()
    return OnnxEngine


def _checked(program: Program, samples: int) -> Checked:
    """Without a look at what could be thrown away, which would take a third of the time."""
    gc.disable()
    try:
        return check(program, samples)
    finally:
        gc.enable()


def _check_memory(needed: int, most: int) -> None:
    if most and needed > most:
        raise ProgramRefused(
            f"The job would take {needed / 1e6:,.0f} MB of memory beside its data; of what this "
            f"machine lends, {most / 1e6:,.0f} MB are left for that.",
            advice="Help another job, or lend more: the setting memory_mb.",
            needs_bytes=needed,
        )


def _failure(error: Exception) -> talk.Failed:
    """No longer than anybody reads: a refusal may list thousands of a stranger's numbers."""
    if isinstance(error, CrowdgradError):
        message, advice = error.message[:MAX_WORDS], error.advice[:MAX_WORDS]
        needs = error.needs_bytes if isinstance(error, ProgramRefused) else 0
        return talk.Failed(code=error.code, message=message, advice=advice, needs_bytes=needs)
    message = f"{type(error).__name__}: {error}"[:MAX_WORDS]
    return talk.Failed(code=ComputeError.code, message=message)


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


def main(arena_fd: int, *, walled: bool) -> None:
    """The process's whole life, once the first walls are up."""
    np.seterr(all="ignore")
    say = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    hear = os.fdopen(0, "rb", buffering=1 << 16)
    with contextlib.suppress(BrokenPipeError):
        serve(arena_fd, hear, say, walled=walled)
