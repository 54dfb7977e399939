"""How far an illness goes in a year, guessed from ten figures: a regression on a small table.

The Huber loss is squared where the error is small and straight where it is large, so that a few
unusual patients do not decide everything.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

MEAN, STD = 152.0, 77.0  # of the course of the illness, 25 to 346


class Course(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, figures: Tensor) -> Tensor:
        return self.layers(figures).squeeze(1) * STD + MEAN


def huber(guess: Tensor, course: Tensor) -> Tensor:
    return functional.huber_loss(guess / STD, course / STD)


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        Course(),
        huber,
        inputs=(torch.zeros(8, 10),),
        targets=(torch.full((8,), MEAN),),
        metrics={
            "mean_absolute_error": cg.metrics.mean_absolute_error,
            "root_mean_square_error": cg.metrics.root_mean_square_error,
        },
    )
