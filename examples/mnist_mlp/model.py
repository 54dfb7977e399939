"""784-100-10: the network of the demo, written out.

Only this machine ever runs this file. Volunteers receive the arithmetic it describes, as a graph.
"""

from __future__ import annotations

import torch
from torch import nn

import crowdgrad as cg


def task() -> cg.Task:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )
    # One example batch shows the shapes. Pixels are stored as bytes; the program itself casts and
    # normalises them, so the model sees float32.
    return cg.Task(
        model,
        nn.functional.cross_entropy,
        inputs=(torch.zeros(8, 28, 28),),
        targets=(torch.zeros(8, dtype=torch.int64),),
    )
