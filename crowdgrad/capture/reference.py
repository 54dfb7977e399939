"""PyTorch itself as an engine: autograd on the host's own module, with the program's noise.

This is what programs are compared with. It computes one batch a unit and never steps. The module is
given the state it is asked for, so whoever uses this puts it back (`quiet.untouched`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from crowdgrad.capture.holdings import Holdings
from crowdgrad.capture.objective import Objective, total
from crowdgrad.capture.quiet import plain_attention
from crowdgrad.domain.program import NoiseSpec, ProgramSpec
from crowdgrad.errors import GateError
from crowdgrad.numerics import noise as philox
from crowdgrad.numerics.layout import StateLayout, is_floating
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitResult, UnitWork
from crowdgrad.program.engines.replay import Replay, as_drawn


class Reference:
    """Implements `Engine` for units of one batch that return gradients."""

    def __init__(self, objective: Objective, holdings: Holdings, spec: ProgramSpec) -> None:
        self._objective = objective
        self._holdings = holdings
        self._spec = spec
        self._layout = StateLayout(spec)

    def train(self, work: UnitWork, state: Vector, update: Vector) -> UnitResult:
        (batch,) = work.batches
        self._load(state)
        self._objective.model.train()
        place = (work.seed, work.unit.epoch, batch.number)
        with plain_attention(), _replaying(self._spec.noise, place, batch.samples):
            _, losses = self._objective.run(_tensors(batch))
        gradients = self._gradients(losses)
        for spec, view in self._layout.parameters.views(update[: self._spec.size]):
            view[...] = gradients[spec.name].numpy() if spec.name in gradients else 0.0
        self._return_buffers(state, update)
        self._check_fixed(state)
        loss = float(total(losses).detach())
        return UnitResult(samples=batch.samples, loss=loss, metrics={})

    def evaluate(self, work: UnitWork, state: Vector) -> UnitResult:
        (batch,) = work.batches
        _, loss, metrics = self._forward(batch, state, work.seed)
        numbers = {name: float(value) for name, value in metrics.items()}
        return UnitResult(samples=batch.samples, loss=float(loss), metrics=numbers)

    def predict(self, batch: Batch, state: Vector, seed: int = 0) -> tuple[NDArray[Any], ...]:
        output, _, _ = self._forward(batch, state, seed)
        return tuple(leaf.numpy() for leaf in pytree.tree_leaves(output))

    def _forward(
        self, batch: Batch, state: Vector, seed: int
    ) -> tuple[Any, Tensor, dict[str, Tensor]]:
        self._load(state)
        self._objective.model.eval()
        place = (seed, 0, batch.number)
        noise, first = self._spec.forward_noise, philox.FORWARD_STREAM
        with torch.no_grad(), plain_attention(), _replaying(noise, place, batch.samples, first):
            return self._objective.evaluate(_tensors(batch))

    def _gradients(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        trainable = self._holdings.trainable()
        found: dict[str, Tensor] = {}
        for group, loss in losses.items():
            names = [n for n in self._objective.groups.get(group, trainable) if n in trainable]
            gradients = torch.autograd.grad(
                loss, [trainable[name] for name in names], allow_unused=True, retain_graph=True
            )
            found |= {n: g for n, g in zip(names, gradients, strict=True) if g is not None}
        return found

    def _load(self, state: Vector) -> None:
        """The state into the module, in place: the loss may hold its tensors too."""
        held: dict[str, Tensor] = {**self._holdings.parameters, **self._buffers()}
        with torch.no_grad():
            for spec, view in self._layout.tensors(state):
                held[spec.name].copy_(torch.from_numpy(view.copy()))

    def _buffers(self) -> dict[str, Tensor]:
        # Looked up each time: a module may put a new tensor in a buffer's place.
        return dict(self._objective.model.named_buffers())

    def _check_fixed(self, state: Vector) -> None:
        now = self._buffers()
        for spec, value in self._layout.fixed(state):
            if not np.array_equal(now[spec.name].detach().numpy(), value, equal_nan=True):
                raise GateError(
                    f"training changes the buffer {spec.name!r}, but the program does not.",
                    advice="Change it in place: self.buffer.copy_(…), inside forward.",
                )

    def _return_buffers(self, state: Vector, update: Vector) -> None:
        now = self._buffers()
        before = dict((spec.name, view) for spec, view in self._layout.buffers(state))
        for spec, view in self._layout.buffers(update):
            value = now[spec.name].detach().numpy()
            view[...] = value if is_floating(spec) else value - before[spec.name]


def _tensors(batch: Batch) -> list[Tensor]:
    return [torch.from_numpy(np.array(column)) for column in batch.fields]


def _replaying(
    specs: tuple[NoiseSpec, ...], place: tuple[int, int, int], samples: int, first: int = 0
) -> Replay:
    def numbers() -> Iterator[Tensor]:
        for stream, spec in enumerate(specs):
            filled = philox.fill(spec, *place, first + stream, samples)
            yield as_drawn(spec, torch.from_numpy(filled))

    return Replay(numbers())
