"""Losses that are not one number: one for each sample, one for each group of parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.capture import capture
from crowdgrad.capture.groups import taught_by
from crowdgrad.capture.holdings import look
from crowdgrad.capture.task import Task
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import TaskError
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine


def test_one_value_per_sample_is_weighted_and_weight_zero_is_as_if_it_were_not_there():
    torch.manual_seed(1)
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    loss = nn.CrossEntropyLoss(reduction="none")
    captured = capture(Task(nn.Linear(4, 3), loss, inputs=(x,), targets=(y,)))
    spec = captured.program.spec
    assert spec.weighted
    assert [t.name for t in spec.inputs] == ["input0", "target0", "weights"]
    engine = OnnxEngine(captured.program)
    unit = Unit(id=UnitId(0), kind="train", epoch=1, shard=0, first_batch=0, batches=1)

    def gradients(samples: int, weights: list[float]) -> np.ndarray:
        fields = (x[:samples].numpy(), y[:samples].numpy(), np.array(weights, np.float32))
        batch = Batch(number=0, fields=fields)
        work = UnitWork(unit=unit, local=LocalSteps(batch_size=samples), seed=0, batches=[batch])
        update = np.zeros(spec.update_words, np.float32)
        engine.train(work, captured.state, update)
        return update

    padded = gradients(5, [2.0, 2.0, 2.0, 0.0, 0.0])
    assert np.allclose(padded, gradients(3, [1.0, 1.0, 1.0]), atol=1e-6)
    assert np.array_equal(gradients(2, [0.0, 0.0]), np.zeros_like(padded))


class Duel(nn.Module):
    """A generator against a discriminator, which draws in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
        self.discriminator = nn.Sequential(
            nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 1)
        )
        self.bystander = nn.Linear(2, 2)

    def forward(self, real: Tensor) -> tuple[Tensor, Tensor]:
        made = self.generator(torch.randn(real.shape[0], 3))
        return self.discriminator(real), self.discriminator(made)


def duel(scores: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    real, made = scores
    return {
        "generator": F.softplus(-made).mean(),
        "discriminator": F.softplus(-real).mean() + F.softplus(made).mean(),
    }


def test_each_group_learns_from_its_own_loss_and_the_forward_pass_is_not_doubled():
    # The gate compares every gradient with autograd's, taken from its group's loss alone.
    captured = capture(Task(Duel(), duel, inputs=(torch.randn(6, 4),)))
    spec = captured.program.spec
    assert spec.frozen == ("bystander.weight", "bystander.bias")
    assert [(m.name, m.better) for m in spec.metrics] == [
        ("generator_loss", "lower"), ("discriminator_loss", "lower"),
    ]  # fmt: skip
    assert [(n.kind, n.shape) for n in spec.noise] == [
        ("normal", (3,)), ("uniform", (6,)), ("uniform", (6,)),
    ]  # fmt: skip
    assert [(n.kind, n.shape) for n in spec.forward_noise] == [("normal", (3,))]
    # Forward: 3·6 + 6·4 + twice 4·6 + 6. The generator's loss goes back through all but its first
    # layer's input, the discriminator's through its own layers twice.
    forward = 18 + 24 + 2 * (24 + 6)
    generator = (6 + 24) + (24 + 24) + 18
    discriminator = 2 * (6 + 6 + 24)
    assert spec.work_per_sample == 2 * (forward + generator + discriminator)


HOLDINGS = look(Duel())


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        (("generator", "critic"), "'critic'.*Groups are named.*'discriminator'"),
        (("generator", "generator.0"), r"'generator.0.weight' belongs to.*'generator.0'"),
        ((), "no group"),
    ],
)
def test_groups_that_fit_nothing_or_overlap_are_refused(groups, reason):
    with pytest.raises(TaskError, match=reason):
        taught_by(groups, HOLDINGS)
