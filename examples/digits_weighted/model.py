"""A weight for every record: some labels are trusted less than others.

A loss that returns one value per sample is averaged with weights. They are the data's last field,
behind what the task names. Here one label in three of the training records is wrong, and the
weights say which records somebody has checked. Over 92 % of the test digits are right; without the
weights it would be 85 to 90 %.

    cd examples/digits_weighted && crowdgrad host model:job --helpers 2
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg
from crowdgrad.data.dataset import from_arrays, split_off, standardised
from crowdgrad.domain.job import StoppingRule


def data() -> cg.DataSet:
    digits = split_off(cg.load_data("digits"), "validation", records=200)
    splits = {}
    for split, (x, y) in digits.splits.items():
        weights = np.ones(len(y), np.float32)
        if split == "train":
            draw = np.random.default_rng(1)
            wrong = draw.random(len(y)) < 1 / 3
            y = np.where(wrong, draw.integers(0, 10, len(y)), y).astype(np.uint8)
            weights[wrong] = 0.02
        splits[split] = (x, y, weights)
    doubtful = from_arrays(splits, names=("x", "y", "trust"), title="doubtful digits")
    return standardised(doubtful, "x")


def per_sample(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, target, reduction="none")


def task() -> cg.Task:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return cg.Task(
        model,
        per_sample,
        inputs=(torch.zeros(8, 8, 8),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )


def job() -> cg.Job:
    return cg.Job(
        task=task(),
        data=data(),
        title="Digits with doubtful labels",
        cause="education",
        recipe=cg.Crowd(lr=0.2, batch_size=32),
        stop=StoppingRule(epochs=30, minutes=2),
        maximum=8,
    )
