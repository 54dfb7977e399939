"""Every recipe on the same small problem, side by side: a start for your own comparison.

python examples/compare_recipes.py
"""

from __future__ import annotations

import torch
from torch import nn

import crowdgrad as cg

RECIPES = (
    cg.Crowd(lr=0.2),
    cg.AsyncSGD(lr=0.05),
    cg.Downpour(push_every=2, fetch_every=4),
    cg.DCASGD(lr=0.05),
    cg.WeightAveraging(lr=0.2, batches_per_unit=4),
    cg.Synchronous(lr=0.2),
)


def task() -> cg.Task:
    torch.manual_seed(0)  # the same first weights for everyone
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    x, y = torch.zeros(8, 8, 8), torch.zeros(8, dtype=torch.int64)
    return cg.Task(model, nn.functional.cross_entropy, inputs=(x,), targets=(y,))


if __name__ == "__main__":
    data = cg.load_data("digits")
    print(f"{'recipe':12} {'test accuracy':>13} {'seconds':>8} {'staleness':>10}")
    for recipe in RECIPES:
        status = cg.train(task(), data, recipe=recipe, epochs=60, volunteers=3, start="all").status
        print(
            f"{recipe.name:12} {100 * status.test.metrics['accuracy']:11.1f} % "
            f"{status.elapsed_s:8.1f} {status.mean_staleness:10.1f}"
        )
