"""Train in ten lines: this machine's own worker and two more local volunteers, each a process.

python examples/ten_lines.py
"""

from __future__ import annotations

import torch
from torch import nn

import crowdgrad as cg

if __name__ == "__main__":
    data = cg.load_data("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.zeros(8, 8, 8), torch.zeros(8, dtype=torch.int64)
    task = cg.Task(model, nn.functional.cross_entropy, inputs=(x,), targets=(y,))
    result = cg.train(task, data, recipe=cg.AsyncSGD(lr=0.05), epochs=50, volunteers=2)
    print(f"test accuracy {result.status.test.metrics['accuracy']:.3f}, see {result.report()}")
