"""Sliding windows by slices: what pooling and convolution have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Edges = Sequence[tuple[int, int]]
"""How much before and after, axis by axis; negative cuts off."""


def pad(x: Tensor, edges: Edges, value: float, first: int = 2) -> Tensor:
    """`x` with a constant border on the axes from `first` on."""
    x = cut(x, edges, first)
    widths = [(max(before, 0), max(after, 0)) for before, after in edges]
    if not any(before or after for before, after in widths):
        return x
    widths += [(0, 0)] * (x.dim() - first - len(widths))
    return F.pad(x, [width for pair in reversed(widths) for width in pair], value=value)


def cut(x: Tensor, edges: Edges, first: int = 2) -> Tensor:
    """`x` without what negative edges take away."""
    for axis, (before, after) in enumerate(edges, start=first):
        if before < 0 or after < 0:
            start = max(-before, 0)
            x = x.narrow(axis, start, x.shape[axis] + min(after, 0) - start)
    return x


def with_channels(x: Tensor, rank: int) -> Tensor:
    """(N, *sizes) → (N, 1, *sizes): pooling takes images without channels too."""
    return x.unsqueeze(1) if x.dim() == rank + 1 else x


def window(
    x: Tensor,
    offset: Sequence[int],
    sizes: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    first: int = 2,
) -> Tensor:
    """What every window sees at one offset of its kernel: `sizes` on the axes from `first` on."""
    for axis, (o, n, s, d) in enumerate(zip(offset, sizes, stride, dilation, strict=True), first):
        start = o * d
        index = [slice(None)] * x.dim()
        index[axis] = slice(start, start + (n - 1) * s + 1, s)
        x = x[tuple(index)]
    return x


def spread(
    parts: Sequence[Tensor], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """The way back: one (N, C, *sizes) for each offset of the kernel → the sum where they belong.

    The result ends where the last window ends.
    """
    sizes = tuple(parts[0].shape[2:])
    if tuple(kernel) == tuple(stride) and set(dilation) == {1}:
        return _interleave(parts, tuple(kernel), sizes)
    pending = list(parts)
    for axis in reversed(range(len(kernel))):
        size = kernel[axis]
        groups = [pending[start : start + size] for start in range(0, len(pending), size)]
        pending = [_join(group, axis + 2, stride[axis], dilation[axis]) for group in groups]
    return pending[0]


def _join(parts: Sequence[Tensor], axis: int, stride: int, dilation: int) -> Tensor:
    """The parts of one axis: windows `stride` apart, neighbours in a window `dilation` apart.

    Places that are alike modulo the stride are added up first, on a grid as coarse as the windows;
    then the grids are interleaved.
    """
    size, furthest = parts[0].shape[axis], (len(parts) - 1) * dilation
    grids: dict[int, Tensor] = {}
    for offset, part in enumerate(parts):
        shift, phase = divmod(offset * dilation, stride)
        placed = pad(part, [(shift, furthest // stride - shift)], 0.0, first=axis)
        grids[phase] = grids[phase] + placed if phase in grids else placed
    if stride > 1:
        nothing = torch.zeros_like(grids[0])
        every = [grids.get(phase, nothing) for phase in range(stride)]
        whole = torch.stack(every, axis + 1).flatten(axis, axis + 1)
    else:
        whole = grids[0]
    return whole.narrow(axis, 0, (size - 1) * stride + furthest + 1)


def reach(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Where the last window ends, for each axis."""
    every = zip(sizes, kernel, stride, dilation, strict=True)
    return tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in every)


def each(sizes: Sequence[int], rank: int) -> tuple[int, ...]:
    """One size for each axis, where PyTorch may give one for all."""
    return tuple(sizes) if len(sizes) == rank else tuple(sizes) * rank


def _interleave(parts: Sequence[Tensor], kernel: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """Windows that lie side by side, no place with two parts: one transposition."""
    rank = len(kernel)
    lead = tuple(parts[0].shape[:2])
    if len(parts) == 1:
        return parts[0]
    block = torch.stack(list(parts)).reshape(*kernel, *lead, *sizes)
    order = [rank, rank + 1]
    for axis in range(rank):
        order += [rank + 2 + axis, axis]
    ends = [n * k for n, k in zip(sizes, kernel, strict=True)]
    return block.permute(order).reshape(*lead, *ends)
