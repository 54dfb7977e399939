"""How far two engines are apart on one batch, tensor by tensor.

Everything a program computes is compared by relative L2 distance: the loss, each gradient, each new
buffer, and in evaluation mode the loss, the metrics and the outputs. Never element by element: one
ReLU that flips at a near-zero activation moves a single element of a gradient by 4e-2 and the whole
by 2e-3, and both engines are right.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, Engine, UnitWork

Errors = dict[str, float]
"""Relative L2 distance by what is compared: `loss`, `g:` a parameter, `n:` a buffer, …"""
_FLOOR: Final = 1e-3
"""A gradient this much smaller than the whole may be all rounding: the whole is its scale."""
_SMALL: Final = 1e-6


class LossNotFinite(Exception):
    """Both engines lost their way on a batch: that they agree says nothing, another one may."""


def compare_engines(
    spec: ProgramSpec, got: Engine, wanted: Engine, state: Vector, batch: Batch, *, seed: int = 0
) -> tuple[Errors, Vector]:
    """Distances on one batch from one state, and the update that `wanted` gave.

    Raises LossNotFinite.
    """
    unit = Unit(id=UnitId(0), kind="train", epoch=1, shard=0, first_batch=batch.number, batches=1)
    local = LocalSteps(batch_size=batch.samples)
    work = UnitWork(unit=unit, local=local, seed=seed, batches=[batch])
    errors, update = _training(spec, got, wanted, state, work)
    return {**errors, **_evaluation(got, wanted, state, work)}, update


def describe(name: str) -> str:
    """What an entry of `Errors` is, in words."""
    if name.startswith("g:"):
        return f"the gradient of {name[2:]!r}"
    return f"the new value of buffer {name[2:]!r}" if name.startswith("n:") else f"the {name}"


def _training(
    spec: ProgramSpec, got: Engine, wanted: Engine, state: Vector, work: UnitWork
) -> tuple[Errors, Vector]:
    layout = StateLayout(spec)
    ours, theirs = (np.zeros(spec.update_words, np.float32) for _ in range(2))
    losses = got.train(work, state, ours).loss, wanted.train(work, state, theirs).loss
    errors = {"loss": _loss_distance(*losses)}
    size = spec.size
    whole = float(np.linalg.norm(theirs[:size].astype(np.float64)))
    for (tensor, one), (_, other) in zip(
        layout.parameters.views(ours[:size]), layout.parameters.views(theirs[:size]), strict=True
    ):
        errors[f"g:{tensor.name}"] = distance(one, other, _FLOOR * whole)
    for (tensor, new), (_, other) in zip(layout.buffers(ours), layout.buffers(theirs), strict=True):
        errors[f"n:{tensor.name}"] = distance(new, other, _SMALL)
    return errors, theirs


def _evaluation(got: Engine, wanted: Engine, state: Vector, work: UnitWork) -> Errors:
    ours, theirs = got.evaluate(work, state), wanted.evaluate(work, state)
    errors = {"evaluation loss": _loss_distance(ours.loss, theirs.loss)}
    for name, value in theirs.metrics.items():
        errors[f"metric {name}"] = distance(ours.metrics[name], value, _SMALL)
    outputs = (e.predict(work.batches[0], state, work.seed) for e in (got, wanted))
    for index, (one, other) in enumerate(zip(*outputs, strict=True)):
        errors[f"output {index}"] = _shaped_distance(one, other)
    return errors


def _loss_distance(got: float, want: float) -> float:
    if not math.isfinite(got) and not math.isfinite(want):
        raise LossNotFinite
    return distance(got, want, _SMALL)


def _shaped_distance(got: NDArray[Any], want: NDArray[Any]) -> float:
    return distance(got, want, _SMALL) if got.shape == want.shape else math.inf


def distance(got: ArrayLike, want: ArrayLike, floor: float) -> float:
    """‖got − want‖ / ‖want‖, the divisor at least `floor`; infinite where a number is not finite.

    Infinities that both sides have in the same places are no difference: masked scores are −∞.
    """
    ours, wanted = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    same = np.isinf(wanted) & (ours == wanted)
    with np.errstate(invalid="ignore"):  # ∞ − ∞, where both have it
        error = float(np.linalg.norm(np.where(same, 0.0, ours - wanted)))
    if not math.isfinite(error):
        return math.inf
    return error / max(float(np.linalg.norm(np.where(same, 0.0, wanted))), floor, 1e-30)
