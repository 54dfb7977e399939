"""Three runs, each from where another ended: pretraining, fine-tuning, continuing.

python examples/pretrained.py
"""

from __future__ import annotations

import torch
from torch import nn

import crowdgrad as cg
from crowdgrad.data.dataset import DataSet, from_arrays, standardised

RECIPE = cg.Crowd(lr=0.2, batch_size=32)


def task(frozen: bool = False) -> cg.Task:
    torch.manual_seed(1)
    features = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
    features.requires_grad_(not frozen)  # frozen parameters keep their values everywhere
    model = nn.Sequential(features, nn.Linear(64, 10))
    x, y = torch.zeros(8, 8, 8), torch.zeros(8, dtype=torch.int64)
    return cg.Task(model, nn.functional.cross_entropy, inputs=(x,), targets=(y,))


def digits(low: int, high: int) -> DataSet:
    splits = {}
    for split, (x, y) in cg.load_data("digits").splits.items():
        chosen = (y >= low) & (y <= high)
        splits[split] = (x[chosen], y[chosen])
    return standardised(from_arrays(splits, title=f"digits {low} to {high}"), "x")


def tell(what: str, result: cg.Result) -> None:
    test = result.status.test
    assert test is not None
    print(f"{what:48} test accuracy {test.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    small, large = digits(0, 4), digits(5, 9)
    first = cg.train(task(), small, recipe=RECIPE, epochs=20, volunteers=2)
    tell("0 to 4, from random weights", first)
    # A run's folder, or any state dict in a .safetensors file, is a beginning.
    second = cg.train(
        task(frozen=True), large, recipe=RECIPE, epochs=10, volunteers=2, weights=first.folder
    )
    tell("5 to 9, last layer only, from the weights of 0 to 4", second)
    # The same job goes on: the same records held out, other orders, every layer trained again.
    third = cg.train(
        task(), large, recipe=RECIPE, epochs=20, volunteers=2, continue_from=second.folder
    )
    tell("5 to 9 continued, every layer", third)
