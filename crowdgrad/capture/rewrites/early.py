"""Operators taken apart before differentiation, because their own gradient could not travel.

Some operators have a derivative that PyTorch knows only as one more operator, without decomposition
and without translation. Written with plain operators they differentiate into plain operators. The
exported graph is still PyTorch's own when this happens, so each such node simply calls our function
instead; the joint export then follows the function like any other code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch._decomp import decomposition_table
from torch.export import ExportedProgram

from crowdgrad.capture.rewrites.windows import Edges, cut, reach, window, with_channels
from crowdgrad.errors import CaptureError

aten = torch.ops.aten


def before_autograd(exported: ExportedProgram) -> ExportedProgram:
    """The same program; what `EARLY` names is replaced in its graph."""
    module = exported.graph_module
    for node in _every_node(module):
        if node.target in EARLY:
            node.target = EARLY[node.target]
    module.recompile()
    return exported


def _every_node(module: fx.GraphModule) -> list[fx.Node]:
    graphs = [m for m in module.modules() if isinstance(m, fx.GraphModule)]
    return [node for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]


def pad(x: Tensor, edges: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    pairs = list(zip(edges[::2], edges[1::2], strict=True))
    every = [(0, 0)] * (x.dim() - len(pairs)) + pairs[::-1]
    if mode == "constant":
        return bordered(x, every, value or 0.0, first=0)
    if mode == "replicate":
        return _replicated(x, every)
    return aten.pad.default(x, edges, mode, value)


def bordered(x: Tensor, edges: Edges, value: float, first: int = 2) -> Tensor:
    """A constant border by concatenation: F.pad's gradient needs the batch size as a number."""
    x = cut(x, edges, first)
    for axis, (before, after) in enumerate(edges, start=first):
        parts = [x]
        if before > 0:
            parts.insert(0, _border(x, axis, before, value))
        if after > 0:
            parts.append(_border(x, axis, after, value))
        x = torch.cat(parts, axis) if len(parts) > 1 else x
    return x


def _border(x: Tensor, axis: int, width: int, value: float) -> Tensor:
    shape = list(x.shape)
    shape[axis] = width
    return x.new_full(shape, value)


def constant_pad(x: Tensor, edges: Sequence[int], value: float = 0.0) -> Tensor:
    padded: Tensor = pad(x, edges, "constant", value)
    return padded


def _replicated(x: Tensor, edges: Sequence[tuple[int, int]]) -> Tensor:
    for axis, (before, after) in enumerate(edges):
        if before or after:
            first, last = x.narrow(axis, 0, 1), x.narrow(axis, x.shape[axis] - 1, 1)
            x = torch.cat([*[first] * before, x, *[last] * after], axis)
    return x


def _same(convolution: Any) -> Callable[..., Tensor]:
    def convolve(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sequence[int] = (1,),
        padding: str = "valid",
        dilation: Sequence[int] = (1,),
        groups: int = 1,
    ) -> Tensor:
        """padding="same" adds what an even kernel lacks at the end."""
        rank = weight.dim() - 2
        dilation = list(dilation) * (rank if len(dilation) == 1 else 1)
        if padding == "same":
            reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
            x = bordered(x, [(r // 2, r - r // 2) for r in reach], 0.0)
        y: Tensor = convolution(x, weight, bias, stride, [0] * rank, dilation, groups)
        return y

    return convolve


def adaptive_max_pool(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    rank = len(sizes)
    if x.dim() == rank + 1:
        values, indices = adaptive_max_pool(with_channels(x, rank), sizes)
        return values.squeeze(1), indices.squeeze(1)
    inner = tuple(x.shape[2:])
    if any(n % k for n, k in zip(inner, sizes, strict=True)):
        raise CaptureError(
            f"adaptive max pooling from {inner} to {tuple(sizes)} has windows of several sizes.",
            advice="Choose an output size that divides the input's, or AdaptiveAvgPool.",
        )
    kernel = [n // k for n, k in zip(inner, sizes, strict=True)]
    pool = aten.max_pool2d_with_indices if len(inner) == 2 else aten.max_pool3d_with_indices
    pooled: tuple[Tensor, Tensor] = pool(x, kernel, kernel)
    return pooled


def adaptive_max_pool1d(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    values, indices = adaptive_max_pool(x.unsqueeze(-2), (1, *sizes))
    return values.squeeze(-2), indices.squeeze(-2)


def cdist(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    between = x.unsqueeze(-2) - y.unsqueeze(-3)
    distance: Tensor = torch.linalg.vector_norm(between, p, -1)
    return distance


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    mixed = torch.einsum("...i,oij,...j->...o", x, weight, y)
    return mixed if bias is None else mixed + bias


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = x.sort(dim)
    middle = (x.shape[dim] - 1) // 2
    found = values.narrow(dim, middle, 1), indices.narrow(dim, middle, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def product(x: Tensor, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """Factor by factor: its derivative needs no division, so zeros do no harm."""
    x = x if dtype is None else x.to(dtype)
    whole = x.narrow(dim, 0, 1)
    for place in range(1, x.shape[dim]):
        whole = whole * x.narrow(dim, place, 1)
    return whole if keepdim else whole.squeeze(dim)


def running_product(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    steps = [x.narrow(dim, 0, 1)]
    for place in range(1, x.shape[dim]):
        steps.append(steps[-1] * x.narrow(dim, place, 1))
    return torch.cat(steps, dim)


def running_logsumexp(x: Tensor, dim: int) -> Tensor:
    steps = [x.narrow(dim, 0, 1)]
    for place in range(1, x.shape[dim]):
        steps.append(torch.logaddexp(steps[-1], x.narrow(dim, place, 1)))
    return torch.cat(steps, dim)


def patches(
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """F.unfold: (N, C, H, W) → (N, C · kernel, windows)."""
    x = bordered(x, [(p, p) for p in padding], 0.0)
    every = zip(x.shape[2:], kernel, dilation, stride, strict=True)
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in every]
    offsets = itertools.product(*map(range, kernel))
    seen = [window(x, offset, sizes, stride, dilation).flatten(2) for offset in offsets]
    return torch.stack(seen, 2).flatten(1, 2)


def from_patches(
    x: Tensor,
    sizes: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """F.fold: the windows summed where they came from."""
    places = kernel[0] * kernel[1]
    every = list(zip(sizes, kernel, dilation, padding, stride, strict=True))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in every]
    split = x.reshape(x.shape[0], x.shape[1] // places, places, *counts)
    ends = reach(counts, kernel, stride, dilation)
    outer = [max(end, n + 2 * p) for end, n, p in zip(ends, sizes, padding, strict=True)]
    # Which window and offset each place of the padded image gets its summands from.
    table = torch.arange(outer[0] * outer[1]).reshape(1, 1, *outer)
    offsets = itertools.product(*map(range, kernel))
    places_of = [window(table, offset, counts, stride, dilation).flatten() for offset in offsets]
    target = torch.cat(places_of)
    flat = split.flatten(2)
    whole = flat.new_zeros(flat.shape[0], flat.shape[1], outer[0] * outer[1])
    whole = whole.index_add(2, target, flat).reshape(*flat.shape[:2], *outer)
    return cut(whole, [(-p, n + p - m) for n, p, m in zip(sizes, padding, outer, strict=True)])


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Every (width + 1)-th number of the matrix laid out flat."""
    matrix = x.movedim((dim1, dim2), (-2, -1))
    height, width = matrix.shape[-2:]
    length = min(height, width - offset) if offset >= 0 else min(height + offset, width)
    start = offset if offset >= 0 else -offset * width
    return matrix.flatten(-2)[..., start : start + (length - 1) * (width + 1) + 1 : width + 1]


def sliding(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Tensor.unfold: windows along one axis, their contents last."""
    dim %= x.dim()  # from the front: the result has one axis more
    windows = (x.shape[dim] - size) // step + 1
    along = x.movedim(dim, -1)
    seen = [along[..., o : o + (windows - 1) * step + 1 : step] for o in range(size)]
    return torch.stack(seen, -1).movedim(-2, dim)


def grid_sample(
    x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool
) -> Tensor:
    """By gathering, so that the gradient is a scattering."""
    sample = decomposition_table[aten.grid_sampler_2d.default]
    sampled: Tensor = sample(x, grid, interpolation, padding, align_corners)
    return sampled


def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, **_: Any
) -> Tensor:
    slope: Tensor | float = (lower + upper) / 2
    if training:
        slope = torch.rand_like(x) * (upper - lower) + lower
    return torch.where(x > 0, x, x * slope)


EARLY: Final[dict[Any, Callable[..., Any]]] = {
    aten.pad.default: pad,
    aten.constant_pad_nd.default: constant_pad,
    aten.conv1d.padding: _same(aten.conv1d.default),
    aten.conv2d.padding: _same(aten.conv2d.default),
    aten.conv3d.padding: _same(aten.conv3d.default),
    aten.adaptive_max_pool1d.default: adaptive_max_pool1d,
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten.cdist.default: cdist,
    aten.bilinear.default: bilinear,
    aten.median.dim: median,
    aten.prod.dim_int: product,
    aten.cumprod.default: running_product,
    aten.logcumsumexp.default: running_logsumexp,
    aten.im2col.default: patches,
    aten.col2im.default: from_patches,
    aten.diagonal.default: diagonal,
    aten.unfold.default: sliding,
    aten.grid_sampler.default: grid_sample,
    aten.grid_sampler_2d.default: grid_sample,
    aten.rrelu.default: rrelu,
}
