"""Metrics: numbers people watch, each a mean over the samples of a split.

A metric's function takes what the loss takes and gives one number for the batch, or one number for
each sample. What is shown is that mean, or a function of it: a perplexity is the exponential of a
mean cross-entropy, not a mean of exponentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from crowdgrad.domain.program import Better, MetricSpec, OfMean
from crowdgrad.errors import TaskError

MetricFunction = Callable[..., Tensor]
"""`function(model(*inputs), *targets)` → a mean over the batch, or one value for each sample."""
IGNORED: Final = -100
"""The class number that PyTorch's cross-entropy leaves out: padding of sequences."""
_NONE: Final = 1e-9
"""Less than any share of a batch: keeps a batch that is all padding from dividing by zero."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A function with what is shown of its mean, and which way is better."""

    function: MetricFunction
    _: KW_ONLY
    better: Better = "higher"
    of_mean: OfMean = "itself"

    def __call__(self, output: object, *targets: Tensor) -> Tensor:
        return self.function(output, *targets)

    def spec(self, name: str) -> MetricSpec:
        return MetricSpec(name=name, better=self.better, of_mean=self.of_mean)


def as_metrics(given: Mapping[str, Metric | MetricFunction]) -> dict[str, Metric]:
    """Plain functions become metrics of which more is better."""
    return {
        name: metric if isinstance(metric, Metric) else Metric(metric)
        for name, metric in given.items()
    }


def accuracy(outputs: Tensor, target: Tensor) -> Tensor:
    """The share of the batch whose largest output is the target class."""
    return correct(outputs, target).mean()


def correct(outputs: Tensor, target: Tensor) -> Tensor:
    """For each sample the share of its targets that are the largest output, padding left out."""
    scores = classes_last(outputs, target)
    return _mean_of_valid((scores.argmax(dim=-1) == target).to(torch.float32), target)


def top_k(k: int) -> Metric:
    """The share of targets among the `k` largest outputs."""

    def within(outputs: Tensor, target: Tensor) -> Tensor:
        scores = classes_last(outputs, target)
        # Counting what is larger needs no sorting. Equal scores count for the target.
        own = scores.gather(-1, target.long().clamp_min(0).unsqueeze(-1))
        hits = (scores > own).sum(dim=-1) < k
        return _mean_of_valid(hits.to(torch.float32), target)

    return Metric(within)


def _cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    scores = classes_last(outputs, target)
    flat = F.cross_entropy(
        scores.reshape(-1, scores.shape[-1]), target.reshape(-1).long(),
        reduction="none", ignore_index=IGNORED,
    )  # fmt: skip
    return _mean_of_valid(flat.reshape(target.shape), target)


def _absolute(outputs: Tensor, target: Tensor) -> Tensor:
    return _sample_mean(_difference(outputs, target).abs())


def _square(outputs: Tensor, target: Tensor) -> Tensor:
    return _sample_mean(_difference(outputs, target).square())


perplexity: Final = Metric(_cross_entropy, better="lower", of_mean="exp")
mean_absolute_error: Final = Metric(_absolute, better="lower")
root_mean_square_error: Final = Metric(_square, better="lower", of_mean="sqrt")


def classes_last(outputs: Tensor, target: Tensor) -> Tensor:
    """The outputs with their classes in the last dimension.

    They stand in dimension 1 where the other sizes are the target's, as PyTorch's cross-entropy
    has them: (batch, classes, height, width). Otherwise they are the last one already, as in
    (batch, time, classes). Where both fit, as in (batch, n, n), PyTorch's way it is.
    """
    places = target.shape[1:]
    if outputs.dim() == target.dim() + 1:
        if outputs.shape[2:] == places:
            return outputs.movedim(1, -1)
        if outputs.shape[1:-1] == places:
            return outputs
    raise TaskError(
        f"a metric of classes got outputs of {_shape(outputs)} and targets of {_shape(target)}.",
        advice="Targets have the outputs' shape without the dimension of classes.",
    )


def _mean_of_valid(values: Tensor, target: Tensor) -> Tensor:
    """For each sample, the mean where the target is not padding.

    Samples that are nothing but padding do not count in the mean over the batch: they give zero,
    and the others as much more.
    """
    valid = (target.long() != IGNORED).to(torch.float32)
    values = values * valid
    if target.dim() > 1:
        counts = valid.flatten(1).sum(1)
        values = values.flatten(1).sum(1) / counts.clamp_min(1.0)
        valid = (counts > 0).to(torch.float32)
    return values / valid.mean().clamp_min(_NONE)


def _difference(outputs: Tensor, target: Tensor) -> Tensor:
    if outputs.shape != target.shape:
        raise TaskError(
            f"a metric of differences got outputs of {_shape(outputs)} and targets of "
            f"{_shape(target)}.",
            advice="Give both the same shape, for instance output.squeeze(1) in the model.",
        )
    return outputs - target


def _shape(tensor: Tensor) -> str:
    return f"shape ({', '.join(['batch', *map(str, tensor.shape[1:])])})"


def _sample_mean(values: Tensor) -> Tensor:
    return values if values.dim() == 1 else values.flatten(1).mean(1)
