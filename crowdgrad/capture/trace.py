"""PyTorch module → ATen graph: forward and backward together, and forward alone.

`torch.export` follows the model with a symbolic batch size; its joint export differentiates the
result, so the backward pass is a graph like any other. Each placeholder and each output is labelled
with what it is, because position is all that the later stages keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.experimental import _export_forward_backward
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from crowdgrad.capture.advice import explain
from crowdgrad.capture.fields import Reader
from crowdgrad.capture.task import Loss, Metric

BATCH: Final = Dim("batch", min=1)
_MODEL: Final = "model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """An ATen graph. Arguments: parameters by name, constants by value, then the batch."""

    module: fx.GraphModule
    arguments: tuple[str | Tensor, ...]
    """For each placeholder before the batch: a parameter's name, or a constant."""
    gradients: tuple[str, ...]
    """Parameter names of the outputs after the loss; empty for the forward graph."""
    examples: tuple[Tensor, ...]
    """A stored batch the graph was traced with, one tensor for each reader."""


class _Training(nn.Module):
    """The loss of a stored batch."""

    def __init__(self, model: nn.Module, loss: Loss, readers: tuple[Reader, ...]) -> None:
        super().__init__()
        self.model = model
        # In a tuple, out of the module tree: the loss may itself be a module, or hold the model.
        self._functions: Sequence[Loss] = (loss,)
        self._readers = readers

    def split(self, batch: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        read = [reader.read(column) for reader, column in zip(self._readers, batch, strict=True)]
        inputs = sum(reader.is_input for reader in self._readers)
        return read[:inputs], read[inputs:]

    def forward(self, batch: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self.numbers(batch)[0])

    def numbers(self, batch: list[Tensor]) -> tuple[list[Tensor], Any]:
        """What the functions say of the model's output, and that output."""
        inputs, targets = self.split(batch)
        output = self.model(*inputs)
        return [_number(function(output, *targets)) for function in self._functions], output


class _Evaluation(_Training):
    """Loss, metrics and the model's own outputs."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        readers: tuple[Reader, ...],
        metrics: Mapping[str, Metric],
    ) -> None:
        super().__init__(model, loss, readers)
        self._functions = (loss, *metrics.values())

    def forward(self, batch: list[Tensor]) -> tuple[Tensor, ...]:
        numbers, output = self.numbers(batch)
        return (*numbers, *pytree.tree_leaves(output))


def trace_training(model: nn.Module, loss: Loss, readers: tuple[Reader, ...]) -> Traced:
    """Loss and gradients of every parameter that requires one and that the loss reaches."""
    model.train()
    examples = _examples(readers)
    with explain(model):
        exported = _export(_Training(model, loss, readers), examples)
        joint = _export_forward_backward(exported, 0)
    gradients = tuple(
        str(spec.target).removeprefix(_MODEL)
        for spec in joint.graph_signature.output_specs
        if spec.kind is OutputKind.GRADIENT_TO_PARAMETER
    )
    return _traced(joint, gradients, examples)


def trace_evaluation(
    model: nn.Module, loss: Loss, readers: tuple[Reader, ...], metrics: Mapping[str, Metric]
) -> Traced:
    """Loss, metrics and outputs in evaluation mode."""
    model.eval()
    examples = _examples(readers)
    with explain(model), torch.no_grad():
        exported = _export(_Evaluation(model, loss, readers, metrics), examples)
        exported = exported.run_decompositions()
    return _traced(exported, (), examples)


def _export(module: nn.Module, examples: tuple[Tensor, ...]) -> ExportedProgram:
    shapes = ([{0: BATCH} for _ in examples],)
    return torch.export.export(module, (list(examples),), dynamic_shapes=shapes, strict=False)


def _examples(readers: tuple[Reader, ...]) -> tuple[Tensor, ...]:
    """The stored example batch, of at least two samples: one would be taken for a constant."""
    stored = (reader.store(reader.example) for reader in readers)
    return tuple(torch.cat([column, column]) if len(column) < 2 else column for column in stored)


def _traced(
    exported: ExportedProgram, gradients: tuple[str, ...], examples: tuple[Tensor, ...]
) -> Traced:
    arguments: list[str | Tensor] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.PARAMETER:
            arguments.append(str(spec.target).removeprefix(_MODEL))
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            arguments.append(exported.constants[str(spec.target)].detach())
        else:
            assert spec.kind is InputKind.USER_INPUT, spec
    return Traced(
        module=exported.graph_module,
        arguments=tuple(arguments),
        gradients=gradients,
        examples=examples,
    )


def _number(value: Any) -> Tensor:
    """Losses and metrics leave the graph as float32 scalars."""
    number: Tensor = value.to(torch.float32)
    return number.reshape(())
