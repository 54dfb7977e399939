"""LeNet with dropout: two convolutions, two poolings, three linear layers.

The random numbers of dropout are an input of the program. Only training draws them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=5)
        self.linear1 = nn.Linear(16 * 5 * 5, 120)
        self.linear2 = nn.Linear(120, 84)
        self.out = nn.Linear(84, 10)
        self.dropout = nn.Dropout(0.2)

    def forward(self, image: Tensor) -> Tensor:
        x = image.unsqueeze(1)  # one channel: (batch, 1, 28, 28)
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.linear1(x.flatten(1)))
        x = functional.relu(self.linear2(self.dropout(x)))
        return self.out(x)


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        LeNet(),
        functional.cross_entropy,
        inputs=(torch.zeros(8, 28, 28),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )
