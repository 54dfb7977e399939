"""From one run to the next, and to answers: buffers, tied weights, weights on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import crowdgrad as cg
from crowdgrad.cli.main import main


class Centred(nn.Module):
    """Subtracts the mean it has seen; one weight has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0).detach())
            self.seen.add_(1)
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x - self.mean)))))


def test_a_run_goes_on_from_another_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CROWDGRAD_HOME", str(tmp_path / "home"))
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(3.0, 1.0, size=(400, 4)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)
    task = cg.Task(
        Centred(),
        nn.functional.cross_entropy,
        inputs=(torch.tensor(x[:8]),),
        targets=(torch.tensor(y[:8]),),
        metrics={"perplexity": cg.metrics.perplexity, "accuracy": cg.accuracy},
    )

    def train(lr: float, **how: object) -> cg.Result:
        recipe = cg.AsyncSGD(lr=lr, batch_size=20)
        return cg.train(task, (x, y), recipe=recipe, epochs=10, runs=tmp_path / "runs", **how)  # type: ignore[arg-type]

    first = train(0.2)
    kept = load_file(first.folder / "model.safetensors")
    mine = Centred()
    mine.load_state_dict(kept)  # every key, none too many
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, kept[name]), name
    assert int(kept["seen"]) > 0
    torch.testing.assert_close(kept["mean"], torch.full((4,), 3.0), atol=0.3, rtol=0)
    assert int(task.model.seen) == 0
    assert first.status.better == "lower"
    best = min(point.metrics["perplexity"] for point in first.history)
    assert first.status.best is not None
    assert first.status.best.metrics["perplexity"] == best

    # At this rate the weights stay where they were: where the second run began is where it ended.
    second = train(1e-6, continue_from=first.folder.name)
    assert int(second.model.seen) > int(kept["seen"])
    told = json.loads((second.folder / "job.json").read_text())
    assert told["continues"] == first.folder.name
    assert first.folder.name in (second.folder / "report.html").read_text()
    for name, value in second.model.named_parameters():
        torch.testing.assert_close(value.detach(), kept[name], atol=1e-3, rtol=0)
        fresh = task.model.get_parameter(name).detach()
        assert (fresh - kept[name]).abs().max() > 0.02, name

    np.save(tmp_path / "x.npy", x)
    capsys.readouterr()
    assert main(["predict", str(second.folder), str(tmp_path / "x.npy"), "--json", "-"]) == 0
    answers = json.loads(capsys.readouterr().out)
    with torch.no_grad():
        outputs = second.model.eval()(torch.tensor(x))
    np.testing.assert_allclose(answers["outputs"][0], outputs.numpy(), rtol=1e-4, atol=1e-5)
    assert answers["classes"] == outputs.argmax(1).tolist()
