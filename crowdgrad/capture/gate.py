"""The gate: no program is published unless it computes what autograd computes.

Exporters go wrong silently: a batch normalisation in the wrong mode, a dropout left out, and
nothing raises. So both graphs run on fresh random batches of several sizes, with the same noise,
against PyTorch itself, and every distance (`compare`) must stay below a bound. The state is shaken
first: weights that begin as zeros and running means of 0 would hide what is done to them.

An activation within rounding of a kink (ReLU at 0) can flip between two correct engines, so a draw
that misses the bound by little is forgiven where the next two hold; a wrong program misses it on
all. And some places amplify rounding itself, as the batch normalisation of two samples does: where
PyTorch's own answer moves when the state is nudged by a rounding error, the bound moves with it.
What is far off is never forgiven.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdgrad.capture.compare import Errors, LossNotFinite, compare_engines, describe
from crowdgrad.capture.fields import Reader, draw_batch
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.errors import GateError
from crowdgrad.numerics.layout import StateLayout, is_floating
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, Engine, UnitResult, UnitWork

BOUND: Final = 1e-4
NEVER: Final = 2e-2
"""A flipped ReLU moves a gradient by about 2e-3: beyond this, nothing is forgiven."""
_LARGER: Final = 6
_DRAWS: Final = 3
_REDRAWS: Final = 5
"""How many batches are tried where the loss is not finite: made-up records can be out of range."""
_ROUNDING: Final = 1e-7
_AMPLIFIED: Final = 30.0
"""How much further than a nudge moves PyTorch's answer another engine may be from it."""
_SEED: Final = 0x67617465


class Gate:
    """Two engines of one program, asked the same questions."""

    def __init__(
        self,
        spec: ProgramSpec,
        state: Vector,
        readers: Sequence[Reader],
        got: Engine,
        wanted: Engine,
        bound: float = BOUND,
    ) -> None:
        self._spec = spec
        self._readers = readers
        self._got = got
        self._wanted = wanted
        self._bound = bound
        self._generator = torch.Generator().manual_seed(_SEED)
        self._layout = StateLayout(spec)
        self._state = state.copy()

    def pass_through(self) -> float:
        """The largest gradient error; GateError, naming the tensor, where the bound is missed."""
        self._shake()
        return max(self._gradient_error(size) for size in sizes(self._spec))

    def _gradient_error(self, size: int) -> float:
        """The largest error of a draw; of the calmest where rounding is amplified."""
        errors: list[Errors] = []
        for _ in range(_DRAWS):
            drawn, missed = self._draw(size)
            errors.append(self._again(missed, size) if missed else drawn)
            if max(errors[-1].values()) <= self._bound:
                break
        calmest = min(errors, key=lambda one: max(one.values()))
        return max(error for name, error in calmest.items() if name.startswith("g:"))

    def _again(self, missed: Errors, size: int) -> Errors:
        if max(missed.values()) > NEVER:
            raise _refusal(missed, size, self._bound)
        again = [self._draw(size) for _ in range(_DRAWS - 1)]
        if any(also_missed for _, also_missed in again):
            raise _refusal(missed, size, self._bound)
        return again[0][0]

    def _draw(self, size: int) -> tuple[Errors, Errors]:
        """How far the engines are apart on one fresh batch, and what of that is too far."""
        for _ in range(_REDRAWS):
            try:
                return self._try(size)
            except LossNotFinite:
                continue
        raise GateError(
            f"the loss is not finite, in PyTorch either, on {_REDRAWS} batches of {size} records.",
            advice="Check the example's range of values, and logarithms and divisions in the loss.",
        )

    def _try(self, size: int) -> tuple[Errors, Errors]:
        drawn = draw_batch(self._readers, size, self._generator)
        number = int(torch.randint(0, 1 << 20, (1,), generator=self._generator))
        batch = Batch(number=number, fields=tuple(column.numpy() for column in drawn))
        errors, update = compare_engines(
            self._spec, self._got, self._wanted, self._state, batch, seed=_SEED
        )
        missed = {name: error for name, error in errors.items() if error > self._bound}
        if missed:
            nudged = _Nudged(self._wanted, self._nudge())
            moves, _ = compare_engines(
                self._spec, nudged, self._wanted, self._state, batch, seed=_SEED
            )
            missed = {n: e for n, e in missed.items() if e > min(NEVER, _AMPLIFIED * moves[n])}
        self._count(update)
        return errors, missed

    def _nudge(self) -> Vector:
        """The state with every floating number a rounding error away."""
        moved = self._state.copy()
        moved[: self._spec.size] *= 1 + _ROUNDING * self._numbers((self._spec.size,), torch.randn)
        for tensor, values in self._layout.buffers(moved):
            if is_floating(tensor):
                values *= 1 + _ROUNDING * self._numbers(values.shape, torch.randn)
        return moved

    def _shake(self) -> None:
        """Move every number a little; what is positive stays so, as a variance must."""
        for _, weights in self._layout.parameters.views(self._state[: self._spec.size]):
            scale = 0.02 + 0.1 * float(weights.std()) if weights.size else 0.0
            weights += scale * self._numbers(weights.shape, torch.randn)
        for tensor, values in self._layout.buffers(self._state):
            if is_floating(tensor):
                values *= 0.8 + 0.4 * self._numbers(values.shape, torch.rand)
                values += 0.05 * self._numbers(values.shape, torch.rand)

    def _numbers(self, shape: tuple[int, ...], draw: Callable[..., Tensor]) -> Vector:
        made: Vector = draw(shape, generator=self._generator).numpy()
        return made

    def _count(self, update: Vector) -> None:
        """Counters go on as they would: what depends on them is seen at another value too."""
        for (tensor, ours), (_, grown) in zip(
            self._layout.buffers(self._state), self._layout.buffers(update), strict=True
        ):
            if not is_floating(tensor):
                ours += grown


class _Nudged:
    """An engine that is asked from another state than it is given."""

    def __init__(self, engine: Engine, state: Vector) -> None:
        self._engine = engine
        self._state = state

    def train(self, work: UnitWork, state: Vector, update: Vector) -> UnitResult:
        return self._engine.train(work, self._state, update)

    def evaluate(self, work: UnitWork, state: Vector) -> UnitResult:
        return self._engine.evaluate(work, self._state)

    def predict(self, batch: Batch, state: Vector, seed: int = 0) -> tuple[NDArray[Any], ...]:
        return self._engine.predict(batch, self._state, seed)


def sizes(spec: ProgramSpec) -> tuple[int, ...]:
    """The batch sizes a program is compared at."""
    if spec.fixed_batch:
        return (spec.fixed_batch, spec.fixed_batch)
    if spec.smallest_batch == 1:
        return (1, _LARGER)
    # What batch normalisation makes of two samples is ±1 whatever they are: all rounding.
    return (spec.smallest_batch + 1, spec.smallest_batch + _LARGER)


def _refusal(errors: Errors, size: int, bound: float) -> GateError:
    name, error = max(errors.items(), key=lambda item: item[1])
    if math.isfinite(error):
        what = (
            f"differs from PyTorch's by {error:.1e} (relative L2, batch of {size}; "
            f"at most {bound:.0e} is allowed)"
        )
    else:
        what = f"has another shape, or numbers that are not finite (batch of {size})"
    return GateError(
        f"{describe(name)} {what}.",
        advice="Nothing was published. An operator is captured wrongly: try layer by layer.",
    )
