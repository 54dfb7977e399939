"""A TransformerEncoder that reads a picture row by row: eight words of eight pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg


class Rows(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.read = nn.Linear(8, width)
        self.places = nn.Parameter(torch.randn(8, width) * 0.1)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=64, dropout=0.1, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        words = self.read(image) + self.places  # (batch, 8 rows, width)
        return self.out(self.encoder(words).mean(dim=1))


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        Rows(),
        functional.cross_entropy,
        inputs=(torch.zeros(8, 8, 8),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )
