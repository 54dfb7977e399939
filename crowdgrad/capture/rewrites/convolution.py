"""The gradients of a convolution, by operators that inference runtimes have.

With y = x * w (stride s, padding p, dilation d), the gradients are convolutions themselves:

    of the input    the gradient of y, transposed-convolved with w
    of the weight   x convolved with the gradient of y, batch and channels swapped, s and d swapped
    of the bias     the gradient of y, summed

A transposed convolution is the first line read backwards, so its weight gradient is the second with
input and gradient exchanged. Kernels, channels and image sizes are numbers here; only the batch
size is free. Shapes: x (N, C, *in), y (N, O, *out), w (O, C / groups, *kernel).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from crowdgrad.capture.forms import current_form
from crowdgrad.capture.rewrites import rewrite
from crowdgrad.capture.rewrites.windows import each, pad, window

aten = torch.ops.aten

_FEW_CHANNELS: Final = 4

_MOST_AXES = 2
"""Of an image whose channels may become one more: engines convolve along three at most."""
_MANY_CHANNELS = 8
"""From here on a run along the channels is longer than one along a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def apply(self, x: Tensor, weight: Tensor) -> Tensor:
        """The convolution itself."""
        zeros = [0] * self.rank
        y: Tensor = aten.convolution(
            x, weight, None, self.stride, self.padding, self.dilation, False, zeros, self.groups
        )
        return y


@rewrite(aten.convolution_backward.default)
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    _bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    kernel = tuple(weight.shape[2:])
    geometry = _Geometry(
        kernel=kernel,
        stride=each(stride, len(kernel)),
        padding=each(padding, len(kernel)),
        dilation=each(dilation, len(kernel)),
        groups=groups,
    )
    of_x = of_weight = of_bias = None
    if wanted[0]:
        of_x = _crop(geometry.apply(grad, weight), x) if transposed else None
        of_x = _input_gradient(grad, weight, x, geometry) if of_x is None else of_x
    if wanted[1]:
        inner, outer = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(inner, outer, geometry)
    if wanted[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_x, of_weight, of_bias


def _crop(y: Tensor, like: Tensor) -> Tensor:
    """A large output_padding lets the convolution see places that no input reached."""
    for axis in range(2, y.dim()):
        y = y.narrow(axis, 0, like.shape[axis])
    return y


def _input_gradient(grad: Tensor, weight: Tensor, x: Tensor, geometry: _Geometry) -> Tensor:
    g = geometry
    reach = [d * (k - 1) for d, k in zip(g.dilation, g.kernel, strict=True)]
    around = tuple(r - p for r, p in zip(reach, g.padding, strict=True))
    # Either way an engine copies patches: of `grad` for the mirrored kernel, of x for a transposed
    # convolution. That copying is most of the time, so the smaller of the two is taken.
    cheaper = grad.shape[1] * math.prod(x.shape[2:]) < x.shape[1] * math.prod(grad.shape[2:])
    if cheaper and all(s == 1 for s in g.stride) and min(around) >= 0:
        flat = _Geometry(
            kernel=g.kernel, stride=g.stride, padding=around, dilation=g.dilation, groups=g.groups
        )
        return flat.apply(grad, _mirrored(weight, g.groups))
    rest = [
        x.shape[2 + i] - ((grad.shape[2 + i] - 1) * g.stride[i] - 2 * g.padding[i] + reach[i] + 1)
        for i in range(g.rank)
    ]
    y: Tensor = aten.convolution(
        grad, weight, None, g.stride, g.padding, g.dilation, True, rest, g.groups
    )
    return y


def _mirrored(weight: Tensor, groups: int) -> Tensor:
    """(O, C / groups, *kernel) → (C, O / groups, *kernel), the kernel back to front."""
    outputs, inputs = weight.shape[0], weight.shape[1]
    axes = list(range(2, weight.dim()))
    if math.prod(weight.shape[2:]) > 1:
        weight = weight.flip(axes)
    if groups == 1:
        return weight.transpose(0, 1)
    split = weight.reshape(groups, outputs // groups, inputs, *weight.shape[2:])
    return split.transpose(1, 2).reshape(groups * inputs, outputs // groups, *weight.shape[2:])


def _weight_gradient(x: Tensor, grad: Tensor, geometry: _Geometry) -> Tensor:
    g = geometry
    # As a convolution its kernel would have holes, or all but one place would be thrown away.
    poor = max(g.stride) > 1 or math.prod(g.kernel) == 1
    if g.groups == 1 and (poor or current_form() == "gemm"):
        return _weight_gradient_by_products(x, grad, g)
    return _weight_gradient_by_convolution(x, grad, g)


def _weight_gradient_by_convolution(x: Tensor, grad: Tensor, geometry: _Geometry) -> Tensor:
    g = geometry
    if g.rank <= _MOST_AXES and x.shape[1] // g.groups >= _MANY_CHANNELS:
        return _weight_gradient_channels_last(x, grad, g)
    swapped = x.transpose(0, 1)
    if g.groups > 1:  # (N, G·C, …) → (C, G·N, …): each group convolves its own samples
        samples, channels, *sizes = x.shape
        split = x.reshape(samples, g.groups, channels // g.groups, *sizes)
        order = (2, 1, 0, *range(3, split.dim()))
        swapped = split.permute(order).reshape(channels // g.groups, g.groups * samples, *sizes)
    turned = _Geometry(
        kernel=tuple(grad.shape[2:]),
        stride=g.dilation,
        padding=g.padding,
        dilation=g.stride,
        groups=g.groups,
    )
    found = turned.apply(swapped, grad.transpose(0, 1))
    for axis, size in enumerate(g.kernel, start=2):
        found = found.narrow(axis, 0, size)  # a stride may leave places that no kernel reached
    return found.transpose(0, 1)


def _weight_gradient_channels_last(x: Tensor, grad: Tensor, geometry: _Geometry) -> Tensor:
    """The same convolution, with the channels of x as one more axis to slide along, the last.

    An engine gathers what each place of a kernel sees before it multiplies; along the channels
    these are long runs, along the few places of a kernel they are not (benchmarks/LOG.md).
    """
    g = geometry
    image = x.movedim(1, -1)  # (N, *in, C)
    if g.groups > 1:  # (G·N, *in, C / G): each group convolves its own samples
        split = image.reshape(*image.shape[:-1], g.groups, -1)
        image = split.movedim(-2, 0).flatten(0, 1)
    turned = _Geometry(
        kernel=(*grad.shape[2:], 1),
        stride=(*g.dilation, 1),
        padding=(*g.padding, 0),
        dilation=(*g.stride, 1),
        groups=g.groups,
    )
    found = turned.apply(image.unsqueeze(0), grad.transpose(0, 1).unsqueeze(-1)).squeeze(0)
    for axis, size in enumerate(g.kernel, start=1):
        found = found.narrow(axis, 0, size)
    return found.movedim(-1, 1)


def _weight_gradient_by_products(x: Tensor, grad: Tensor, geometry: _Geometry) -> Tensor:
    """Σ over samples and positions of gradient × what the kernel saw there, offset by offset."""
    g = geometry
    outputs, channels, sizes = grad.shape[1], x.shape[1], tuple(grad.shape[2:])
    rows = grad.transpose(0, 1).flatten(1)
    padded = pad(x, [(p, p) for p in g.padding], 0.0)
    # Channels last, or first where they are few: a thin matrix is better wide than tall.
    few = channels <= _FEW_CHANNELS
    moved = padded.movedim(1, 0) if few else padded.movedim(1, -1)
    first = 2 if few else 1
    seen = [
        window(moved, offset, sizes, g.stride, g.dilation, first)
        for offset in itertools.product(*map(range, g.kernel))
    ]
    if few:
        columns = torch.cat([part.flatten(1) for part in seen])
        found = (rows @ columns.T).reshape(outputs, len(seen), channels).transpose(1, 2)
    else:
        found = torch.stack([rows @ part.flatten(0, -2) for part in seen], 2)
    return found.reshape(outputs, channels, *g.kernel)
