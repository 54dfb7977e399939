"""The torch engine: the model itself, on a machine whose owner has it and trusts it.

It does what the program says, only by PyTorch: on CPU or GPU, if wished in bfloat16 and compiled.
A whole unit stays on the device: parameters lie in one flat tensor (`torch_state`), batches arrive
ahead of use (`torch_feed`), the model runs (`torch_run`) with noise made there (`torch_noise`) and
rules step there (`torch_rules`). Nothing waits for the device before the unit's end; then update
and losses come back. The semantics are those of `replica`, whose equations are not repeated
here.

D: the numbers of the parameters, S: the words of the state, U: the words of an update.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalRule, LocalSteps
from crowdgrad.errors import ComputeError
from crowdgrad.numerics.buffers import return_buffers
from crowdgrad.numerics.layout import StateLayout, trained_parts
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines import torch_rules
from crowdgrad.program.engines.base import Batch, UnitResult, UnitWork
from crowdgrad.program.engines.fit import check_vector
from crowdgrad.program.engines.replica import outlives, stepping
from crowdgrad.program.engines.torch_feed import Feed, as_tensor
from crowdgrad.program.engines.torch_run import Runner, Subject, TorchOptions

__all__ = ["Subject", "TorchEngine", "TorchOptions"]


@dataclass(slots=True)
class _Lane:
    """What a lane keeps between units of a chain."""

    memory: torch_rules.TorchMemory
    state_S: Tensor | None = None
    """Where the last unit of a chain left it; None: there is nothing to go on with."""
    counted: list[NDArray[Any]] = field(default_factory=list)
    """The counters among its buffers, in host memory."""


class TorchEngine:
    """Implements `Engine`. Takes the subject's module over: its tensors become the engine's."""

    def __init__(self, spec: ProgramSpec, subject: Subject, options: TorchOptions) -> None:
        """Raises GateError where the subject's module is not what the spec describes."""
        self._spec = spec
        self._device = torch.device(options.device)
        self._layout = StateLayout(spec)
        self._parts = trained_parts(spec)
        self._runner = Runner(spec, subject, options)
        self._bound = self._runner.bound
        self._feed = Feed(spec, self._device)
        self._total_D: Tensor | None = None
        self._lanes: dict[int, _Lane] = {}
        self._named = LocalRule()
        self._rule = stepping(self._named)

    def train(self, work: UnitWork, state: Vector, update: Vector) -> UnitResult:
        check_vector("state", state, self._layout.words)
        check_vector("update", update, self._layout.update_words)
        lane = self._begin(work, state)
        self._runner.begin(training=True)
        losses, samples = [], []
        for index, batch in enumerate(self._feed.batches(work.batches)):
            losses.append(self._runner.gradient(batch, work.seed, work.unit.epoch))
            samples.append(batch.samples)
            self._temper(work.local)
            if work.local.returns == "gradients":
                self._collect(anew=index == 0)
            if index + 1 < len(work.batches) or outlives(work.local):
                self._step(lane, work.rate)
        state_S = self._bound.gathered()
        self._give(work, lane, state_S, update)
        if work.local.units_per_fetch > 1:
            lane.state_S = state_S.clone()
        return UnitResult(samples=sum(samples), loss=_mean(losses, samples), metrics={})

    def evaluate(self, work: UnitWork, state: Vector) -> UnitResult:
        check_vector("state", state, self._layout.words)
        self._bound.load(state)
        self._runner.begin(training=False)
        rows, samples = [], []
        names = [metric.name for metric in self._spec.metrics]
        for batch in self._feed.batches(work.batches):
            _, loss, metrics = self._runner.look(batch, work.seed)
            rows.append(torch.stack([loss, *(metrics[name] for name in names)]))
            samples.append(batch.samples)
        loss_, *means = _means(rows, samples)
        return UnitResult(
            samples=sum(samples), loss=loss_, metrics=dict(zip(names, means, strict=True))
        )

    def predict(self, batch: Batch, state: Vector, seed: int = 0) -> tuple[NDArray[Any], ...]:
        check_vector("state", state, self._layout.words)
        self._bound.load(state)
        self._runner.begin(training=False)
        (fed,) = self._feed.batches([batch])
        output, _, _ = self._runner.look(fed, seed)
        return tuple(_array(leaf) for leaf in pytree.tree_leaves(output))

    def exact(self) -> AbstractContextManager[None]:
        """Inside, float32 is float32: no bfloat16, no TF32. For comparing with the program."""
        return self._runner.exact()

    def _begin(self, work: UnitWork, state: Vector) -> _Lane:
        """The work's lane, with its state in the module."""
        if work.local.rule != self._named:
            self._rule, self._named = stepping(work.local.rule), work.local.rule
            self._lanes.clear()
        if work.lane not in self._lanes:
            self._lanes[work.lane] = _Lane(torch_rules.begin(self._rule, self._bound.weights_D))
        lane = self._lanes[work.lane]
        kept_S, lane.state_S = lane.state_S, None  # until this unit has ended well
        if work.fresh:
            self._bound.load(state)
            lane.memory.clear()
            lane.counted = self._layout.counters(state)
        elif kept_S is None:
            raise ComputeError(
                f"Unit {work.unit.id} goes on where another ended, but lane {work.lane} has "
                "no replica to go on with.",
                advice="The trainer was replaced, or that unit failed; start a new chain.",
            )
        else:
            self._bound.resume(kept_S)
        return lane

    def _temper(self, local: LocalSteps) -> None:
        """Clip a batch's gradient, then add the penalties'."""
        gradient_D, weights_D = self._bound.gradient_D, self._bound.weights_D
        if local.clip > 0:
            norm = torch.linalg.vector_norm(gradient_D, dtype=torch.float64)
            # Not by a nan or an infinity: what is not finite is passed on as it is.
            scale = torch.where(norm.isfinite(), local.clip / (norm + 1e-6), 1.0)
            gradient_D.mul_(scale.clamp(max=1.0).to(torch.float32))
        for part in self._parts or (slice(None),):
            if local.l2 > 0:
                gradient_D[part].add_(weights_D[part], alpha=local.l2)
            if local.l1 > 0:
                gradient_D[part].add_(weights_D[part].sign(), alpha=local.l1)

    def _collect(self, *, anew: bool) -> None:
        if self._total_D is None:
            self._total_D = torch.empty_like(self._bound.gradient_D)
        if anew:
            self._total_D.copy_(self._bound.gradient_D)
        else:
            self._total_D.add_(self._bound.gradient_D)

    def _step(self, lane: _Lane, rate: float) -> None:
        torch_rules.step(
            self._rule, self._bound.weights_D, self._bound.gradient_D, lane.memory, rate,
            self._parts,
        )  # fmt: skip

    def _give(self, work: UnitWork, lane: _Lane, state_S: Tensor, update: Vector) -> None:
        """Bring what the unit returns to host memory; the only wait for the device."""
        size, words = self._layout.size, self._layout.update_words
        gradients = work.local.returns == "gradients"
        source_D = self._total_D if gradients else self._bound.weights_D
        assert source_D is not None
        given_D, target_D = self._bound.straight(source_D), as_tensor(update[:size])
        if gradients and work.add:
            target_D.add_(given_D.cpu())
        else:
            target_D.copy_(given_D, non_blocking=True)
        if words > size:
            last_U: Vector = np.empty(words, np.float32)
            as_tensor(last_U[size:]).copy_(state_S[size:words])
            return_buffers(self._layout, last_U, lane.counted, update, add=work.add)
            lane.counted = self._layout.counters(last_U)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()


def _mean(losses: list[Tensor], samples: list[int]) -> float:
    return _means([loss.reshape(1) for loss in losses], samples)[0]


def _means(rows: list[Tensor], samples: list[int]) -> list[float]:
    """Of each column, weighted by samples."""
    table = torch.stack(rows).to("cpu", torch.float64).numpy()
    with np.errstate(all="ignore"):
        means: list[float] = (np.asarray(samples) @ table / sum(samples)).tolist()
    return means


def _array(leaf: Tensor) -> NDArray[Any]:
    if leaf.dtype == torch.bfloat16:  # numpy has no such type
        leaf = leaf.to(torch.float32)
    array: NDArray[Any] = leaf.detach().cpu().numpy()
    return array
