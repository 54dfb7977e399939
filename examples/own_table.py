"""A table of your own: prepare a CSV file, look at what was found, train on it, then on what comes.

python examples/own_table.py
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import crowdgrad as cg


def write_table(path: Path) -> None:
    """What somebody might have: a heading, thirty measures of a cell, a word for each class."""
    found = load_breast_cancer()
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*found.feature_names, "diagnosis"])
        for measures, kind in zip(found.data, found.target, strict=True):
            table.writerow([*measures, found.target_names[kind]])


def task(inputs: int) -> cg.Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 2))
    x, y = torch.zeros(8, inputs), torch.zeros(8, dtype=torch.int64)
    return cg.Task(
        model, nn.functional.cross_entropy, inputs=(x,), targets=(y,),
        metrics={"accuracy": cg.accuracy},
    )  # fmt: skip


def readings() -> Iterator[dict[str, object]]:
    """An instrument that goes on measuring: here, two kinds of noise that a line tells apart."""
    for number in range(6000):
        kind = number % 2
        yield {"level": kind + number % 7 / 10, "drift": (number * 37 % 100) / 100, "kind": kind}


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="crowdgrad-"))
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "cells.csv")
    cells = cg.data.prepare(folder / "cells.csv", folder / "cells.prepared", stratify=True)
    recipe = cg.AsyncSGD(lr=0.05, batch_size=32)
    result = cg.train(task(30), cells, recipe=recipe, epochs=30, runs=folder / "runs")
    assert result.status.test is not None
    print(f"cells: classes {', '.join(cells.manifest.card.classes)}; "
          f"test accuracy {result.status.test.metrics['accuracy']:.3f}")  # fmt: skip

    with cg.data.follow(readings(), folder / "live.prepared", target="kind", patience_s=1) as live:
        result = cg.train(
            task(2), live.folder, recipe=recipe, epochs=1_000_000, minutes=0.1,
            runs=folder / "runs",
        )  # fmt: skip
    assert result.status.test is not None
    grown = cg.data.open_folder(live.folder.path).manifest.records("train")
    print(f"readings: {live.folder.manifest.records('train'):,} records at first, {grown:,} in the "
          f"end; test accuracy {result.status.test.metrics['accuracy']:.3f}")  # fmt: skip
