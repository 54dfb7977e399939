"""From a plan to what is published: batches the program can take, splits, where weights begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.task import Task
from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import DataMalformed, JobFileError, RecipeError
from crowdgrad.host import job as jobs
from crowdgrad.host.job import JobPlan, describe, prepare
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small


def test_a_program_of_one_batch_size_wants_that_size() -> None:
    spec = replace(small.spec(), fixed_batch=32)
    jobs._check_batches(spec, {32})
    with pytest.raises(RecipeError, match="batches of 32 alone, the recipe's have 50"):
        jobs._check_batches(spec, {50})
    with pytest.raises(RecipeError, match="32 to 64") as caught:
        jobs._check_batches(spec, {32, 64})
    assert "no growth" in caught.value.advice


def test_batches_that_are_too_small_are_refused() -> None:
    spec = replace(small.spec(), smallest_batch=2)
    jobs._check_batches(spec, {2})
    with pytest.raises(RecipeError, match="cannot train on batches of 1"):
        jobs._check_batches(spec, {1, 8})


def test_what_is_left_out_is_said() -> None:
    """Shards of 25 and 20 to train on, 12 to validate, 15 to test."""
    manifest, _ = small.manifest()
    local = AsyncSGD(batch_size=10).local()
    assert jobs._left_out(manifest, local, small.spec()) == ()
    notes = jobs._left_out(manifest, local, replace(small.spec(), fixed_batch=10))
    assert [note.partition(" records")[0] for note in notes] == [
        "5 of 45 train",
        "2 of 12 validation",
        "5 of 15 test",
    ]
    large = AsyncSGD(batch_size=100).local()
    with pytest.raises(DataMalformed, match="45 training records are too few"):
        jobs._left_out(manifest, large, replace(small.spec(), fixed_batch=100))


def data(*more: np.ndarray) -> DataSet:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    return from_arrays(x, y, *more, title="points")


def plan(**changes: object) -> JobPlan:
    torch.manual_seed(0)
    task = Task(
        nn.Linear(4, 3),
        nn.functional.cross_entropy,
        inputs=(torch.zeros(4, 4),),
        targets=(torch.zeros(4, dtype=torch.int64),),
    )
    settings: dict[str, object] = {
        "task": task,
        "data": data(),
        "title": "points",
        "recipe": AsyncSGD(batch_size=10),
        "stop": StoppingRule(epochs=2),
        "seed": 7,
        **changes,
    }
    return JobPlan(**settings)  # type: ignore[arg-type]


def test_weights_or_a_run_not_both() -> None:
    with pytest.raises(JobFileError, match="not both"):
        plan(weights="a.safetensors", continue_from="runs/b")


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(plan().task, data().fields)


def test_everything_is_told_and_a_run_goes_on_with_its_splits(
    tmp_path: Path, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_capture", lambda *_: captured)  # once is enough
    first = prepare(plan())
    told = describe(first)
    assert told["classes"] == 3
    assert told["metrics"] == [{"name": "accuracy", "better": "higher", "of_mean": "itself"}]
    assert (told["seed"], told["split_seed"], told["continues"]) == (7, 7, None)

    folder = finished(tmp_path / first.job.id, first)
    second = prepare(plan(continue_from=folder))
    assert describe(second)["continues"] == first.job.id
    assert second.job.seed == 7 + (1 << 32)
    assert second.job.manifest == first.job.manifest, "the very same chunks and splits"
    third = prepare(plan(continue_from=finished(tmp_path / second.job.id, second)))
    assert third.job.seed == 7 + (2 << 32)
    with pytest.raises(JobFileError, match="split with the seed 7"):
        prepare(plan(continue_from=folder, seed=8))
    with pytest.raises(JobFileError, match="54 train, 6 validation"):
        prepare(plan(continue_from=folder, validation=20))


def finished(path: Path, prepared: jobs.Prepared) -> Path:
    """The folder such a run leaves."""
    from safetensors.numpy import save

    from crowdgrad.host.folder import RunFolder
    from crowdgrad.host.results import tensors

    folder = RunFolder(path)
    folder.write_json("job.json", {**describe(prepared), "state": "finished"})
    folder.write("model.safetensors", save(tensors(prepared, prepared.initial)))
    folder.release()
    return folder.path


def test_labels_are_found_before_the_weights_of_the_samples() -> None:
    weighted = data(np.ones(60, np.float32))
    x, labels, w = weighted.splits["train"]
    labels = np.where(np.arange(60) == 5, 3, labels)
    wrong = replace(weighted, splits={"train": (x, labels, w)})
    with pytest.raises(DataMalformed, match="is 3; the model has the classes 0 to 2"):
        prepare(plan(data=wrong))
