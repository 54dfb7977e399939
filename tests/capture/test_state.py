"""What a model holds beside plain parameters: tied weights, buffers of every kind."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.holdings import look
from crowdgrad.capture.inference import onnx_model_with_weights
from crowdgrad.capture.quiet import untouched
from crowdgrad.capture.task import Task
from crowdgrad.capture.weights import with_state
from crowdgrad.errors import CaptureError
from crowdgrad.numerics.layout import StateLayout

WORDS, WIDTH = 7, 4


class Holder(nn.Module):
    """An embedding tied to the last layer, one module under two names, and five kinds of buffer."""

    scale: Tensor
    hidden: Tensor
    mean: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.last = nn.Linear(WIDTH, WORDS)
        self.last.weight = self.words.weight
        self.norm = nn.BatchNorm1d(WIDTH)
        self.again = self.norm
        self.register_buffer("scale", torch.rand(WIDTH) + 0.5)
        self.register_buffer("hidden", torch.tensor([True, False, True, True]), persistent=False)
        self.register_buffer("mean", torch.zeros(WIDTH, dtype=torch.float64))
        self.register_buffer("seen", torch.tensor(3))
        self.plain = torch.arange(1.0, WIDTH + 1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)  # not in place
            self.seen += ids.shape[0]
        x = self.again(x * self.scale / self.plain - self.mean.to(x.dtype))
        return self.last(x.masked_fill(self.hidden, 0.0) / self.seen.to(x.dtype).sqrt())


IDS, TARGET = torch.arange(6) % WORDS, torch.tensor([0, 1, 2, 3, 4, 0])


@pytest.fixture(scope="module")
def model() -> Holder:
    torch.manual_seed(4)
    return Holder()


@pytest.fixture(scope="module")
def captured(model: Holder) -> Captured:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = capture(Task(model, F.cross_entropy, inputs=(IDS,), targets=(TARGET,)))
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    return made


def test_each_tensor_travels_once_and_buffers_are_told_apart_by_what_training_does(captured):
    spec = captured.program.spec
    assert [t.name for t in spec.parameters] == [
        "words.weight",
        "last.bias",
        "norm.weight",
        "norm.bias",
    ]
    assert {(t.name, t.dtype) for t in spec.buffers} == {
        ("mean", "float64"), ("seen", "int64"), ("norm.running_mean", "float32"),
        ("norm.running_var", "float32"), ("norm.num_batches_tracked", "int64"),
    }  # fmt: skip
    assert {(t.name, t.dtype) for t in spec.fixed} == {("scale", "float32"), ("hidden", "bool")}
    assert spec.smallest_batch == 2
    assert captured.bytes_per_update == 4 * spec.update_words


def test_a_state_dict_with_every_name_loads_into_the_users_module(captured, model):
    tensors = {
        t.name: value for t, value in StateLayout(captured.program.spec).tensors(captured.state)
    }
    assert list(captured.names) == list(model.state_dict())
    written = {key: torch.from_numpy(tensors[name].copy()) for key, name in captured.names.items()}
    fresh = Holder()
    fresh.load_state_dict(written, strict=True)
    assert torch.equal(fresh.last.weight, model.words.weight)
    assert fresh.seen == 3


def test_a_trained_state_becomes_a_module_and_an_inference_file(captured, model):
    spec = captured.program.spec
    state = captured.state.copy()
    for tensor, value in StateLayout(spec).tensors(state):
        if tensor.name in ("words.weight", "norm.running_var", "seen"):
            value += 1
    trained = with_state(model, spec, state).eval()
    assert trained.last.weight is trained.words.weight
    assert (int(trained.seen), int(model.seen)) == (4, 3)
    data = onnx_model_with_weights(captured.program, state)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert [port.name for port in session.get_inputs()] == ["x:input0"]
    (got,) = session.run(None, {"x:input0": IDS.numpy()})
    assert np.allclose(got, trained(IDS).detach().numpy(), atol=1e-5)


def test_whatever_happens_inside_the_module_is_put_back(model):
    mean, values = model.mean, model.norm.running_mean.clone()
    with untouched(model):
        model.train()(IDS)
        assert model.mean is not mean
        assert not torch.equal(model.norm.running_mean, values)
    assert model.mean is mean
    assert torch.equal(model.norm.running_mean, values)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.ones(3, dtype=torch.float16), "'odd' is torch.float16"),
        (torch.ones(3, dtype=torch.complex64), "'odd' is torch.complex64"),
        (torch.eye(3).to_sparse(), "'odd' is sparse"),
    ],
)
def test_buffers_of_other_kinds_are_refused(tensor, reason):
    module = nn.Linear(3, 3)
    module.register_buffer("odd", tensor)
    with pytest.raises(CaptureError, match=reason):
        look(module)


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (torch.float64, r"'weight' is torch.float64.*model.float\(\)"),
        (torch.bfloat16, "'weight' is torch.bfloat16"),
        (torch.complex64, "real and imaginary"),
    ],
)
def test_parameters_of_other_types_are_refused(dtype, reason):
    with pytest.raises(CaptureError, match=reason):
        look(nn.Linear(3, 3, dtype=dtype))
