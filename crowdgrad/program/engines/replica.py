"""The local loop: batch after batch at a replica of the parameters that steps in between.

    g ← ∇loss(w, batch)                   at the lane's replica w
    g ← g · min(1, clip / (‖g‖ + 10⁻⁶))   Pascanu et al. 2012, arXiv 1211.5063
    g ← g + l2·w + l1·sign(w)             where parameters learn at all
    update ← update + g;   w ← rule(w, g) at the unit's rate
    b ← what the batch made of the buffers

For engines whose vectors lie in host memory; where a gradient comes from is theirs to know. Nothing
is copied for a unit that takes a single gradient: it is taken at the parameters given and written
straight into the update. Buffers stay where they are from unit to unit, since an engine may have
bound itself to their addresses.

D: the numbers of the parameters, the first part of a state (S) and of an update (U).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalRule, LocalSteps
from crowdgrad.errors import ComputeError, ProgramRefused
from crowdgrad.numerics.buffers import carry, return_buffers
from crowdgrad.numerics.decay import within
from crowdgrad.numerics.layout import StateLayout, trained_parts
from crowdgrad.numerics.rules import OPTIMISERS, rule_from
from crowdgrad.numerics.rules.base import Memory, Rule, Step, begin
from crowdgrad.numerics.vectors import BLOCK, Vector, blocks
from crowdgrad.program.engines.base import Batch, UnitWork

Gradient = Callable[[Batch, Vector, Vector], float]
"""`gradient(batch, state_S, out_U)` writes gradient and new buffers, and returns the loss."""


def stepping(named: LocalRule) -> Rule:
    """The rule a stranger names. Raises ProgramRefused where it is none that steps replicas."""
    try:
        rule = rule_from(named.name, named.settings)
        if named.name not in OPTIMISERS:
            raise ValueError(
                f"{named.name} is for hosts; a replica steps by {', '.join(OPTIMISERS)}"
            )
    except ValueError as error:
        raise ProgramRefused(
            f"The job's local rule makes no sense: {error}.",
            advice="The host must change its recipe; help another job.",
        ) from None
    return rule


def held_bytes(local: LocalSteps, spec: ProgramSpec) -> int:
    """The memory that the replicas of all lanes take. Raises ProgramRefused as `stepping` does."""
    rule = stepping(local.rule)
    if local.batches_per_unit == 1 and not outlives(local):
        return 0
    replica = spec.state_words + spec.size * len(rule.vectors)
    return 4 * ((local.overlap + 1) * replica + spec.update_words)


@dataclass(slots=True)
class _Replica:
    state_S: Vector
    memory: Memory
    live: bool = False
    """It stands where a whole unit of a chain has left it, so that the next may go on."""


class Replicas:
    """The replicas of one program, a lane each. Not safe for use by two threads at once."""

    def __init__(self, spec: ProgramSpec) -> None:
        self._layout = StateLayout(spec)
        self._size = spec.size
        self._trained = trained_parts(spec)
        self._lanes: dict[int, _Replica] = {}
        self._named = LocalRule()
        self._rule = stepping(self._named)
        self._scratch_U: Vector = np.empty(0, np.float32)
        self._block: Vector = np.empty(min(self._size, BLOCK), np.float32)

    def train(
        self, work: UnitWork, given_S: Vector, update_U: Vector, gradient: Gradient
    ) -> list[float]:
        """Do what `Engine.train` promises; returns each batch's loss."""
        replica = self._replica(work, given_S)
        state_S = given_S if replica is None else replica.state_S
        direct = replica is None and not work.add
        out_U = update_U if direct else self._scratch()
        weights_D, gradient_D, update_D = (v[: self._size] for v in (state_S, out_U, update_U))
        counted = self._layout.counters(state_S)
        step = Step(rate=work.rate, trained=self._trained)
        losses: list[float] = []
        for index, batch in enumerate(work.batches):
            losses.append(gradient(batch, state_S, out_U))
            with np.errstate(all="ignore"):  # judging numbers is the host's part
                self._temper(work.local, gradient_D, weights_D)
                if work.local.returns == "gradients" and not direct:
                    _collect(update_D, gradient_D, anew=index == 0 and not work.add)
                if replica is not None:
                    carry(self._layout, out_U, state_S)
                    if index + 1 < len(work.batches) or outlives(work.local):
                        self._rule.step(weights_D, gradient_D, replica.memory, step)
        if work.local.returns == "weights":
            np.copyto(update_D, weights_D)
        return_buffers(self._layout, out_U, counted, update_U, add=work.add)
        if replica is not None:
            replica.live = work.local.units_per_fetch > 1
        return losses

    def _replica(self, work: UnitWork, given_S: Vector) -> _Replica | None:
        """The lane's replica, ready for the first batch; None where nothing would step."""
        self._take_rule(work.local.rule)
        replica = self._lanes.get(work.lane)
        was_live = replica is not None and replica.live
        if replica is not None:
            replica.live = False  # until this unit has ended well
        if not work.fresh:
            if not was_live:
                raise ComputeError(
                    f"Unit {work.unit.id} goes on where another ended, but lane {work.lane} has "
                    "no replica to go on with.",
                    advice="The trainer was replaced, or that unit failed; start a new chain.",
                )
            return replica
        if len(work.batches) == 1 and not outlives(work.local):
            return None
        if replica is None:
            fresh_S = np.empty(self._layout.words, np.float32)
            replica = _Replica(fresh_S, begin(self._rule, self._size))
            self._lanes[work.lane] = replica
        np.copyto(replica.state_S, given_S)
        replica.memory.clear()
        return replica

    def _take_rule(self, named: LocalRule) -> None:
        if named != self._named:
            self._rule, self._named = stepping(named), named
            self._lanes.clear()

    def _scratch(self) -> Vector:
        if self._scratch_U.size != self._layout.update_words:
            self._scratch_U = np.empty(self._layout.update_words, np.float32)
        return self._scratch_U

    def _temper(self, local: LocalSteps, gradient_D: Vector, weights_D: Vector) -> None:
        """Clip a batch's gradient, then add the penalties'."""
        if local.clip > 0:
            scale = local.clip / (_norm(gradient_D) + 1e-6)
            if scale < 1.0:
                np.multiply(gradient_D, scale, out=gradient_D)
        if local.l1 == 0 and local.l2 == 0:
            return
        for here in blocks(self._size):
            gradients = within(gradient_D[here], here.start, self._trained)
            weights = within(weights_D[here], here.start, self._trained)
            for g, w in zip(gradients, weights, strict=True):
                _penalise(local, g, w, self._block[: len(g)])


def outlives(local: LocalSteps) -> bool:
    """Whether somebody looks at the replica after a unit's last batch."""
    return local.units_per_fetch > 1 or local.returns == "weights"


def _penalise(local: LocalSteps, g: Vector, w: Vector, scratch: Vector) -> None:
    if local.l2 > 0:
        np.add(g, np.multiply(w, local.l2, out=scratch), out=g)
    if local.l1 > 0:
        np.add(g, np.multiply(np.sign(w, out=scratch), local.l1, out=scratch), out=g)


def _collect(update_D: Vector, gradient_D: Vector, *, anew: bool) -> None:
    if anew:
        np.copyto(update_D, gradient_D)
    else:
        np.add(update_D, gradient_D, out=update_D)


def _norm(vector_D: Vector) -> float:
    total = sum(float(np.dot(vector_D[h], vector_D[h])) for h in blocks(len(vector_D)))
    if not math.isfinite(total):  # the squares may be too large for float32, the numbers not
        wide = (np.square(vector_D[here], dtype=np.float64) for here in blocks(len(vector_D)))
        total = sum(float(np.sum(squares)) for squares in wide)
    return math.sqrt(total)
