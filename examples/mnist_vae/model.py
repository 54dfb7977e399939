"""A variational autoencoder: every picture becomes a cloud in eight dimensions.

`torch.randn_like` draws a point of the cloud. While training its numbers are an input of the
program, made from (seed, epoch, batch), so whoever computes a batch draws the same. In evaluation
the model takes the middle of the cloud and draws nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

MEAN, STD = 33.318 / 255, 78.567 / 255  # of MNIST's pixels, which the program standardises
Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


class VAE(nn.Module):
    def __init__(self, code: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, 256), nn.ReLU(), nn.Linear(256, 784))

    def forward(self, image: Tensor) -> Outputs:
        pixels = image.flatten(1)
        middle, log_variance = self.encoder(pixels).chunk(2, dim=1)
        point = middle
        if self.training:
            point = middle + torch.exp(0.5 * log_variance) * torch.randn_like(middle)
        return self.decoder(point), pixels, middle, log_variance


def reconstruction(outputs: Outputs) -> Tensor:
    """Cross-entropy of all pixels of a picture, as shares of white, in nats."""
    logits, pixels, _, _ = outputs
    white = (pixels * STD + MEAN).clamp(0, 1)
    return (
        functional.binary_cross_entropy_with_logits(logits, white, reduction="sum") / white.shape[0]
    )


def divergence(outputs: Outputs) -> Tensor:
    """How much a cloud tells more than the standard one, in nats."""
    _, _, middle, log_variance = outputs
    each = 0.5 * (middle**2 + log_variance.exp() - 1 - log_variance)
    return each.sum(dim=1).mean()


def bound(outputs: Outputs, label: Tensor) -> Tensor:
    """An upper bound of how many nats a picture costs (the negative ELBO)."""
    return reconstruction(outputs) + divergence(outputs)


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        VAE(),
        bound,
        inputs=(torch.zeros(8, 28, 28),),
        targets=(torch.zeros(8, dtype=torch.int64),),
        metrics={
            "reconstruction": cg.Metric(lambda out, label: reconstruction(out), better="lower"),
            "divergence": cg.Metric(lambda out, label: divergence(out), better="lower"),
        },
    )
