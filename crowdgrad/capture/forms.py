"""Two forms of a convolution's weight gradient, and which of them is faster here.

As one convolution (*conv*) it wins on small nets, as matrix products over patches (*gemm*) on
large ones; they round differently, so a job publishes one of them and everybody computes that.
The host times both on its own machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import numpy as np

from crowdgrad.domain.program import Program
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine

FORMS: Final = ("conv", "gemm")
_SECONDS: Final = 1.0
_FEWEST: Final = 3
_MOST: Final = 50

_form: ContextVar[str] = ContextVar("conv_form", default=FORMS[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The faster form, and what each needed for one step."""

    name: str
    times_ms: dict[str, float]


@contextmanager
def conv_form(name: str) -> Iterator[None]:
    """Inside, weight gradients of convolutions are written in this form."""
    assert name in FORMS, name
    token = _form.set(name)
    try:
        yield
    finally:
        _form.reset(token)


def current_form() -> str:
    return _form.get()


def pick(programs: Mapping[str, Program], state: Vector, batch: Batch) -> Choice:
    """Time one gradient step of each program on one thread, taking turns; medians decide."""
    timers = {name: _Timer(program, state, batch) for name, program in programs.items()}
    for timer in timers.values():
        timer.step()  # the first step allocates
    times: dict[str, list[float]] = {name: [] for name in timers}
    rounds, spent = 0, 0.0
    while rounds < _FEWEST or (spent < _SECONDS and rounds < _MOST):
        for name, timer in timers.items():
            times[name].append(timer.step())
            spent += times[name][-1]
        rounds += 1
    medians = {name: 1e3 * statistics.median(taken) for name, taken in times.items()}
    return Choice(name=min(medians, key=lambda name: medians[name]), times_ms=medians)


class _Timer:
    """One program with everything a step needs."""

    def __init__(self, program: Program, state: Vector, batch: Batch) -> None:
        self._engine = OnnxEngine(program, threads=1)
        self._state = state
        self._update = np.zeros(program.spec.update_words, np.float32)
        unit = Unit(id=UnitId(0), kind="train", epoch=1, shard=0, first_batch=0, batches=1)
        local = LocalSteps(batch_size=batch.samples)
        self._work = UnitWork(unit=unit, local=local, seed=0, batches=[batch])

    def step(self) -> float:
        """Seconds of one step."""
        started = time.perf_counter()
        self._engine.train(self._work, self._state, self._update)
        return time.perf_counter() - started
