"""What is taken apart before differentiation: each function against the operator it replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export.experimental import _export_forward_backward

from crowdgrad.capture.quiet import silence
from crowdgrad.capture.rewrites.early import EARLY, adaptive_max_pool, before_autograd
from crowdgrad.errors import CaptureError

aten = torch.ops.aten
WEIGHT = torch.randn(4, 3, 4, 2, generator=torch.Generator().manual_seed(1))

CALLS: tuple[tuple[Any, tuple[int, ...], tuple[Any, ...]], ...] = (
    (aten.pad.default, (2, 3, 4), ([1, 2, 0, 1], "constant", 0.5)),
    (aten.pad.default, (2, 3, 4), ([-1, 2],)),
    (aten.pad.default, (2, 3, 4, 4), ([1, 2, 2, 1], "replicate")),
    (aten.pad.default, (2, 3, 4, 4), ([1, 2, 2, 1], "reflect")),
    (aten.constant_pad_nd.default, (2, 3, 4), ([2, -1], 1.5)),
    (aten.conv2d.padding, (2, 3, 6, 5), (WEIGHT, None, [1, 1], "same", [1, 2])),
    (aten.conv2d.padding, (2, 3, 6, 5), (WEIGHT, None, [2, 2], "valid")),
    (aten.conv1d.padding, (2, 3, 6), (WEIGHT[..., 0], None, [1], "same")),
    (aten.conv3d.padding, (2, 3, 4, 5, 3), (WEIGHT[..., None], None, [1, 1, 1], "same")),
    (aten.adaptive_max_pool1d.default, (2, 3, 6), ([3],)),
    (aten.adaptive_max_pool1d.default, (2, 6), ([3],)),
    (aten.adaptive_max_pool2d.default, (2, 3, 6, 4), ([3, 2],)),
    (aten.adaptive_max_pool2d.default, (2, 6, 4), ([3, 2],)),
    (aten.adaptive_max_pool3d.default, (2, 3, 4, 4, 2), ([2, 4, 1],)),
    (aten.cdist.default, (2, 3, 4), (torch.ones(2, 5, 4), 2.0)),
    (aten.bilinear.default, (5, 3), (torch.ones(5, 4), torch.ones(2, 3, 4), torch.ones(2))),
    (aten.median.dim, (5, 6), (1, True)),
    (aten.prod.dim_int, (5, 4), (1,)),
    (aten.cumprod.default, (5, 4), (1,)),
    (aten.logcumsumexp.default, (5, 4), (1,)),
    (aten.diagonal.default, (2, 4, 5), (1, 1, 2)),
    (aten.diagonal.default, (2, 4, 5), (-2, 2, 1)),
    (aten.unfold.default, (2, 9, 3), (1, 4, 2)),
    (aten.unfold.default, (2, 3, 9), (-1, 4, 2)),
    (aten.unfold.default, (2, 9, 3), (-2, 4, 1)),
    (aten.im2col.default, (2, 3, 6, 5), ([2, 3], [1, 1], [1, 1], [2, 1])),
    (aten.col2im.default, (2, 12, 4), ([5, 4], [2, 2], [2, 1], [1, 0], [3, 2])),
    (aten.grid_sampler.default, (2, 3, 4, 4), (torch.full((2, 3, 3, 2), 0.3), 0, 0, False)),
    (aten.grid_sampler_2d.default, (2, 3, 4, 4), (torch.full((2, 3, 3, 2), 0.3), 1, 1, True)),
    (aten.rrelu.default, (5, 4), (0.1, 0.3, False)),
)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("operator", "shape", "rest"), CALLS)
def test_values_and_gradients_are_the_operators(
    operator: Any, shape: tuple[int, ...], rest: tuple[Any, ...]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2), requires_grad=True)
    got, wanted = _results(EARLY[operator], x, rest), _results(operator, x, rest)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_every_function_is_tried() -> None:
    assert {operator for operator, _, _ in CALLS} == set(EARLY)


def _results(function: Callable[..., Any], x: Tensor, rest: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The value, and the gradient of something bent."""
    result = function(x, *rest)
    value = result[0] if isinstance(result, tuple) else result
    (gradient,) = torch.autograd.grad(torch.sin(2 * value).sum(), x)
    return value.detach(), gradient


def test_windows_of_several_sizes_are_refused_with_advice() -> None:
    with pytest.raises(CaptureError, match=r"several sizes.*divides"):
        adaptive_max_pool(torch.zeros(1, 2, 5, 4), (2, 2))


class _Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (F.pad(self.linear(x), (1, 2)).sin().mean(),)


def test_the_gradient_of_padding_needs_it() -> None:
    """Without, PyTorch cannot differentiate it for a free batch size."""
    with silence(), pytest.raises(RuntimeError):
        _export_forward_backward(_exported(), 0)
    with silence():
        joint = _export_forward_backward(before_autograd(_exported()), 0)
    assert aten.cat.default in {node.target for node in joint.graph.nodes}


def _exported() -> ExportedProgram:
    shapes = ({0: Dim("batch", min=1)},)
    return torch.export.export(_Padded(), (torch.randn(4, 3),), dynamic_shapes=shapes, strict=False)
