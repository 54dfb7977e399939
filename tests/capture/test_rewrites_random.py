"""Random operators: the graph with its noise given draws what PyTorch draws from the same noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.export import Dim
from torch.export.experimental import _export_forward_backward

from crowdgrad.capture.quiet import silence
from crowdgrad.capture.rewrites import RANDOM, replacement
from crowdgrad.capture.rewrites.early import before_autograd
from crowdgrad.program.engines.replay import Replay

DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout of channels": lambda x: F.dropout2d(x[..., None], 0.3),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "feature alpha dropout": lambda x: F.feature_alpha_dropout(x, 0.3, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel softmax": lambda x: F.gumbel_softmax(x, dim=1),
    "rand": lambda x: x * torch.rand(x.shape[0], 4, 3),
    "randn": lambda x: x * torch.randn_like(x),
    "uniform": lambda x: x * torch.empty_like(x).uniform_(-1, 1),
    "normal": lambda x: x * torch.empty_like(x).normal_(1.0, 2.0),
    "log normal": lambda x: x * torch.empty_like(x).log_normal_(0.1, 0.2),
    "normal of tensors": lambda x: x * torch.normal(x.detach(), x.detach().exp()),
    "bernoulli": lambda x: x * torch.bernoulli(x.detach().sigmoid()),
    "bernoulli of tensors": lambda x: x * torch.empty_like(x).bernoulli_(x.detach().sigmoid()),
    "randint": lambda x: x * torch.randint(-2, 5, (x.shape[0], 1, 1)),
    "randint from zero": lambda x: x * torch.randint(5, (x.shape[0], 1, 1)),
}
OFTEN = ("dropout", "dropout of channels", "alpha dropout", "rrelu", "gumbel softmax", "randint")


class _Loss(nn.Module):
    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))
        self.draw = draw

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.draw(x + self.offset).sin().mean(),)


class _Given(fx.Interpreter):
    """Keeps the noise it gave."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.noise: list[Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        found = RANDOM.get(n.target) if isinstance(n.target, OpOverload) else None
        if found is None:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        value = n.meta["val"]
        shape = tuple(map(int, (value[0] if isinstance(value, tuple) else value).shape))
        draw = torch.randn if found.kind == "normal" else torch.rand
        self.noise.append(draw(shape))
        return found.apply(self.noise[-1], *args, **kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        instead = replacement(target)
        return instead(*args, **kwargs) if instead else super().call_function(target, args, kwargs)


@pytest.mark.parametrize(
    "name", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in DRAWS]
)
def test_the_same_noise_gives_the_same_gradient(name: str) -> None:
    model = _Loss(DRAWS[name])
    x = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(2))
    with silence():
        shapes = ({0: Dim("batch", min=1)},)
        exported = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)
        joint = _export_forward_backward(before_autograd(exported), 0)
    graph = _Given(joint.graph_module)
    loss, gradient = graph.run(model.offset.detach(), x)
    assert graph.noise
    with Replay(iter(graph.noise)):
        wanted = model(x)[0]
    (of_offset,) = torch.autograd.grad(wanted, model.offset)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(gradient, of_offset)
    assert float(gradient.abs().sum()) > 0
