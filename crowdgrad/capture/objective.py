"""What is computed of a batch: the model's output, its loss or losses, and the metrics.

Tracing and the gate both go through here, so that what is captured is what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from crowdgrad.capture.fields import Reader
from crowdgrad.capture.metrics import Metric
from crowdgrad.capture.task import Loss

TINY: Final = 1e-12
"""Where all weights of a batch are zero, its loss is zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    model: nn.Module
    loss: Loss
    readers: tuple[Reader, ...]
    metrics: Mapping[str, Metric]
    weighted: bool = False
    """The loss gives one value per sample; the last reader gives their weights."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The parameters each loss teaches; empty where there is one loss for all."""

    def run(self, stored: Sequence[Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """The model's output and its losses by group, the only one under ''."""
        inputs, targets, weights = self._split(stored)
        output = self.model(*inputs)
        return output, self._losses(output, targets, weights)

    def evaluate(self, stored: Sequence[Tensor]) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Output, loss and metrics; groups of parameters add their losses to the metrics."""
        inputs, targets, weights = self._split(stored)
        output = self.model(*inputs)
        losses = self._losses(output, targets, weights)
        numbers = {
            name: _number(metric(output, *targets), weights)
            for name, metric in self.metrics.items()
        }
        if self.groups:
            numbers |= {loss_name(group): loss for group, loss in losses.items()}
        return output, total(losses), numbers

    def metric_specs(self) -> dict[str, Metric]:
        """The metrics in the order in which `evaluate` gives them."""
        return dict(self.metrics) | {
            loss_name(group): Metric(self.loss, better="lower")  # type: ignore[arg-type]
            for group in self.groups
        }

    def _split(self, stored: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        read = [r.read(column) for r, column in zip(self.readers, stored, strict=True)]
        inputs = sum(reader.role == "input" for reader in self.readers)
        if self.weighted:
            return read[:inputs], read[inputs:-1], read[-1]
        return read[:inputs], read[inputs:], None

    def _losses(
        self, output: Any, targets: list[Tensor], weights: Tensor | None
    ) -> dict[str, Tensor]:
        given = self.loss(output, *targets)
        if isinstance(given, Mapping):
            return {group: _number(given[group], None) for group in self.groups}
        return {"": _number(given, weights)}


def total(losses: Mapping[str, Tensor]) -> Tensor:
    first, *others = losses.values()
    for other in others:
        first = first + other
    return first


def loss_name(group: str) -> str:
    return f"{group}_loss"


def _number(value: Tensor, weights: Tensor | None) -> Tensor:
    """A float32 scalar: what the batch says as a whole, or the mean over its samples."""
    value = value.to(torch.float32)
    if value.dim() == 0:
        return value
    if weights is None:
        return value.mean()
    return (value * weights).sum() / weights.sum().clamp_min(TINY)
