"""The pipeline on real models. The gate inside compares every one of them with autograd."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.inference import onnx_model_with_weights
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from crowdgrad.program import artifact

CLASSES = torch.tensor([0, 1, 2, 3, 4, 0, 1])
REAL = torch.linspace(-2, 2, 35).reshape(7, 5)
SHARES = torch.linspace(0.05, 0.95, 35).reshape(7, 5)


def task(model: nn.Module, loss=F.cross_entropy, target: Tensor = CLASSES, **changes) -> Task:
    torch.manual_seed(5)
    return Task(model, loss, inputs=(torch.randn(7, 8),), targets=(target,), **changes)


def stack(*layers: nn.Module) -> nn.Sequential:
    """The layers, a Linear before each, so that every one has its own gradients to get right."""
    torch.manual_seed(3)
    body = [part for layer in layers for part in (nn.Linear(8, 8), layer)]
    return nn.Sequential(*body, nn.Linear(8, 5))


COMMON = (
    nn.ReLU(), nn.LeakyReLU(0.1), nn.Tanh(), nn.Sigmoid(), nn.GELU(), nn.ELU(), nn.SiLU(),
    nn.LayerNorm(8), nn.Softmax(1),
)  # fmt: skip
SMOOTH = (
    nn.GELU("tanh"), nn.Mish(), nn.Softplus(), nn.SELU(), nn.CELU(), nn.Softsign(),
    nn.LogSigmoid(), nn.Tanhshrink(),
)  # fmt: skip
CORNERED = (
    nn.PReLU(), nn.ReLU6(), nn.Hardtanh(), nn.Threshold(0.1, 0.2), nn.Hardswish(),
    nn.Hardsigmoid(), nn.RMSNorm(8), nn.GroupNorm(2, 8),
)  # fmt: skip


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param(COMMON, id="common"),
        pytest.param(SMOOTH, id="smooth", marks=pytest.mark.slow),
        pytest.param(CORNERED, id="cornered", marks=pytest.mark.slow),
    ],
)
def test_activations_and_norms(layers):
    captured = capture(task(stack(*layers)))
    assert captured.max_gradient_error < 1e-5
    assert captured.program.spec.noise == ()


class Heads(nn.Module):
    """A head for each loss, so that one capture tries all of them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(8, 5) for _ in range(count))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(head(x) for head in self.heads)


# Each takes the output of its head, then classes, real values and shares in (0, 1).
LOSSES = (
    lambda out, c, r, s: F.cross_entropy(out, c),
    lambda out, c, r, s: F.nll_loss(F.log_softmax(out, 1), c),
    lambda out, c, r, s: F.mse_loss(out, r),
    lambda out, c, r, s: F.binary_cross_entropy(torch.sigmoid(out), s),
    lambda out, c, r, s: F.binary_cross_entropy_with_logits(out, s),
)
RARER_LOSSES = (
    lambda out, c, r, s: F.cross_entropy(out, c, label_smoothing=0.1),
    lambda out, c, r, s: F.cross_entropy(out, s / s.sum(1, keepdim=True)),
    lambda out, c, r, s: nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0))(out, c),
    lambda out, c, r, s: F.l1_loss(out, r),
    lambda out, c, r, s: F.huber_loss(out, r),
    lambda out, c, r, s: F.smooth_l1_loss(out, r),
)


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param(LOSSES, id="common"),
        pytest.param(RARER_LOSSES, id="rarer", marks=pytest.mark.slow),
    ],
)
def test_losses(losses):
    def total(outputs, *targets):
        return sum(loss(out, *targets) for loss, out in zip(losses, outputs, strict=True))

    torch.manual_seed(0)
    targets = (CLASSES, REAL, SHARES)
    captured = capture(
        Task(Heads(len(losses)), total, inputs=(torch.randn(7, 8),), targets=targets)
    )
    assert captured.program.spec.outputs == len(losses)
    assert captured.program.spec.metrics == ()
    assert captured.max_gradient_error < 1e-5


class Noisy(nn.Module):
    """Random numbers of every kind we lift, some for each sample, some for all."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, 6), nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.Unflatten(1, (3, 2)),
            nn.Dropout1d(0.5), nn.Flatten(), nn.Linear(6, 5),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + 0.1 * torch.randn_like(x) + torch.rand(8) + torch.normal(0.0, 1.0, (8,))
            x = x * torch.empty_like(x).uniform_(0.5, 2.0) + torch.empty_like(x).normal_(1.0, 0.1)
            x = x * torch.bernoulli(torch.sigmoid(x.detach()))
        return self.body(x)


def test_random_numbers_become_noise_inputs_and_none_is_drawn_inside():
    captured = capture(task(Noisy()))
    assert [(n.kind, n.shape, n.per_sample) for n in captured.program.spec.noise] == [
        ("normal", (8,), True), ("uniform", (8,), False), ("normal", (8,), False),
        ("uniform", (8,), True), ("normal", (8,), True), ("uniform", (8,), True),
        ("uniform", (6,), True), ("uniform", (6,), True), ("uniform", (3, 1), True),
    ]  # fmt: skip
    assert not {op for op in captured.operators if "Random" in op or op in ("Dropout", "Bernoulli")}


class Odd(nn.Module):
    """A frozen, an unreached, a twice used and two interchangeable parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.rand(8), requires_grad=False)
        self.unused = nn.Parameter(torch.rand(300, 50))
        self.twice = nn.Linear(8, 8)
        self.one = nn.Parameter(torch.rand(5))
        self.two = nn.Parameter(torch.rand(5))
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.twice(self.twice(x * self.frozen)))) + self.one + self.two


def test_parameters_without_a_gradient_get_zeros_and_the_module_stays_as_it_was():
    model = Odd()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.train(False)
    model.last.train(True)

    def decayed(output: Tensor, target: Tensor) -> Tensor:  # a loss may look at the parameters
        return F.cross_entropy(output, target) + 0.1 * model.last.weight.pow(2).sum()

    captured = capture(task(model, decayed))
    assert [p.name for p in captured.program.spec.parameters] == list(before)
    flat = torch.cat([p.reshape(-1) for p in before.values()]).numpy()
    assert np.array_equal(captured.state, flat)
    assert len(captured.program.gradient) < 6000  # neither weights nor zeros travel
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["frozen"]
    assert (model.training, model.last.training) == (False, True)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


FIELDS = (
    Field(name="values", dtype="int16", shape=(8,), mean=3.0, std=2.0),
    Field(name="label", dtype="int32", shape=()),
)


@pytest.fixture(scope="module")
def plain() -> Captured:
    return capture(task(stack(nn.Dropout(0.5))), FIELDS)


def test_capturing_again_is_silent_gives_the_same_bytes_and_draws_no_random_number(plain, capfd):
    made, steps = task(stack(nn.Dropout(0.5))), []
    torch.manual_seed(11)
    wanted = torch.rand(3)
    torch.manual_seed(11)
    again = capture(made, FIELDS, progress=steps.append)
    assert torch.equal(torch.rand(3), wanted)
    assert capfd.readouterr() == ("", "")
    assert len(steps) == 3
    assert artifact.encode(again.program) == artifact.encode(plain.program)


def test_no_trace_of_the_host_travels(plain):
    for graph in (plain.program.gradient, plain.program.forward):
        assert not re.search(rb"\.py|site-packages|/home/|/usr/|torch", graph)


def test_the_spec_says_what_records_hold_and_what_a_sample_costs(plain):
    spec = plain.program.spec
    assert [(t.name, t.dtype) for t in spec.inputs] == [("values", "int16"), ("label", "int32")]
    assert ([metric.name for metric in spec.metrics], spec.outputs) == (["accuracy"], 1)
    # Forward 8·8 + 8·5 products, the weights' gradients as many, the hidden layer's 8·5.
    assert spec.work_per_sample == 2 * (2 * (64 + 40) + 40)
    assert plain.bytes_per_update == 4 * (8 * 8 + 8 + 8 * 5 + 5)


def test_the_inference_file_computes_the_model_without_targets(plain):
    data = onnx_model_with_weights(plain.program, plain.state)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert [port.name for port in session.get_inputs()] == ["x:values"]
    assert [port.name for port in session.get_outputs()] == ["y:0"]
    model = stack(nn.Dropout(0.5)).eval()
    for samples in (1, 6):
        stored = torch.randint(-5, 12, (samples, 8), dtype=torch.int16)
        (got,) = session.run(None, {"x:values": stored.numpy()})
        assert np.allclose(got, model((stored.float() - 3.0) / 2.0).detach().numpy(), atol=1e-5)


def test_one_sample_examples_and_named_metrics():
    made = Task(
        nn.Linear(8, 1),
        F.mse_loss,
        inputs=(torch.randn(1, 8),),
        targets=(torch.randn(1, 1),),
        metrics={"error": F.l1_loss, "bias": lambda out, target: (out - target).mean()},
    )
    captured = capture(made)
    assert [metric.name for metric in captured.program.spec.metrics] == ["error", "bias"]
    assert captured.max_gradient_error < 1e-5
