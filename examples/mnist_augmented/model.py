"""Augmentation inside the program: turned, shifted, noisy and partly erased pictures.

Whatever a model draws with `torch.rand` or `torch.randn` becomes an input of the program, so every
volunteer can make the same picture from (seed, epoch, batch). Only training draws.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

SIDE = 28
TURN, SHIFT, NOISE, HOLE = math.radians(12), 2.0, 0.1, 5


def between(low: float, high: float, count: int) -> Tensor:
    """One number for each picture, with two empty dimensions behind."""
    return (torch.rand(count) * (high - low) + low)[:, None, None]


def moved(image: Tensor) -> Tensor:
    """Turned and shifted: each pixel is fetched from where it came from, the nearest there."""
    count, middle = image.shape[0], (SIDE - 1) / 2
    angle = between(-TURN, TURN, count)
    down, right = between(-SHIFT, SHIFT, count), between(-SHIFT, SHIFT, count)
    y = torch.arange(SIDE)[None, :, None] - middle
    x = torch.arange(SIDE)[None, None, :] - middle
    from_y = (torch.cos(angle) * y - torch.sin(angle) * x + middle + down).round()
    from_x = (torch.sin(angle) * y + torch.cos(angle) * x + middle + right).round()
    place = from_y.clamp(0, SIDE - 1) * SIDE + from_x.clamp(0, SIDE - 1)
    return image.flatten(1).gather(1, place.long().flatten(1)).unflatten(1, (SIDE, SIDE))


def erased(image: Tensor) -> Tensor:
    """A square of each picture becomes grey."""
    count = image.shape[0]
    top, left = between(0, SIDE - HOLE, count), between(0, SIDE - HOLE, count)
    y, x = torch.arange(SIDE)[None, :, None], torch.arange(SIDE)[None, None, :]
    hole = (y >= top) & (y < top + HOLE) & (x >= left) & (x < left + HOLE)
    return torch.where(hole, torch.zeros_like(image), image)


class Augmented(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(SIDE * SIDE, 256), nn.ReLU(), nn.Linear(256, 10)
        )

    def forward(self, image: Tensor) -> Tensor:
        if self.training:
            image = erased(moved(image))
            image = image + NOISE * torch.randn_like(image)
        return self.layers(image)


def task() -> cg.Task:
    torch.manual_seed(1)
    return cg.Task(
        Augmented(),
        functional.cross_entropy,
        inputs=(torch.zeros(8, SIDE, SIDE),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )
