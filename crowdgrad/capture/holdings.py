"""What a module holds, each tensor once: parameters, buffers, and every name they go by.

Tied weights are one tensor under several names. It travels once, under its first name; a state dict
written later has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crowdgrad.domain.program import DType, TensorSpec
from crowdgrad.errors import CaptureError, TaskError

NAMES: dict[torch.dtype, DType] = {getattr(torch, name): name for name in get_args(DType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """A module's tensors as they are when it is looked at; values are those of the module."""

    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]
    first_names: dict[str, str]
    """Every name → the first name of the same tensor."""
    kept: dict[str, str]
    """The names of the module's state dict, in its order → first names."""

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.parameters.items() if p.requires_grad}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of all values, by first name."""
        every: dict[str, Tensor] = {**self.parameters, **self.buffers}
        return {name: tensor.detach().numpy().copy() for name, tensor in every.items()}


def look(model: nn.Module) -> Holdings:
    """What `model` holds; raises where it is of a kind that cannot travel."""
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    if not parameters:
        raise TaskError("the model has no parameters.", advice="There is nothing to train.")
    for name, parameter in parameters.items():
        _refuse_odd_parameter(name, parameter)
    for name, buffer in buffers.items():
        _refuse_odd_buffer(name, buffer)
    names = {id(tensor): name for name, tensor in (*parameters.items(), *buffers.items())}
    every = (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    )
    first_names = {name: names[id(tensor)] for name, tensor in every}
    kept = {key: first_names[key] for key in model.state_dict() if key in first_names}
    return Holdings(parameters=parameters, buffers=buffers, first_names=first_names, kept=kept)


def specs(tensors: Iterable[tuple[str, Tensor]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape))
        for name, tensor in tensors
    )


def _refuse_odd_parameter(name: str, parameter: nn.Parameter) -> None:
    if parameter.layout != torch.strided:
        raise CaptureError(
            f"parameter {name!r} is sparse.", advice="Parameters are dense: parameter.to_dense()."
        )
    if parameter.is_complex():
        raise CaptureError(
            f"parameter {name!r} is {parameter.dtype}.",
            advice="Complex numbers cannot travel: keep real and imaginary part apart.",
        )
    if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
        raise CaptureError(
            f"parameter {name!r} is {parameter.dtype} on {parameter.device}.",
            advice="Parameters are float32 on the CPU: model.float().cpu().",
        )


def _refuse_odd_buffer(name: str, buffer: Tensor) -> None:
    if buffer.layout != torch.strided or buffer.dtype not in NAMES or buffer.device.type != "cpu":
        kind = "sparse" if buffer.layout != torch.strided else buffer.dtype
        raise CaptureError(
            f"buffer {name!r} is {kind} on {buffer.device}.",
            advice=f"Buffers are dense tensors on the CPU of type {', '.join(get_args(DType))}.",
        )
