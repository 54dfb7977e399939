"""What a diamond costs: six measures and three grades in, dollars out.

Two inputs of different kinds: measures are numbers, grades are ids that become vectors. Means and
deviations of the measures are buffers, which training only reads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

#        carat depth table  x     y     z
MEANS = (0.80, 61.7, 57.5, 5.73, 5.73, 3.54)
STDS = (0.47, 1.43, 2.23, 1.12, 1.14, 0.71)
GRADES = (5, 7, 8)  # cuts, colours, clarities


class Price(nn.Module):
    means: Tensor
    stds: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.tensor(MEANS))
        self.register_buffer("stds", torch.tensor(STDS))
        self.grades = nn.ModuleList(nn.Embedding(count, 4) for count in GRADES)
        self.layers = nn.Sequential(
            nn.Linear(6 + 3 * 4, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, numbers: Tensor, grades: Tensor) -> Tensor:
        measures = ((numbers - self.means) / self.stds).clamp(-5, 5)  # a few are typing errors
        known = [table(grades[:, i]) for i, table in enumerate(self.grades)]
        return self.layers(torch.cat([measures, *known], dim=1)).squeeze(1) + 7.8  # log dollars


def log_error(guess: Tensor, price: Tensor) -> Tensor:
    """The mean absolute error of the logarithm: being wrong by a factor, not by dollars."""
    return functional.l1_loss(guess, price.log())


def dollars(guess: Tensor, price: Tensor) -> Tensor:
    return (guess.exp() - price).abs().mean()


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        Price(),
        log_error,
        inputs=(torch.tensor(MEANS).repeat(8, 1), torch.zeros(8, 3, dtype=torch.int64)),
        targets=(torch.full((8,), 2400.0),),
        metrics={
            "log_error": cg.Metric(log_error, better="lower"),
            "dollars": cg.Metric(dollars, better="lower"),
        },
    )
