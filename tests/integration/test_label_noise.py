"""Wrong labels are noticed: digits with a fifth of them changed, beside digits as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import crowdgrad as cg
from crowdgrad.data.dataset import split_off
from crowdgrad.data.generated import digits
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import shard_arrays
from crowdgrad.host.train import Result
from crowdgrad.planner.label_noise import Suspect

BATCH, VALIDATION = 32, 140


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDGRAD_HOME", str(tmp_path / "home"))


def noisy(share: float) -> cg.DataSet:
    """The digits with that share of the labels to train on, and to validate on, changed."""
    rng = np.random.default_rng(1)
    data = digits()
    x, right = data.splits["train"]
    changed = rng.random(len(right)) < share
    y = np.where(changed, (right + rng.integers(1, 10, len(right))) % 10, right).astype(np.uint8)
    data = replace(data, splits={**data.splits, "train": (x, y)})
    return split_off(data, "validation", records=VALIDATION)


def train(data: cg.DataSet, runs: Path) -> Result:
    torch.manual_seed(0)
    task = cg.Task(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        nn.functional.cross_entropy,
        inputs=(torch.zeros(4, 8, 8),),
        targets=(torch.zeros(4, dtype=torch.long),),
    )
    recipe = cg.AsyncSGD(lr=0.1, batch_size=BATCH)
    return cg.train(task, data, recipe=recipe, epochs=15, runs=runs)


def is_wrong(data: cg.DataSet, suspect: Suspect) -> bool:
    """Whether its label is not that of the picture, as the manifest that was trained on lies."""
    manifest, chunks = cut(data, seed=0, batch_size=BATCH)
    raw = b"".join(chunks[chunk.hash] for chunk in manifest.shards[suspect.shard].chunks)
    x, y = shard_arrays(manifest, suspect.shard, raw)
    assert suspect.label == str(y[suspect.row])
    pictures, right = digits().splits["train"]
    (same,) = np.flatnonzero((pictures == x[suspect.row]).all((1, 2)))
    return bool(right[same] != y[suspect.row])


def test_a_fifth_of_wrong_labels_is_found_and_named(tmp_path: Path) -> None:
    data = noisy(0.2)
    result = train(data, tmp_path / "runs")
    found = result.status.label_noise
    assert found is not None
    assert found.share is not None
    assert 0.1 < found.share < 0.3, found.reason
    assert found.threshold == pytest.approx(np.log(10))
    assert found.samples == 1000
    assert len(found.suspects) == 20
    assert sum(is_wrong(data, suspect) for suspect in found.suspects) >= 17
    # Everywhere it is told.
    outcome = json.loads((result.folder / "job.json").read_text())["outcome"]
    assert outcome["label_noise"]["share"] == found.share
    assert outcome["label_noise"]["suspects"][0]["row"] == found.suspects[0].row
    lines = map(json.loads, (result.folder / "metrics.jsonl").read_text().splitlines())
    looks = [line for line in lines if line["kind"] == "look"]
    assert len(looks) >= found.looks
    assert looks[-1]["share"] == pytest.approx(found.share, rel=1e-5)
    page = result.report().read_text()
    assert f"the loss of {100 * found.share:.1f} %" in page
    assert "Training records by loss" in page


@pytest.mark.slow
def test_where_labels_are_right_hardly_any_is_suspected(tmp_path: Path) -> None:
    result = train(noisy(0.0), tmp_path / "runs")
    found = result.status.label_noise
    assert found is not None
    assert found.share is not None
    assert found.share < 0.03, found.reason
