"""The gradients of pooling, by slices and comparisons instead of indices.

The indices of a maximum are slow on CPUs and unknown to GPUs in browsers. Which element of a window
was its maximum can be seen again by comparing: at each offset of the kernel a slice of the input
meets the pooled output, and the first that is equal gets the gradient, as in PyTorch. An average
spreads its gradient evenly. Kernels and image sizes are numbers here; only the batch is free.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from crowdgrad.capture.rewrites import rewrite
from crowdgrad.capture.rewrites.windows import each, pad, reach, spread, window, with_channels
from crowdgrad.errors import CaptureError

aten = torch.ops.aten


@rewrite(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(grad: Tensor, x: Tensor, *geometry: Any) -> Tensor:
    return _max_pool_backward(grad, x, *geometry[:5], pool=aten.max_pool2d_with_indices)


@rewrite(aten.max_pool3d_with_indices_backward.default)
def max_pool3d_backward(grad: Tensor, x: Tensor, *geometry: Any) -> Tensor:
    return _max_pool_backward(grad, x, *geometry[:5], pool=aten.max_pool3d_with_indices)


def _max_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    *,
    pool: Any,
) -> Tensor:
    rank, like = len(kernel), x
    grad, x = with_channels(grad, rank), with_channels(x, rank)
    steps, edges, holes = each(stride or kernel, rank), each(padding, rank), each(dilation, rank)
    sizes = tuple(grad.shape[2:])
    outer = reach(sizes, kernel, steps, holes)
    around = [(p, o - p - n) for p, o, n in zip(edges, outer, x.shape[2:], strict=True)]
    padded = pad(x, around, float("-inf"))
    if steps == tuple(kernel) and set(holes) == {1}:
        whole = _to_winners(grad, padded, axis=x.dim() - 1)
    else:
        # The same operator as forward: written twice here, merged into one in the program.
        largest = pool(x, kernel, stride, padding, dilation, ceil_mode)[0]
        places = itertools.product(*map(range, kernel))
        seen = [window(padded, place, sizes, steps, holes) for place in places]
        whole = spread(_to_first(grad, seen, largest), kernel, steps, holes)
    return pad(whole, [(-before, -after) for before, after in around], 0.0).reshape(like.shape)


def _to_first(grad: Tensor, seen: Sequence[Tensor], largest: Tensor) -> list[Tensor]:
    """The gradient for whoever is the first to equal the largest, nothing for the others."""
    nothing = torch.zeros((), dtype=grad.dtype)
    taken: Tensor | None = None
    parts = []
    for part in seen:
        equal = part == largest
        first = equal if taken is None else equal & ~taken
        taken = equal if taken is None else taken | equal
        parts.append(torch.where(first, grad, nothing))
    return parts


def _to_winners(grad: Tensor, x: Tensor, axis: int) -> Tensor:
    """The same for windows side by side, as a tournament: axis by axis, the last one first.

    A match is one comparison, and the earlier wins a draw: a third of the passes over memory that
    it takes to compare all with the largest.
    """
    if axis < 2:
        return grad
    width = x.shape[axis] // grad.shape[axis]
    players = [x[_every(width, start, axis)] for start in range(width)]
    best = list(itertools.accumulate(players, torch.maximum))
    prize = _to_winners(grad, best[-1], axis - 1)
    shares = []
    for before, player in zip(best[-2::-1], players[:0:-1], strict=True):
        left = torch.where(before >= player, prize, torch.zeros((), dtype=grad.dtype))
        shares.append(prize - left)
        prize = left
    shares.append(prize)
    return torch.stack(shares[::-1], axis + 1).flatten(axis, axis + 1)


def _every(width: int, start: int, axis: int) -> tuple[slice, ...]:
    """Every width-th place along the axis."""
    return (*[slice(None)] * axis, slice(start, None, width))


@rewrite(aten.avg_pool2d.default)
def avg_pool2d(x: Tensor, kernel: Sequence[int], *rest: Any, **named: Any) -> Tensor:
    y = _averages(aten.avg_pool2d.default, with_channels(x, 2), kernel, *rest, **named)
    return y.squeeze(1) if x.dim() == 3 else y


@rewrite(aten.avg_pool3d.default)
def avg_pool3d(x: Tensor, kernel: Sequence[int], *rest: Any, **named: Any) -> Tensor:
    y = _averages(aten.avg_pool3d.default, with_channels(x, 3), kernel, *rest, **named)
    return y.squeeze(1) if x.dim() == 4 else y


def _averages(
    pool: Any,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """torch.onnx forgets a divisor without a word: here it is a factor of the plain mean."""
    if divisor_override is None:
        y: Tensor = pool(x, kernel, stride, padding, ceil_mode, count_include_pad)
        return y
    if ceil_mode:
        raise CaptureError(
            "average pooling has both ceil_mode and divisor_override.",
            advice="Pad the input instead of ceil_mode, or multiply the plain mean.",
        )
    mean: Tensor = pool(x, kernel, stride, padding, False, True)
    return mean * (math.prod(each(kernel, x.dim() - 2)) / divisor_override)


@rewrite(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def avg_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    rank, like = len(kernel), x
    grad, x = with_channels(grad, rank), with_channels(x, rank)
    steps, edges = each(stride or kernel, rank), each(padding, rank)
    sizes, inner = tuple(grad.shape[2:]), tuple(x.shape[2:])
    share = grad / divisor if divisor else grad
    for axis in range(0 if divisor else rank):
        counts = _counts(
            inner[axis], sizes[axis], kernel[axis], steps[axis], edges[axis], count_include_pad
        )
        share = share / _along(counts, axis, rank)
    outer = reach(sizes, kernel, steps, (1,) * rank)
    whole = spread([share] * torch.Size(kernel).numel(), kernel, steps, (1,) * rank)
    around = [(-p, p + n - o) for p, o, n in zip(edges, outer, inner, strict=True)]
    return pad(whole, around, 0.0).reshape(like.shape)


def _counts(
    inner: int, outputs: int, kernel: int, stride: int, padding: int, with_padding: bool
) -> list[int]:
    """How many places each window averages along one axis."""
    counts = []
    for start in range(-padding, outputs * stride - padding, stride):
        low, high = start, min(start + kernel, inner + padding)
        if not with_padding:
            low, high = max(low, 0), min(high, inner)
        counts.append(high - low)
    return counts


def _along(counts: list[int], axis: int, rank: int) -> Tensor | float:
    """One divisor for each window along `axis`; a plain number where they are all alike."""
    if len(set(counts)) == 1:
        return float(counts[0])
    shape = [1] * rank
    shape[axis] = len(counts)
    return torch.tensor(counts, dtype=torch.float32).reshape(shape)


@rewrite(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(x: Tensor, sizes: Sequence[int]) -> Tensor:
    for axis, outputs in enumerate(sizes, start=x.dim() - len(sizes)):
        x = _mix(x, axis, _shares(x.shape[axis], outputs).T)
    return x


@rewrite(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Tensor:
    return _adaptive_avg_pool_backward(grad, x, rank=2)


@rewrite(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(grad: Tensor, x: Tensor) -> Tensor:
    return _adaptive_avg_pool_backward(grad, x, rank=3)


def _adaptive_avg_pool_backward(grad: Tensor, x: Tensor, rank: int) -> Tensor:
    for axis in range(x.dim() - rank, x.dim()):
        grad = _mix(grad, axis, _shares(x.shape[axis], grad.shape[axis]))
    return grad


def _shares(inner: int, outputs: int) -> Tensor:
    """(outputs, inner): which part of each mean comes from where along one axis."""
    table = torch.zeros(outputs, inner)
    for i in range(outputs):
        start, end = i * inner // outputs, -(-(i + 1) * inner // outputs)
        table[i, start:end] = 1 / (end - start)
    return table


def _mix(x: Tensor, axis: int, table: Tensor) -> Tensor:
    """x · table along `axis`."""
    return (x.transpose(axis, -1) @ table).transpose(axis, -1)
