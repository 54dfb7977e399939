"""The rewrites of convolution and pooling that were chosen for speed, against PyTorch's own."""

from __future__ import annotations

import itertools

import pytest
import torch

from crowdgrad.capture.rewrites.convolution import convolution_backward
from crowdgrad.capture.rewrites.pooling import max_pool2d_backward, max_pool3d_backward

aten = torch.ops.aten
GEOMETRIES = [(1, 1, 0, 1, 1), (1, 1, 1, 1, 3), (1, 2, 1, 1, 3), (2, 1, 1, 2, 3), (2, 2, 0, 1, 2)]
"""Groups, stride, padding, dilation and the kernel's width."""


@pytest.mark.parametrize("channels", [2, 16])  # below and above where the channels go last
@pytest.mark.parametrize(("outputs", "sizes"), [(6, (11,)), (32, (5, 6))])
def test_convolution(channels: int, outputs: int, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rank = len(sizes)
    for groups, stride, padding, dilation, width in GEOMETRIES:
        x = torch.randn(3, channels, *sizes)
        weight = torch.randn(outputs, channels // groups, *[width] * rank)
        how = ([stride] * rank, [padding] * rank, [dilation] * rank, False, [0] * rank, groups)
        grad = torch.randn_like(aten.convolution(x, weight, None, *how))
        wanted = aten.convolution_backward(grad, x, weight, [outputs], *how, [True] * 3)
        found = convolution_backward(grad, x, weight, [outputs], *how, [True] * 3)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (1, 2), (2, 3)])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("ceil", [True, False])
def test_the_first_maximum_of_a_window_gets_its_gradient(
    kernel: tuple[int, int], beside: bool, ceil: bool
) -> None:
    """Half of the numbers are zero, so that windows have draws; sizes that windows do not fill."""
    torch.manual_seed(0)
    stride = kernel if beside else (1, 2)
    for sizes, padding in itertools.product(((8, 9), (7, 7)), (0, 1)):
        if padding > min(kernel) // 2:
            continue
        x = torch.randn(3, 2, *sizes).relu()
        how = (kernel, stride, (padding, padding), (1, 1), ceil)
        largest, indices = aten.max_pool2d_with_indices(x, *how)
        grad = torch.randn_like(largest)
        wanted = aten.max_pool2d_with_indices_backward(grad, x, *how, indices)
        torch.testing.assert_close(max_pool2d_backward(grad, x, *how, indices), wanted)


def test_the_first_maximum_in_three_dimensions() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 6, 9).relu()
    how = ((2, 3, 2), (2, 3, 2), (0, 0, 0), (1, 1, 1), False)
    largest, indices = aten.max_pool3d_with_indices(x, *how)
    grad = torch.randn_like(largest)
    wanted = aten.max_pool3d_with_indices_backward(grad, x, *how, indices)
    torch.testing.assert_close(max_pool3d_backward(grad, x, *how, indices), wanted)
