"""The traced graphs once more, rewritten, with everything they read as an input.

An interpreter walks each graph under a second `torch.export`, putting the rewrites in place of the
operators they replace. State, batch and noise come in as arguments, in the order of the spec; only
small constants stay inside.

Noise comes with the batch first, one block for each sample. Where the model draws with the batch
elsewhere (recurrent layers have time first) or folded into another dimension (attention draws for
batch · heads at once), the noise is moved and reshaped to what the model asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.export import ExportedProgram

from crowdgrad.capture.advice import instead_of, node_line
from crowdgrad.capture.rewrites import RANDOM, replacement
from crowdgrad.capture.trace import LOSS, OTHER, Traced
from crowdgrad.capture.translator import can_translate
from crowdgrad.domain.program import NoiseSpec
from crowdgrad.errors import CaptureError, CrowdgradError


def plan_noise(traced: Traced) -> tuple[NoiseSpec, ...]:
    """What noise the graph draws, in the order in which it draws it."""
    batch = _batch_size(traced)
    specs: list[NoiseSpec] = []
    for node in traced.module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        found = RANDOM.get(node.target)
        if found is not None:
            spec = _noise(node, batch)
            specs.append(replace(spec, name=f"noise{len(specs)}", kind=found.kind))
        elif torch.Tag.nondeterministic_seeded in node.target.tags:
            raise CaptureError(
                f"the model draws random numbers with {node.target}, which cannot be "
                f"recomputed by others{node_line(node)}.",
                advice="Use dropout, torch.rand_like, torch.randn_like or torch.bernoulli.",
            )
    return tuple(specs)


def lift(
    graphs: tuple[Traced, ...], state: Mapping[str, Tensor], noise: tuple[NoiseSpec, ...],
    results: tuple[str, ...] | None,
) -> ExportedProgram:  # fmt: skip
    """(state, batch, noise) → the results with these labels; None: the graph's own, in order.

    A gradient that no graph gives is zero: a frozen parameter, or one the loss does not reach.
    """
    traced = graphs[0]
    samples = len(traced.examples[0])
    drawn = [torch.rand((samples, *n.shape) if n.per_sample else n.shape) for n in noise]
    arguments = ([t.detach() for t in state.values()], list(traced.examples), drawn)
    shapes = (
        traced.batches.shapes([False] * len(state)),
        traced.batches.shapes([True] * len(traced.examples)),
        traced.batches.shapes([n.per_sample for n in noise]),
    )
    module = _Lifted(graphs, tuple(state), noise, results)
    dynamic = None if traced.batches.fixed else shapes
    with torch.no_grad():
        return torch.export.export(module, arguments, dynamic_shapes=dynamic, strict=False)


class _Lifted(nn.Module):
    def __init__(
        self, graphs: tuple[Traced, ...], names: tuple[str, ...], noise: tuple[NoiseSpec, ...],
        results: tuple[str, ...] | None,
    ) -> None:  # fmt: skip
        super().__init__()
        # `Traced` is no module, so no weight of its graph module travels along.
        self._graphs = graphs
        self._names = names
        self._specs = noise
        self._results = results

    def forward(
        self, state: list[Tensor], batch: list[Tensor], noise: list[Tensor]
    ) -> tuple[Tensor, ...]:
        named = dict(zip(self._names, state, strict=True))
        drawn = list(zip(self._specs, noise, strict=True))
        if self._results is None:
            results = self._run(self._graphs[0], named, batch, drawn)
            return tuple(value for label, value in results if label in (LOSS, OTHER))
        found: dict[str, Tensor] = {}
        for traced in self._graphs:
            for label, value in self._run(traced, named, batch, drawn):
                # Each group's graph has its own loss and gradients; the buffers are all the same.
                if label == LOSS and LOSS in found:
                    value = found[LOSS] + value
                if label != OTHER:
                    found[label] = value
        return tuple(
            found[label] if label in found else torch.zeros_like(named[label[2:]])
            for label in self._results
        )

    def _run(
        self, traced: Traced, named: Mapping[str, Tensor], batch: list[Tensor],
        drawn: list[tuple[NoiseSpec, Tensor]],
    ) -> list[tuple[str, Tensor]]:  # fmt: skip
        state = [named[a] if isinstance(a, str) else a for a in traced.arguments]
        results = _Rewriter(traced.module, iter(drawn)).run(*state, *batch)
        return list(zip(traced.results, results, strict=True))


class _Rewriter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, drawn: Iterator[tuple[NoiseSpec, Tensor]]) -> None:
        super().__init__(module)
        self._drawn = drawn
        self._node: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        self._node = n
        try:
            return super().run_node(n)
        except CrowdgradError as error:  # a rewrite that refuses does not know where it stands
            line = node_line(n)
            if line and line in error.message:
                raise
            said = error.message.rstrip(".")
            raise type(error)(f"{said}{line}.", advice=error.advice) from error

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in RANDOM:
            return RANDOM[target].apply(self._next_noise(), *args, **kwargs)
        instead = replacement(target)
        if instead is not None:
            return instead(*args, **kwargs)
        if isinstance(target, OpOverload) and not can_translate(target):
            raise CaptureError(
                f"the operator {target} has no translation yet", advice=instead_of(str(target))
            )
        return super().call_function(target, args, kwargs)

    def _next_noise(self) -> Tensor:
        assert self._node is not None
        spec, noise = next(self._drawn)
        if not spec.per_sample:
            return noise
        moved = noise.movedim(0, spec.batch_axis)
        rank = len(_drawn_value(self._node).shape)
        if moved.dim() == rank:
            return moved
        return moved.flatten(spec.batch_axis, spec.batch_axis + 1)


def _batch_size(traced: Traced) -> Any:
    holders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    return holders[-1].meta["val"].shape[0]


def _drawn_value(node: fx.Node) -> Any:
    value = node.meta["val"]
    return value[0] if isinstance(value, tuple) else value


def _noise(node: fx.Node, batch: Any) -> NoiseSpec:
    """Shape and place of the batch in what the node draws; its name and kind are not known here."""
    sizes = _drawn_value(node).shape
    axes = [axis for axis, size in enumerate(sizes) if _times(size, batch) is not None]
    others = [size for axis, size in enumerate(sizes) if axis not in axes]
    if len(axes) > 1 or any(not isinstance(size, int) for size in others):
        raise CaptureError(
            f"the random numbers drawn by {node.target} have shape {tuple(map(str, sizes))}"
            f"{node_line(node)}.",
            advice="The batch size may stand in one dimension of what dropout is applied to.",
        )
    if not axes:
        return NoiseSpec(name="noise", kind="uniform", shape=tuple(sizes), per_sample=False)
    (axis,) = axes
    times = _times(sizes[axis], batch)
    folded = () if times == 1 else (times,)
    shape = (*sizes[:axis], *folded, *sizes[axis + 1 :])
    return NoiseSpec(name="noise", kind="uniform", shape=shape, per_sample=True, batch_axis=axis)


def _times(size: Any, batch: Any) -> int | None:
    """n where the size is n times the batch size, None where it does not follow the batch."""
    if isinstance(
        batch, int
    ):  # of a fixed size nothing can be told: the noise is the whole batch's
        return None
    if isinstance(size, int):
        return None
    times = size.node.expr / batch.node.expr
    return int(times) if times.is_Integer else None
