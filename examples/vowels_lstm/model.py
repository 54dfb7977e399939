"""An LSTM that tells nine speakers apart by how they say two vowels.

Utterances have 7 to 29 steps. They are padded to 29, and a mask says which steps are real. What the
speaker said is in the state after the last real step: `gather` takes it from each sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg


class Speaker(nn.Module):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.read = nn.LSTM(12, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(hidden, 9)

    def forward(self, steps: Tensor, mask: Tensor) -> Tensor:
        states, _ = self.read(steps)  # (batch, 29, hidden)
        last = mask.sum(dim=1) - 1  # the place of the last real step
        index = last[:, None, None].expand(-1, 1, states.shape[2])
        return self.out(self.dropout(states.gather(1, index).squeeze(1)))


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        Speaker(),
        functional.cross_entropy,
        inputs=(torch.zeros(8, 29, 12), torch.ones(8, 29, dtype=torch.bool)),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )
