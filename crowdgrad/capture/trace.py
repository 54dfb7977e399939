"""PyTorch module → ATen graph: forward and backward together, and forward alone.

`torch.export` follows the model with a symbolic batch size; its joint export differentiates the
result, so the backward pass is a graph like any other. Each placeholder and each output is labelled
with what it is, because position is all that the later stages keep.

Where parameters are taught by losses of their own, there is one joint graph for each loss. All of
them compute all the losses, so that all draw the same random numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from crowdgrad.capture.advice import explain
from crowdgrad.capture.fields import Reader
from crowdgrad.capture.holdings import Holdings
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.quiet import same_tensors
from crowdgrad.capture.rewrites.early import before_autograd
from crowdgrad.capture.rewrites.recurrent import mended
from crowdgrad.errors import CaptureError

MODEL: Final = "model."
LOSS: Final = "loss"
OTHER: Final = "other"
_KINDS: Final = {
    OutputKind.GRADIENT_TO_PARAMETER: "g:",
    OutputKind.BUFFER_MUTATION: "n:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Which batches a graph is to take: of any size from `smallest` on, or of `fixed` samples."""

    smallest: int = 1
    fixed: int = 0

    def shapes(self, columns: Iterable[bool]) -> list[dict[int, Dim] | None] | None:
        """Dynamic shapes for tensors, True where the batch comes first."""
        if self.fixed:
            return None
        dim = Dim("batch", min=self.smallest)
        return [{0: dim} if batched else None for batched in columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """An ATen graph. Arguments: state by name, constants by value, then the batch."""

    module: fx.GraphModule
    arguments: tuple[str | Tensor, ...]
    """For each placeholder before the batch: a parameter's or buffer's name, or a constant."""
    results: tuple[str, ...]
    """For each output: `loss`, `g:` and a parameter, `n:` and a buffer, or `other`."""
    examples: tuple[Tensor, ...]
    """A stored batch the graph was traced with, one tensor for each reader."""
    batches: Batches

    @property
    def changed(self) -> tuple[str, ...]:
        """The buffers that the graph gives a new value."""
        return tuple(r.removeprefix("n:") for r in self.results if r.startswith("n:"))


class TrainingStep(nn.Module):
    """The loss of a stored batch that teaches one group of parameters, then the other losses."""

    def __init__(self, objective: Objective, group: str) -> None:
        super().__init__()
        self.model = objective.model
        # No module of its own, so out of the module tree: the loss may be a module, or hold one.
        self._objective = objective
        self._group = group

    def forward(self, batch: list[Tensor]) -> tuple[Tensor, ...]:
        with _buffers_in_place(self.model):
            _, losses = self._objective.run(batch)
        own = losses.pop(self._group)
        return (own, *(other.detach() for other in losses.values()))


class EvaluationStep(nn.Module):
    """Loss, metrics and the model's own outputs."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.model = objective.model
        self._objective = objective

    def forward(self, batch: list[Tensor]) -> tuple[Tensor, ...]:
        with _buffers_in_place(self.model):
            output, loss, metrics = self._objective.evaluate(batch)
        return (loss, *metrics.values(), *pytree.tree_leaves(output))


@contextmanager
def _buffers_in_place(model: nn.Module) -> Iterator[None]:
    """A buffer given another tensor (`self.mean = …`) has that one's values written into it.

    The exporter sees only what is written in place, and says nothing about the rest.
    """
    with same_tensors(model):
        before = [(module, dict(module._buffers)) for module in model.modules()]
        yield
        for module, buffers in before:
            for name, buffer in buffers.items():
                now = module._buffers.get(name)
                if buffer is not None and now is not None and now is not buffer:
                    buffer.copy_(now.detach())


def trace_training(
    objective: Objective, holdings: Holdings, batches: Batches
) -> tuple[Traced, ...]:
    """Loss, gradients of the parameters that require one, new buffers: a graph for each group.

    Every parameter that requires a gradient must receive one; `teaching` sees to that.
    """
    objective.model.train()
    examples = example_batch(objective.readers, batches)
    found = []
    for group in objective.groups or ("",):
        with teaching(holdings, objective.groups.get(group)), explain(objective.model), mended():
            # A private name, which may be gone one day; `fallback` does without.
            from torch.export.experimental import _export_forward_backward

            exported = _export(TrainingStep(objective, group), examples, holdings, batches)
            joint = _export_forward_backward(before_autograd(exported), 0)
        found.append(_traced(joint, holdings, examples, batches))
    return tuple(found)


def trace_evaluation(objective: Objective, holdings: Holdings, batches: Batches) -> Traced:
    """Loss, metrics and outputs in evaluation mode."""
    objective.model.eval()
    examples = example_batch(objective.readers, batches)
    with explain(objective.model), torch.no_grad(), mended():
        exported = _export(EvaluationStep(objective), examples, holdings, batches)
        exported = before_autograd(exported).run_decompositions()
    return _traced(exported, holdings, examples, batches)


@contextmanager
def teaching(holdings: Holdings, taught: Iterable[str] | None) -> Iterator[None]:
    """Only these parameters require a gradient inside; None: those that did before."""
    flags = [(p, p.requires_grad) for p in holdings.parameters.values()]
    if taught is not None:
        chosen = set(taught)
        for name, parameter in holdings.parameters.items():
            parameter.requires_grad_(parameter.requires_grad and name in chosen)
    try:
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def example_batch(readers: tuple[Reader, ...], batches: Batches) -> tuple[Tensor, ...]:
    """The stored example batch, of at least two samples: one would be taken for a constant."""
    wanted = batches.fixed or max(2, batches.smallest, len(readers[0].example))
    stored = (reader.store(reader.example) for reader in readers)
    return tuple(column[torch.arange(wanted) % len(column)] for column in stored)


def _export(
    module: nn.Module, examples: tuple[Tensor, ...], holdings: Holdings, batches: Batches
) -> ExportedProgram:
    shapes = batches.shapes([True] * len(examples))
    with same_tensors(module):
        exported = torch.export.export(
            module,
            (list(examples),),
            dynamic_shapes=None if shapes is None else (shapes,),
            strict=False,
        )
    _fold_aliases(exported, holdings.first_names)
    return exported


def _fold_aliases(exported: ExportedProgram, first_names: Mapping[str, str]) -> None:
    """Make every use of a tied tensor one of its first name: it has one gradient, one new value."""
    graph, signature = exported.graph, exported.graph_signature
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    firsts: dict[str, fx.Node] = {}
    kept = []
    for spec in signature.input_specs:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER):
            kept.append(spec)
            continue
        name = first_names[str(spec.target).removeprefix(MODEL)]
        node = nodes[spec.arg.name]
        if name not in firsts:
            firsts[name] = node
            kept.append(spec)
            continue
        node.replace_all_uses_with(firsts[name])
        graph.erase_node(node)
    signature.input_specs[:] = kept
    exported.graph_module.recompile()


def _traced(
    exported: ExportedProgram,
    holdings: Holdings,
    examples: tuple[Tensor, ...],
    batches: Batches,
) -> Traced:
    arguments: list[str | Tensor] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            arguments.append(holdings.first_names[str(spec.target).removeprefix(MODEL)])
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            arguments.append(exported.constants[str(spec.target)].detach())
        elif spec.kind is not InputKind.USER_INPUT:
            raise CaptureError(f"the model holds a {spec.kind.name.lower()} that cannot travel.")
    results = []
    for out in exported.graph_signature.output_specs:
        target = str(out.target).removeprefix(MODEL)
        label = _KINDS.get(out.kind)
        if label is not None:
            results.append(label + holdings.first_names[target])
        else:
            results.append(LOSS if out.kind is OutputKind.LOSS_OUTPUT else OTHER)
    return Traced(
        module=exported.graph_module,
        arguments=tuple(arguments),
        results=tuple(results),
        examples=examples,
        batches=batches,
    )
