"""The traced graph once more, rewritten, with everything it reads as an input.

An interpreter walks the graph under a second `torch.export`, putting the rewrites in place of the
operators they replace. Parameters, batch and noise come in as arguments, in the order of the spec;
only small constants stay inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.export import ExportedProgram

from crowdgrad.capture.advice import stack_line
from crowdgrad.capture.rewrites import RANDOM, REWRITES
from crowdgrad.capture.trace import BATCH, Traced
from crowdgrad.domain.program import NoiseSpec
from crowdgrad.errors import CaptureError


def plan_noise(traced: Traced) -> tuple[NoiseSpec, ...]:
    """What noise the graph draws, in the order in which it draws it."""
    batch = _batch_symbol(traced)
    specs: list[NoiseSpec] = []
    for node in traced.module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        found = RANDOM.get(node.target)
        if found is not None:
            shape, per_sample = _noise_shape(node, batch)
            specs.append(
                NoiseSpec(
                    name=f"noise{len(specs)}", kind=found.kind, shape=shape, per_sample=per_sample
                )
            )
        elif torch.Tag.nondeterministic_seeded in node.target.tags:
            raise CaptureError(
                f"the model draws random numbers with {node.target}, which cannot be "
                f"recomputed by others{_source(node)}.",
                advice="Use dropout, torch.rand_like, torch.randn_like or torch.bernoulli.",
            )
    return tuple(specs)


def lift(
    traced: Traced, parameters: dict[str, Tensor], noise: tuple[NoiseSpec, ...]
) -> ExportedProgram:
    """(parameters, batch, noise) → the graph's results; all gradients in parameter order."""
    samples = len(traced.examples[0])
    drawn = [torch.rand((samples, *n.shape) if n.per_sample else n.shape) for n in noise]
    arguments = ([p.detach() for p in parameters.values()], list(traced.examples), drawn)
    shapes = (
        [None] * len(parameters),
        [{0: BATCH} for _ in traced.examples],
        [{0: BATCH} if n.per_sample else None for n in noise],
    )
    module = _Lifted(traced, tuple(parameters))
    with torch.no_grad():
        return torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)


class _Lifted(nn.Module):
    def __init__(self, traced: Traced, names: tuple[str, ...]) -> None:
        super().__init__()
        # `Traced` is no module, so no weight of its graph module travels along.
        self._traced = traced
        self._names = names

    def forward(
        self, parameters: list[Tensor], batch: list[Tensor], noise: list[Tensor]
    ) -> tuple[Tensor, ...]:
        traced = self._traced
        named = dict(zip(self._names, parameters, strict=True))
        state = [named[a] if isinstance(a, str) else a for a in traced.arguments]
        results = tuple(_Rewriter(traced.module, iter(noise)).run(*state, *batch))
        if not traced.gradients:
            return results
        loss, *gradients = results
        found = dict(zip(traced.gradients, gradients, strict=True))
        # Frozen parameters, and those the loss does not reach, stay where they are.
        return (loss, *(found[n] if n in found else torch.zeros_like(p) for n, p in named.items()))


class _Rewriter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, noise: Iterator[Tensor]) -> None:
        super().__init__(module)
        self._noise = noise

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in RANDOM:
            return RANDOM[target].apply(next(self._noise), *args, **kwargs)
        if target in REWRITES:
            return REWRITES[target](*args, **kwargs)
        return super().call_function(target, args, kwargs)


def _batch_symbol(traced: Traced) -> str:
    holders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    return str(holders[-1].meta["val"].shape[0])


def _noise_shape(node: fx.Node, batch: str) -> tuple[tuple[int, ...], bool]:
    value = node.meta["val"]
    sizes = (value[0] if isinstance(value, tuple) else value).shape
    per_sample = len(sizes) > 0 and str(sizes[0]) == batch
    rest = sizes[1:] if per_sample else sizes
    if any(not isinstance(size, int) for size in rest):
        raise CaptureError(
            f"the random numbers drawn by {node.target} have shape {tuple(map(str, sizes))}"
            f"{_source(node)}.",
            advice="The batch dimension must come first, unchanged, where dropout is applied.",
        )
    return tuple(rest), per_sample


def _source(node: fx.Node) -> str:
    line = stack_line(str(node.meta.get("stack_trace") or ""))
    return f", at {line}" if line else ""
