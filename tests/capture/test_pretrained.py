"""Starting from somebody's weights: all of them, or a plain word about what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

from crowdgrad.capture.capture import capture
from crowdgrad.capture.pretrained import holding_weights, load_weights
from crowdgrad.capture.task import Task
from crowdgrad.errors import DataMalformed, DataMissing, TaskError


class Tied(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, classes)
        self.back = nn.Linear(4, 7, bias=False)
        self.back.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(x)))


def task(seed: int, classes: int = 3) -> Task:
    torch.manual_seed(seed)
    model = Tied(classes)
    model.norm.running_mean.fill_(seed)
    inputs, targets = (torch.zeros(4, dtype=torch.int64),), (torch.zeros(4, dtype=torch.int64),)
    return Task(model, nn.functional.cross_entropy, inputs=inputs, targets=targets)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", ["model", "dict", "pt", "run"])
def test_weights_and_buffers_are_held_for_a_while(tmp_path: Path, kind: str) -> None:
    given, mine = task(1), task(2)
    file = tmp_path / "w.safetensors"
    if kind == "model":
        save_model(given.model, str(file))  # leaves out the second name of tied weights
    elif kind == "pt":
        file = tmp_path / "w.pt"
        torch.save(given.model.state_dict(), file)
    else:
        values = {name: value.clone() for name, value in given.model.state_dict().items()}
        save_file(values, tmp_path / "model.safetensors")
        file = tmp_path if kind == "run" else tmp_path / "model.safetensors"
    before = {name: value.clone() for name, value in mine.model.state_dict().items()}
    with holding_weights(mine.model, file):
        assert same(mine.model, given.model)
        assert mine.model.back.weight is mine.model.embed.weight
    assert all(torch.equal(before[name], value) for name, value in mine.model.state_dict().items())


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    values = {name: value.clone() for name, value in task(1, classes=5).model.state_dict().items()}
    del values["norm.weight"]
    values["extra"] = torch.zeros(1)
    save_file(values, tmp_path / "w.safetensors")
    with pytest.raises(TaskError) as caught:
        load_weights(task(2).model, tmp_path / "w.safetensors")
    for said in (
        "Missing: norm.weight",
        "not in the model: extra",
        "head.weight (5, 4) instead of (3, 4)",
        "strict=False",
    ):
        assert said in str(caught.value)


def test_what_is_no_file_of_weights(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="no weights at"):
        load_weights(task(1).model, tmp_path / "gone.safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataMalformed, match="cannot be read as weights"):
        load_weights(task(1).model, tmp_path / "w.safetensors")
    torch.save({"epoch": 3}, tmp_path / "checkpoint.pt")
    with pytest.raises(DataMalformed, match="state dict"):
        load_weights(task(1).model, tmp_path / "checkpoint.pt")


def test_no_code_in_a_file_is_run(tmp_path: Path) -> None:
    torch.save(task(1).model, tmp_path / "model.pt")  # a whole module: a pickle of classes
    with pytest.raises(DataMalformed, match="cannot be read as weights"):
        load_weights(task(2).model, tmp_path / "model.pt")


def test_a_loss_that_reads_the_model_reads_the_weights_too(tmp_path: Path) -> None:
    given, model = nn.Linear(4, 3), nn.Linear(4, 3)
    save_model(given, str(tmp_path / "w.safetensors"))
    own = model.weight.detach().clone()

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, target) + model.weight.square().sum()

    task = Task(model, loss, inputs=(torch.randn(4, 4),), targets=(torch.arange(4) % 3,))
    with holding_weights(task.model, tmp_path / "w.safetensors"):
        assert torch.equal(model.weight, given.weight)  # the very tensor that the loss holds
        captured = capture(task)
    assert captured.state.tolist() == [*given.weight.flatten().tolist(), *given.bias.tolist()]
    assert torch.equal(model.weight, own)
