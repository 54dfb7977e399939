"""What can travel, operator by operator: the table that the tests of the rewrites go through.

A case is a function or module and its example inputs. `Probe` adds a parameter to the first input,
so that gradients flow through everything, and bends the result so that no two gradients are alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], tuple[Tensor, ...]]
    """Example inputs, a batch of five."""

    def build(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(3)
        inputs = self.inputs()
        return Probe(self.make(), inputs[0]), inputs


class Probe(nn.Module):
    """The case as a loss: mean of sin(2y) over everything it returns that is differentiable."""

    def __init__(self, function: Callable[..., Any], first: Tensor) -> None:
        super().__init__()
        self.inner = function if isinstance(function, nn.Module) else None
        self._function = (function,)
        if first.is_floating_point():
            self.offset = nn.Parameter(torch.randn(first.shape[1:]) * 0.1)

    def forward(self, first: Tensor, *others: Tensor) -> Tensor:
        if first.is_floating_point():
            first = first + self.offset
        results = self._function[0](first, *others)
        results = results if isinstance(results, tuple | list) else (results,)
        total = torch.zeros(())
        for y in results:
            if y.is_floating_point():
                total = total + torch.sin(2 * y).mean()
        return total


def _one(name: str, make: Callable[[], Callable[..., Any]], *shapes: tuple[int, ...]) -> Case:
    return Case(
        name=name, make=make, inputs=lambda: tuple(torch.randn(5, *shape) for shape in shapes)
    )


def _function(name: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    return _one(name, lambda: function, *shapes)


def _labelled(name: str, loss: Callable[..., Any], classes: int = 4, *rest: int) -> Case:
    def inputs() -> tuple[Tensor, ...]:
        return torch.randn(5, classes, *rest), torch.randint(0, classes, (5, *rest))

    return Case(name=name, make=lambda: loss, inputs=inputs)


def _ids(name: str, make: Callable[[], Callable[..., Any]], *shape: int) -> Case:
    return Case(name=name, make=make, inputs=lambda: (torch.randint(0, 6, (5, *shape)),))


def _conv(name: str, make: Callable[[], nn.Module], *shape: int) -> Case:
    return _one(f"conv: {name}", make, shape)


CONVOLUTIONS = (
    _conv("1-d", lambda: nn.Conv1d(3, 4, 3), 3, 9),
    _conv("1-d strided, dilated", lambda: nn.Conv1d(3, 4, 3, 2, padding=2, dilation=2), 3, 9),
    _conv("2-d", lambda: nn.Conv2d(3, 4, 3), 3, 7, 6),
    _conv("2-d 1×1", lambda: nn.Conv2d(3, 4, 1, bias=False), 3, 5, 4),
    _conv("2-d 1×1 strided", lambda: nn.Conv2d(3, 4, 1, stride=2), 3, 5, 4),
    _conv("2-d padded", lambda: nn.Conv2d(3, 4, (3, 5), padding=(1, 2)), 3, 7, 6),
    _conv("2-d same", lambda: nn.Conv2d(3, 4, 4, padding="same"), 3, 7, 6),
    _conv("2-d strided with rest", lambda: nn.Conv2d(3, 4, 3, stride=(2, 3)), 3, 8, 9),
    _conv("2-d strided, padded", lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), 3, 8, 8),
    _conv("2-d dilated", lambda: nn.Conv2d(3, 4, 3, dilation=2, padding=1), 3, 7, 8),
    _conv("2-d padded beyond the kernel", lambda: nn.Conv2d(2, 3, 2, padding=3), 2, 4, 4),
    _conv("2-d many channels", lambda: nn.Conv2d(8, 4, 3, padding=1), 8, 2, 3),
    _conv("2-d grouped, many channels", lambda: nn.Conv2d(8, 4, 3, 1, 1, groups=2), 8, 3, 2),
    _conv("2-d grouped", lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), 4, 6, 6),
    _conv("2-d grouped, strided", lambda: nn.Conv2d(4, 6, 3, groups=2, stride=2), 4, 8, 7),
    _conv("2-d depthwise", lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), 4, 6, 6),
    _conv("2-d depthwise, two each", lambda: nn.Conv2d(4, 8, 3, groups=4, stride=2), 4, 6, 7),
    _conv("2-d reflected", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), 3, 6, 6),
    _conv("2-d circular", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), 3, 6, 6),
    _conv("3-d", lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), 2, 4, 5, 3),
    _conv("transposed 1-d", lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), 3, 5),
    _conv("transposed 2-d", lambda: nn.ConvTranspose2d(3, 4, 3), 3, 5, 4),
    _conv(
        "transposed 2-d, everything",
        lambda: nn.ConvTranspose2d(
            4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2
        ),
        4,
        4,
        5,
    ),
    _conv("transposed 3-d", lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), 2, 3, 2, 3),
    _conv(
        "two layers",
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)),
        2,
        8,
        8,
    ),
)

POOLING = (
    _one("max pool 1-d", lambda: nn.MaxPool1d(3, stride=2, padding=1), (3, 9)),
    _one("max pool 2-d", lambda: nn.MaxPool2d(2), (3, 6, 4)),
    _one("max pool 2-d with rest", lambda: nn.MaxPool2d(2), (3, 7, 5)),
    _one("max pool 2-d overlapping", lambda: nn.MaxPool2d(3, 2, 1), (3, 8, 7)),
    _one("max pool 2-d ceil", lambda: nn.MaxPool2d(3, 2, ceil_mode=True), (3, 8, 8)),
    _one("max pool 2-d dilated", lambda: nn.MaxPool2d(2, 2, dilation=2), (3, 8, 7)),
    _one("max pool 2-d with gaps", lambda: nn.MaxPool2d(2, 3), (3, 8, 8)),
    _one("max pool 3-d", lambda: nn.MaxPool3d(2, padding=1), (2, 4, 5, 3)),
    _one("avg pool 1-d", lambda: nn.AvgPool1d(3, 2, 1), (3, 9)),
    _one("avg pool 2-d", lambda: nn.AvgPool2d(2), (3, 6, 4)),
    _one("avg pool 2-d with rest", lambda: nn.AvgPool2d(2), (3, 7, 5)),
    _one("avg pool 2-d overlapping", lambda: nn.AvgPool2d(3, 2, 1), (3, 8, 7)),
    _one(
        "avg pool 2-d without padding counted",
        lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        (3, 8, 7),
    ),
    _one("avg pool 2-d ceil", lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), (3, 8, 8)),
    _one(
        "avg pool 2-d ceil, without padding counted",
        lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        (3, 8, 8),
    ),
    _one("avg pool 2-d divisor", lambda: nn.AvgPool2d(2, divisor_override=3), (3, 6, 4)),
    _one("avg pool 3-d", lambda: nn.AvgPool3d(2, 2, 1), (2, 4, 4, 4)),
    _one("adaptive avg pool 1-d", lambda: nn.AdaptiveAvgPool1d(3), (3, 9)),
    _one("adaptive avg pool 2-d to 1", lambda: nn.AdaptiveAvgPool2d(1), (3, 6, 4)),
    _one("adaptive avg pool 2-d", lambda: nn.AdaptiveAvgPool2d((3, 2)), (3, 6, 4)),
    _one("adaptive avg pool 2-d uneven", lambda: nn.AdaptiveAvgPool2d((3, 2)), (3, 7, 5)),
    _one("adaptive avg pool 3-d", lambda: nn.AdaptiveAvgPool3d(2), (2, 4, 4, 4)),
    _one("adaptive max pool 1-d", lambda: nn.AdaptiveMaxPool1d(3), (3, 9)),
    _one("adaptive max pool 2-d", lambda: nn.AdaptiveMaxPool2d((3, 2)), (3, 6, 4)),
    _one("lp pool 2-d", lambda: nn.LPPool2d(2, 2), (3, 6, 4)),
    _one("max pool 2-d without channels", lambda: nn.MaxPool2d(2), (6, 5)),
    _one("max pool 2-d overlapping, without channels", lambda: nn.MaxPool2d(3, 2, 1), (8, 7)),
    _one("max pool 1-d without channels", lambda: nn.MaxPool1d(2), (6,)),
    _one("max pool 3-d without channels", lambda: nn.MaxPool3d(2), (4, 4, 2)),
    _one("avg pool 2-d without channels", lambda: nn.AvgPool2d(3, 2, 1), (8, 7)),
    _one("avg pool 3-d without channels", lambda: nn.AvgPool3d(2), (4, 4, 2)),
    _one("avg pool 2-d divisor, no channels", lambda: nn.AvgPool2d(2, divisor_override=3), (6, 4)),
    _one("adaptive avg pool 2-d without channels", lambda: nn.AdaptiveAvgPool2d((3, 2)), (7, 5)),
    _one("adaptive avg pool 3-d without channels", lambda: nn.AdaptiveAvgPool3d(2), (4, 4, 5)),
    _one("adaptive max pool 2-d without channels", lambda: nn.AdaptiveMaxPool2d((3, 2)), (6, 4)),
)

NORMALISATION = (
    _one("batch norm", lambda: nn.BatchNorm2d(3), (3, 4, 2)),
    _one("batch norm 1-d", lambda: nn.BatchNorm1d(3, affine=False), (3, 7)),
    _one("layer norm", lambda: nn.LayerNorm((3, 4)), (3, 4)),
    _one("layer norm without weights", lambda: nn.LayerNorm(4, elementwise_affine=False), (3, 4)),
    _one("group norm", lambda: nn.GroupNorm(2, 4), (4, 3, 3)),
    _one("group norm of vectors", lambda: nn.GroupNorm(2, 10), (10,)),
    _one("instance norm", lambda: nn.InstanceNorm2d(4, affine=True), (4, 3, 3)),
    _one("rms norm", lambda: nn.RMSNorm(4), (3, 4)),
    _one("local response norm", lambda: nn.LocalResponseNorm(2), (4, 3, 3)),
    _one("weight norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (4,)),
    _function("variance over the batch", lambda x: x.var(0), (4,)),
    _function("deviation over the batch", lambda x: x.std(0), (4,)),
    _one("normalize", lambda: lambda x: F.normalize(x, dim=1), (4,)),
    _one("cosine similarity", lambda: lambda x, y: F.cosine_similarity(x, y), (4,), (4,)),
)

ACTIVATIONS = tuple(
    _function(name, function, (7,))
    for name, function in {
        "relu": F.relu,
        "relu6": F.relu6,
        "leaky relu": F.leaky_relu,
        "elu": F.elu,
        "selu": F.selu,
        "celu": F.celu,
        "gelu": F.gelu,
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        "mish": F.mish,
        "softplus": F.softplus,
        "softsign": F.softsign,
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "hardtanh": F.hardtanh,
        "hardshrink": F.hardshrink,
        "softshrink": F.softshrink,
        "tanhshrink": F.tanhshrink,
        "threshold": lambda x: F.threshold(x, 0.1, 20),
        "logsigmoid": F.logsigmoid,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "softmax": lambda x: F.softmax(x, 1),
        "log softmax": lambda x: F.log_softmax(x, 1),
        "softmin": lambda x: F.softmin(x, 1),
        "rrelu in evaluation": lambda x: F.rrelu(x, training=False),
    }.items()
)
ACTIVATIONS += (
    _one("glu", lambda: nn.GLU(), (6,)),
    _one("prelu", lambda: nn.PReLU(3), (3, 4)),
    _one("maxout", lambda: lambda x: x.reshape(-1, 3, 2).amax(2), (6,)),
)

LOSSES = (
    _labelled("cross entropy", F.cross_entropy),
    _labelled("cross entropy per sample", lambda x, y: F.cross_entropy(x, y, reduction="none")),
    _labelled("cross entropy smoothed", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
    Case(
        name="cross entropy with probabilities",
        make=lambda: lambda x, y: F.cross_entropy(x, F.softmax(y, 1)),
        inputs=lambda: (torch.randn(5, 4), torch.randn(5, 4)),
    ),
    _labelled(
        "cross entropy weighted",
        lambda x, y: F.cross_entropy(x, y, weight=torch.tensor([1.0, 0.5, 2.0, 0.1])),
    ),
    _labelled("cross entropy ignoring", lambda x, y: F.cross_entropy(x, y, ignore_index=1)),
    _labelled(
        "cross entropy everything",
        lambda x, y: F.cross_entropy(
            x, y, weight=torch.tensor([1.0, 0.5, 2.0, 0.1]), ignore_index=1, label_smoothing=0.2
        ),
    ),
    _labelled("cross entropy of images", F.cross_entropy, 4, 3, 2),
    _labelled("nll loss", lambda x, y: F.nll_loss(F.log_softmax(x, 1), y)),
    _labelled("multi margin", F.multi_margin_loss),
    _labelled("multi margin squared", lambda x, y: F.multi_margin_loss(x, y, p=2, margin=0.5)),
    _labelled(
        "hinge", lambda x, y: (1 - x[:, 0] * (2 * (y % 2) - 1).to(x.dtype)).clamp(min=0).mean()
    ),
    _function("mse", F.mse_loss, (4,), (4,)),
    _function("l1", F.l1_loss, (4,), (4,)),
    _function("smooth l1", lambda x, y: F.smooth_l1_loss(x, y, beta=0.5), (4,), (4,)),
    _function("huber", lambda x, y: F.huber_loss(x, y, delta=0.7), (4,), (4,)),
    _function("bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (4,), (4,)),
    _function(
        "bce with logits",
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        (4,),
        (4,),
    ),
    _function(
        "bce with logits weighted",
        lambda x, y: F.binary_cross_entropy_with_logits(
            x, y.sigmoid(), pos_weight=torch.tensor([1.0, 2.0, 0.5, 3.0])
        ),
        (4,),
        (4,),
    ),
    _function(
        "kl div",
        lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
        (4,),
        (4,),
    ),
    _function("poisson nll", F.poisson_nll_loss, (4,), (4,)),
    _function("soft margin", lambda x, y: F.soft_margin_loss(x, y.sign()), (4,), (4,)),
    _function("triplet", F.triplet_margin_loss, (4,), (4,), (4,)),
    _function(
        "margin ranking", lambda x, y, t: F.margin_ranking_loss(x, y, t.sign()), (4,), (4,), (4,)
    ),
    _function("pairwise distance", F.pairwise_distance, (4,), (4,)),
)

INDEXING = (
    _ids("embedding", lambda: nn.Embedding(6, 3), 4),
    _ids("embedding with padding", lambda: nn.Embedding(6, 3, padding_idx=2), 4),
    _ids("embedding of one id", lambda: nn.Embedding(6, 3)),
    _ids("embedding, averaged", lambda: _Averaged(), 4),
    _labelled("gather", lambda x, i: x.gather(1, i[:, None])),
    _labelled("index select", lambda x, i: x.index_select(1, torch.tensor([2, 0, 2]))),
    _labelled("index with tensors", lambda x, i: x[torch.arange(x.shape[0]), i]),
    _labelled("index put", lambda x, i: _put(x, i)),
    _labelled("scatter add", lambda x, i: torch.zeros_like(x).scatter_add(1, i[:, None], x[:, :1])),
    _labelled("scatter", lambda x, i: torch.zeros_like(x).scatter(1, i[:, None], x[:, :1])),
    _labelled("one hot", lambda x, i: x * F.one_hot(i, 4)),
    _labelled("masked fill", lambda x, i: x.masked_fill((i > 1)[:, None], 0.5)),
    _labelled("where", lambda x, i: torch.where((i > 1)[:, None], x, x * x)),
    _function("last valid step", lambda x, n: _last(x, n), (3, 4), (1,)),
    _function("slice", lambda x: x[:, 1:6:2], (7,)),
    _function("slice in place", lambda x: _assign(x), (7,)),
    _function("select", lambda x: x[:, 2], (4, 3)),
    _function("chunk and cat", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), (6,)),
    _function("stack", lambda x: torch.stack([x, x * x], 2), (6,)),
    _function("flip", lambda x: x.flip(1), (4, 3)),
    _function("roll", lambda x: x.roll(2, 1), (7,)),
    _function("roll twice", lambda x: x.roll((1, -1), (1, 2)), (4, 3)),
    _function("repeat", lambda x: x.repeat(1, 3), (4,)),
    _function("repeat interleave", lambda x: x.repeat_interleave(3, 1), (4,)),
    _function("tril", lambda x: x.tril() + x.triu(1) * 2, (4, 4)),
    _function("diagonal", lambda x: x.diagonal(dim1=1, dim2=2), (4, 4)),
    _function("unfold", lambda x: x.unfold(1, 3, 2), (9,)),
    _function("im2col", lambda x: F.unfold(x, (2, 3), padding=1, stride=2), (3, 6, 5)),
    _function("col2im", lambda x: F.fold(x, (4, 5), (2, 2)), (8, 12)),
    _function("pixel shuffle", lambda x: F.pixel_shuffle(x, 2), (8, 3, 2)),
    _function("pixel unshuffle", lambda x: F.pixel_unshuffle(x, 2), (2, 4, 6)),
    _function("channel shuffle", lambda x: F.channel_shuffle(x, 2), (4, 3, 2)),
    _function("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), (3, 4)),
    _function("pad cropping", lambda x: F.pad(x, (-1, 2)), (3, 4)),
    _function("pad reflected", lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), (2, 4, 4)),
    _function("pad replicated", lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), (2, 4, 4)),
    _function("pad circular", lambda x: F.pad(x, (1, 2), mode="circular"), (2, 4)),
)

ARITHMETIC = (
    _function("cumsum", lambda x: x.cumsum(1), (5,)),
    _function("logsumexp", lambda x: x.logsumexp(1), (5,)),
    _function("logcumsumexp", lambda x: x.logcumsumexp(1), (5,)),
    _function("cumprod", lambda x: x.cumprod(1), (5,)),
    _function("prod", lambda x: x.prod(1), (5,)),
    _function("var", lambda x: x.var(1), (5,)),
    _function("std", lambda x: x.std(1, unbiased=False), (5,)),
    _function("norm", lambda x: x.norm(dim=1), (5,)),
    _function("norm l1", lambda x: x.norm(p=1, dim=1), (5,)),
    _function("norm 3", lambda x: x.norm(p=3, dim=1), (5,)),
    _function("norm max", lambda x: x.norm(p=math.inf, dim=1), (5,)),
    _function("cdist", lambda x, y: torch.cdist(x, y), (4, 3), (5, 3)),
    _function("amax", lambda x: x.amax(1), (5,)),
    _function("max", lambda x: x.max(1).values, (5,)),
    _function("min of two", lambda x, y: torch.minimum(x, y), (5,), (5,)),
    _function("max of all", lambda x: x.max() - x.min(), (5,)),
    _function("median", lambda x: x.median(1).values, (5,)),
    _function("topk", lambda x: x.topk(3, 1).values, (7,)),
    _function("sort", lambda x: x.sort(1).values, (7,)),
    _function("clamp", lambda x: x.clamp(-0.5, 0.5), (5,)),
    _function("clamp by tensors", lambda x, y: x.clamp(max=y), (5,), (5,)),
    _function("pow", lambda x, y: x.abs().pow(y) + 2**x + x**3, (5,), (5,)),
    _function("roots", lambda x: x.abs().sqrt() + (x * x + 1).rsqrt() + 1 / (2 + x.abs()), (5,)),
    _function("logs", lambda x: x.abs().log() + x.abs().log1p() + x.abs().log2(), (5,)),
    _function("exps", lambda x: x.exp() + x.expm1() + x.exp2(), (5,)),
    _function("trigonometry", lambda x: x.sin() + x.cos() + x.tan() + x.atan(), (5,)),
    _function("arcs", lambda x: (x.tanh() * 0.9).asin() + 3 * (x.tanh() * 0.9).acos(), (5,)),
    _function("hyperbolic", lambda x: x.sinh() + x.cosh() + x.asinh(), (5,)),
    _function("atan2", lambda x, y: torch.atan2(x, y), (5,), (5,)),
    _function("erf", lambda x: x.erf(), (5,)),
    _function("lerp", lambda x, y: torch.lerp(x, y, 0.3), (5,), (5,)),
    _function("addcmul", lambda x, y: torch.addcmul(x, x, y, value=0.5), (5,), (5,)),
    _function("fmod", lambda x: torch.fmod(x, 0.7) + torch.remainder(x, 0.7), (5,)),
    _function("nan to num", lambda x: torch.nan_to_num(x), (5,)),
    _function("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), (3, 4), (2, 4)),
    _function("bmm", lambda x, y: torch.bmm(x, y), (3, 4), (4, 2)),
    _function("baddbmm", lambda x, y: torch.baddbmm(y, x, y, alpha=0.5), (3, 3), (3, 3)),
    _function("outer", lambda x, y: x[:, :, None] * y[:, None], (3,), (4,)),
    _one("bilinear", lambda: nn.Bilinear(3, 4, 2), (3,), (4,)),
    _function(
        "meshgrid",
        lambda x: x * torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")[0],
        (3, 4),
    ),
    _function("detach", lambda x: x * x.detach(), (5,)),
    _function("straight through", lambda x: x + (x.round() - x).detach(), (5,)),
)

IMAGES = (
    _function("upsample nearest 1-d", lambda x: F.interpolate(x, scale_factor=2), (2, 4)),
    _function("upsample nearest", lambda x: F.interpolate(x, scale_factor=2), (2, 3, 4)),
    _function("upsample nearest to size", lambda x: F.interpolate(x, (5, 6)), (2, 3, 4)),
    _function(
        "upsample bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (2, 3, 4)
    ),
    _function(
        "upsample bilinear corners",
        lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=True),
        (2, 3, 4),
    ),
    _function("upsample linear", lambda x: F.interpolate(x, 7, mode="linear"), (2, 4)),
    _function("upsample bicubic", lambda x: F.interpolate(x, (5, 7), mode="bicubic"), (2, 3, 4)),
    _function("upsample area", lambda x: F.interpolate(x, (2, 2), mode="area"), (2, 4, 4)),
    _function(
        "affine grid",
        lambda x, t: F.grid_sample(
            x,
            F.affine_grid(t.reshape(-1, 2, 3), [x.shape[0], 2, 4, 4], align_corners=False),
            align_corners=False,
        ),
        (2, 4, 4),
        (6,),
    ),
    _function(
        "grid sample nearest",
        lambda x, g: F.grid_sample(
            x, g.tanh(), mode="nearest", padding_mode="border", align_corners=True
        ),
        (2, 4, 4),
        (3, 3, 2),
    ),
)


class _Sequence(nn.Module):
    """A recurrent layer over (batch, time, features), all its results."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, last = self.layer(x)
        return (y, *last) if isinstance(last, tuple) else (y, last)


def _recurrent(name: str, make: Callable[[], nn.Module], *shape: int) -> Case:
    return _one(name, lambda: _Sequence(make()), shape)


RECURRENT = (
    _recurrent("rnn", lambda: nn.RNN(3, 4, batch_first=True), 3, 3),
    _recurrent("rnn relu", lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True), 3, 3),
    _recurrent("lstm", lambda: nn.LSTM(3, 4, batch_first=True), 3, 3),
    _recurrent(
        "lstm, two layers, both ways",
        lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
        3,
        3,
    ),
    _recurrent("lstm projected", lambda: nn.LSTM(3, 4, batch_first=True, proj_size=2), 3, 3),
    _recurrent("lstm without bias", lambda: nn.LSTM(3, 4, batch_first=True, bias=False), 3, 3),
    _recurrent("gru", lambda: nn.GRU(3, 4, batch_first=True), 3, 3),
    _recurrent(
        "gru, two layers, both ways",
        lambda: nn.GRU(3, 4, 2, batch_first=True, bidirectional=True),
        3,
        3,
    ),
    _one("cells", lambda: _Cells(), (3,)),
)

ATTENTION = (
    _function("attention", lambda x: F.scaled_dot_product_attention(x, x, x), (2, 3, 4)),
    _function(
        "attention, causal",
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        (2, 3, 4),
    ),
    _one("multi-head attention", lambda: _Heads(), (3, 4)),
)


class _Averaged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).mean(1)


class _Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(3, 4)
        self.gru = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.lstm(x)
        h, _ = self.lstm(x, (h, c))
        return self.gru(h, self.gru(h))


class _Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def _put(x: Tensor, i: Tensor) -> Tensor:
    y = x * 2
    y[:, i[:1] * 0 + 1] = x[:, :1]
    return y


def _assign(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 1:3] = x[:, 3:5]
    return y


def _last(x: Tensor, n: Tensor) -> Tensor:
    index = (n.abs() < 0.5).to(torch.int64) + 1
    return x.gather(1, index[:, :, None].expand(-1, 1, x.shape[2]))[:, 0]


CASES = (
    *CONVOLUTIONS,
    *POOLING,
    *NORMALISATION,
    *ACTIVATIONS,
    *LOSSES,
    *INDEXING,
    *ARITHMETIC,
    *IMAGES,
    *RECURRENT,
    *ATTENTION,
)
