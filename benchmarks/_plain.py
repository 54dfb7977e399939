"""Plain PyTorch, one process, one thread: what training costs without anybody else.

`_plain.py RULE BATCH WIDTH…` trains a model of fully connected layers on MNIST in eager mode with
an optimiser of `torch.optim`, the records in memory as float32 and shuffled anew every epoch. It is
a player (`_windows.py`) whose round trip is one batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))

from _windows import play

from crowdgrad.capture.models import mlp
from crowdgrad.host.train import load_data

LR = 0.01
RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
}


def batches(size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For ever, epoch after epoch; a rest of an epoch is left out."""
    arrays = load_data("mnist").splits["train"]
    x, y = (torch.from_numpy(array.copy()) for array in arrays)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    while True:
        for rows in torch.randperm(len(x)).split(size):
            if len(rows) == size:
                yield x[rows], y[rows].long()


def main() -> None:
    rule, batch, *widths = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    model = mlp((28, 28), tuple(widths[1:-1]), widths[-1]).model
    optimiser = RULES[rule](model.parameters(), lr=LR)
    source = batches(batch)

    def step() -> None:
        x, y = next(source)
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    step()
    play(step)


if __name__ == "__main__":
    main()
