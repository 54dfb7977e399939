"""A small residual network with batch normalisation.

Running means and variances are buffers: they travel with the parameters, every update brings new
ones, and the host merges them. Evaluation reads what the host has merged.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg


class Block(nn.Module):
    """Two convolutions beside a shortcut; a stride halves height and width."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return functional.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2))
        self.out = nn.Linear(32, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(image.unsqueeze(1))))
        x = self.blocks(x)
        return self.out(x.mean(dim=(2, 3)))  # the mean of every channel


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        ResNet(),
        functional.cross_entropy,
        inputs=(torch.zeros(8, 28, 28),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )
