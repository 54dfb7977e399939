"""An autoencoder: 784 pixels through 16 numbers and back.

There is no target but the picture itself, so the model returns it beside its reconstruction. The
labels of MNIST come along as the data's last field; the loss does not look at them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import crowdgrad as cg


class Autoencoder(nn.Module):
    def __init__(self, code: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, code))
        self.decoder = nn.Sequential(nn.Linear(code, 128), nn.ReLU(), nn.Linear(128, 784))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        pixels = image.flatten(1)
        return self.decoder(self.encoder(pixels)), pixels


def squared_error(outputs: tuple[Tensor, Tensor], label: Tensor) -> Tensor:
    """Per pixel, where the pixels of the training set have mean 0 and deviation 1."""
    reconstruction, pixels = outputs
    return nn.functional.mse_loss(reconstruction, pixels)


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        Autoencoder(),
        squared_error,
        inputs=(torch.zeros(8, 28, 28),),
        targets=(torch.zeros(8, dtype=torch.int64),),
        # The share of the pixels' variance that is lost: 1 is as good as the mean grey.
        metrics={"squared_error": cg.Metric(squared_error, better="lower")},
    )
