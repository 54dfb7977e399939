"""A generative adversarial network: one half draws digits, the other tells them from real ones.

The loss is a dictionary: each entry trains only the part of the model that it is named after
(`generator.…`, `discriminator.…`), although both losses read both parts. The generator draws in
evaluation too, so its random numbers are an input there as well.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

CODE = 16
Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


class GAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(CODE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64)
        )
        self.discriminator = nn.Sequential(
            nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Outputs:
        real = image.flatten(1)
        fake = self.generator(torch.randn(real.shape[0], CODE))
        return real, fake, self.discriminator(real), self.discriminator(fake)


def adversaries(outputs: Outputs, label: Tensor) -> dict[str, Tensor]:
    """softplus(−score): how surprised one is that this is called real."""
    _, _, real_score, fake_score = outputs
    return {
        "generator": functional.softplus(-fake_score).mean(),
        "discriminator": (
            functional.softplus(-real_score) + functional.softplus(fake_score)
        ).mean(),
    }


def distance(outputs: Outputs, label: Tensor) -> Tensor:
    """How far the pixels' means and deviations are from those of the real digits, on average."""
    real, fake, _, _ = outputs
    means = (real.mean(dim=0) - fake.mean(dim=0)).abs().mean()
    deviations = (_deviation(real) - _deviation(fake)).abs().mean()
    return means + deviations


def _deviation(pixels: Tensor) -> Tensor:
    return ((pixels - pixels.mean(dim=0)) ** 2).mean(dim=0).add(1e-6).sqrt()


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        GAN(),
        adversaries,
        inputs=(torch.zeros(8, 8, 8),),
        targets=(torch.zeros(8, dtype=torch.int64),),
        metrics={"distance": cg.Metric(distance, better="lower")},
    )
