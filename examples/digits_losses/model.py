"""One small network, four losses: each function below is a task of its own.

A loss is any function of the model's outputs and the targets that PyTorch can differentiate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

CLASS_WEIGHTS = torch.tensor([1.0, 1, 1, 2, 1, 1, 1, 1, 2, 2])  # 3, 8 and 9 are often confused
SEGMENTS = torch.tensor(  # of a seven-segment display, for 0 to 9
    [[1, 1, 1, 0, 1, 1, 1], [0, 0, 1, 0, 0, 1, 0], [1, 0, 1, 1, 1, 0, 1], [1, 0, 1, 1, 0, 1, 1],
     [0, 1, 1, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1, 1], [1, 0, 1, 0, 0, 1, 0],
     [1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1, 1]],
    dtype=torch.float32,
)  # fmt: skip


def network(outputs: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def classification(loss: Callable[..., Tensor]) -> cg.Task:
    return cg.Task(
        network(outputs=10),
        loss,
        inputs=(torch.zeros(8, 8, 8),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )


def smoothed() -> cg.Task:
    """Cross-entropy with label smoothing and a weight for each class."""
    return classification(nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, label_smoothing=0.1))


def hinge() -> cg.Task:
    """The right class must lead every other by 1: a support vector machine with a hidden layer."""
    return classification(nn.MultiMarginLoss())


def focal() -> cg.Task:
    """A loss of one's own: cross-entropy that forgets what it knows already (Lin et al. 2017)."""

    def loss(outputs: Tensor, target: Tensor) -> Tensor:
        surprise = functional.cross_entropy(outputs, target, reduction="none")
        return ((1 - torch.exp(-surprise)) ** 2 * surprise).mean()

    return classification(loss)


def segments() -> cg.Task:
    """Several labels at once: which segments of a display show this digit?"""

    def loss(outputs: Tensor, digit: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(outputs, SEGMENTS[digit])

    def all_right(outputs: Tensor, digit: Tensor) -> Tensor:
        return ((outputs > 0) == (SEGMENTS[digit] > 0)).all(dim=1).float().mean()

    return cg.Task(
        network(outputs=7),
        loss,
        inputs=(torch.zeros(8, 8, 8),),
        targets=(torch.zeros(8, dtype=torch.int64),),
        metrics={"all_right": all_right},
    )
