"""The optimisers of `numerics/rules/` on flat tensors, so that local steps stay on the device.

The equations are those files'; what is remembered are the plain means where numpy keeps sums, since
here each formula is one or two fused passes. Gradients are only read: what does not learn must stay
zero in them.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from crowdgrad.numerics.rules.adadelta import Adadelta
from crowdgrad.numerics.rules.adagrad import Adagrad
from crowdgrad.numerics.rules.adam import Adam
from crowdgrad.numerics.rules.adamw import AdamW
from crowdgrad.numerics.rules.base import Rule
from crowdgrad.numerics.rules.momentum import Momentum
from crowdgrad.numerics.rules.nadam import NAdam
from crowdgrad.numerics.rules.nesterov import Nesterov
from crowdgrad.numerics.rules.rmsprop import RMSProp
from crowdgrad.numerics.rules.sgd import SGD

Parts = tuple[slice, ...] | None
"""The parts of the vector that learn; None: everything."""


@dataclass(slots=True)
class TorchMemory:
    """What a rule remembers of one replica."""

    vectors: dict[str, Tensor]
    counted: Tensor
    """The steps once more, on the device: fused kernels read them there."""
    numbers: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    def clear(self) -> None:
        for vector in self.vectors.values():
            vector.zero_()
        self.counted.zero_()
        self.numbers.clear()
        self.steps = 0


def begin(rule: Rule, like_D: Tensor) -> TorchMemory:
    """The memory of a rule that has not stepped yet."""
    vectors = {name: torch.zeros_like(like_D) for name in rule.vectors}
    return TorchMemory(vectors, torch.zeros((), device=like_D.device))


def step(
    rule: Rule,
    weights_D: Tensor,
    gradient_D: Tensor,
    memory: TorchMemory,
    rate: float,
    parts: Parts,
) -> None:
    """Change weights and memory in place as the rule of `numerics` would."""
    memory.steps += 1
    memory.counted += 1
    _STEPS[type(rule)](rule, weights_D, gradient_D, memory, rate, parts)


def _sgd(rule: SGD, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts) -> None:
    w.add_(g, alpha=-rate)


def _momentum(
    rule: Momentum, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    v = memory.vectors["velocity"]
    if memory.steps > 1 and rule.dampening > 0:
        v.mul_(rule.momentum).add_(g, alpha=1 - rule.dampening)
    else:
        torch.add(g, v, alpha=rule.momentum, out=v)
    w.add_(v, alpha=-rate)


def _nesterov(
    rule: Nesterov, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    v = memory.vectors["ahead"]
    torch.add(g, v, alpha=rule.momentum, out=v)
    w.add_(g, alpha=-rate).add_(v, alpha=-rate * rule.momentum)


def _adagrad(
    rule: Adagrad, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    s = memory.vectors["squares"].addcmul_(g, g)
    w.addcdiv_(g, s.sqrt().add_(rule.eps), value=-rate)


def _adadelta(
    rule: Adadelta, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    s, a = memory.vectors["squares"], memory.vectors["changes"]
    s.mul_(rule.rho).addcmul_(g, g, value=1 - rule.rho)
    change = (a + rule.eps).div_(s + rule.eps).sqrt_().mul_(g)
    a.mul_(rule.rho).addcmul_(change, change, value=1 - rule.rho)
    w.add_(change, alpha=-rate)


def _rmsprop(
    rule: RMSProp, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    s = memory.vectors["squares"].mul_(rule.alpha).addcmul_(g, g, value=1 - rule.alpha)
    root = s.sqrt().add_(rule.eps)
    if rule.momentum > 0:
        v = memory.vectors["velocity"].mul_(rule.momentum).addcdiv_(g, root)
        w.add_(v, alpha=-rate)
    else:
        w.addcdiv_(g, root, value=-rate)


def _adam(rule: Adam, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts) -> None:
    _adam_fused(rule, w, g, memory, rate, 0.0)


def _adamw(
    rule: AdamW, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    if parts is None and rate * rule.decay <= 1:
        _adam_fused(rule, w, g, memory, rate, rule.decay)
        return
    kept = max(0.0, 1 - rate * rule.decay)
    for part in parts or (slice(None),):
        w[part].mul_(kept)
    _adam_fused(rule, w, g, memory, rate, 0.0)


def _adam_fused(
    rule: Adam | AdamW, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, decay: float
) -> None:
    # What torch.optim.AdamW(fused=True) calls: seven passes over memory instead of sixteen.
    torch._fused_adamw_(
        [w], [g], [memory.vectors["gradients"]], [memory.vectors["squares"]], [], [memory.counted],
        lr=rate, beta1=rule.beta1, beta2=rule.beta2, weight_decay=decay, eps=rule.eps,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def _nadam(
    rule: NAdam, w: Tensor, g: Tensor, memory: TorchMemory, rate: float, parts: Parts
) -> None:
    m = memory.vectors["gradients"].lerp_(g, 1 - rule.beta1)
    s = memory.vectors["squares"].mul_(rule.beta2).addcmul_(g, g, value=1 - rule.beta2)
    root = s.div(1 - rule.beta2**memory.steps).sqrt_().add_(rule.eps)
    now, later = (_nadam_momentum(rule, t) for t in (memory.steps, memory.steps + 1))
    product = memory.numbers.get("momentum_product", 1.0) * now
    memory.numbers["momentum_product"] = product
    w.addcdiv_(g, root, value=-rate * (1 - now) / (1 - product))
    w.addcdiv_(m, root, value=-rate * later / (1 - product * later))


def _nadam_momentum(rule: NAdam, steps: int) -> float:
    return rule.beta1 * (1 - 0.5 * math.pow(0.96, steps * rule.momentum_decay))


_Step = Callable[[Any, Tensor, Tensor, TorchMemory, float, Parts], None]
_STEPS: Final[dict[type[Rule], _Step]] = {
    SGD: _sgd, Momentum: _momentum, Nesterov: _nesterov, Adagrad: _adagrad, Adadelta: _adadelta,
    RMSProp: _rmsprop, Adam: _adam, AdamW: _adamw, NAdam: _nadam,
}  # fmt: skip
