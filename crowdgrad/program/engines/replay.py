"""Run PyTorch with given noise instead of its own generator, to compare a program with autograd.

PyTorch in eager mode draws random numbers through other operators than the exported graph shows
(dropout draws with `bernoulli_`), so this is a second, independent reading of the same noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from crowdgrad.domain.program import NoiseSpec
from crowdgrad.errors import CaptureError

aten = torch.ops.aten
_PLAIN: Final = frozenset(
    {aten.rand.default, aten.rand_like.default, aten.randn.default, aten.randn_like.default}
)

_NORMALS: Final = frozenset(
    {
        aten.normal.float_float, aten.normal.Tensor_Tensor, aten.normal.Tensor_float,
        aten.normal.float_Tensor,
    }
)  # fmt: skip
_TINY: Final = 2.0**-25


class Replay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every random operator inside takes the next tensor of `noise`."""

    def __init__(self, noise: Iterator[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noise = noise

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        noise = next(self._noise, None)
        if noise is None:
            raise CaptureError(f"PyTorch draws more random numbers ({func}) than the program.")
        return _replace(func, noise, args, kwargs or {})


def as_drawn(spec: NoiseSpec, noise: Tensor) -> Tensor:
    """The program's noise with the batch where the model itself has it when it draws."""
    return noise.movedim(0, spec.batch_axis) if spec.per_sample else noise


def _size(func: Any, args: tuple[Any, ...]) -> Any:
    """The shape that is asked for."""
    if func in (aten.normal.float_float, aten.randint.low):
        return args[2]
    if func in (aten.normal.float_Tensor, aten.randint.default):
        return args[1].shape if isinstance(args[1], Tensor) else args[1]
    return args[0].shape if isinstance(args[0], Tensor) else args[0]


def _replace(func: Any, noise: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # The batch may be drawn together with another dimension, as in (batch · heads, time, time).
    noise = noise.reshape(tuple(_size(func, args)))
    if func in _PLAIN:
        return noise
    if func in (aten.bernoulli_.float, aten.bernoulli.p):
        p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        drawn = (noise >= 1.0 - p).to(args[0].dtype)
        return args[0].copy_(drawn) if func is aten.bernoulli_.float else drawn
    if func is aten.bernoulli.default:
        return (noise < args[0]).to(args[0].dtype)
    if func is aten.native_dropout.default:
        mask = noise >= args[1]
        return args[0] * mask / (1.0 - args[1]), mask
    if func in (aten.uniform_.default, aten.normal_.default):
        first = args[1] if len(args) > 1 else 0.0
        second = args[2] if len(args) > 2 else 1.0
        scale = second - first if func is aten.uniform_.default else second
        return args[0].copy_(noise * scale + first)
    if func in _NORMALS:
        return noise * args[1] + args[0]
    return _replace_rare(func, noise, args, kwargs)


def _replace_rare(func: Any, noise: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func is aten.exponential_.default:
        rate = args[1] if len(args) > 1 else 1.0
        return args[0].copy_(-torch.log1p(-noise).clamp(max=-_TINY) / rate)
    if func is aten.bernoulli_.Tensor:
        return args[0].copy_(noise < args[1])
    if func is aten.log_normal_.default:
        mean = args[1] if len(args) > 1 else 1.0
        std = args[2] if len(args) > 2 else 2.0
        return args[0].copy_((noise * std + mean).exp())
    if func in (aten.randint.low, aten.randint.default):
        low, high = args[:2] if func is aten.randint.low else (0, args[0])
        drawn = torch.floor(noise * (high - low)) + low
        return drawn.to(kwargs.get("dtype") or torch.int64)
    if func is aten.rrelu_with_noise.default and args[4]:
        x, slopes, lower, upper = args[:4]
        slopes.copy_(torch.where(x > 0, 1.0, noise * (upper - lower) + lower))
        return x * slopes
    raise CaptureError(f"the random operator {func} cannot be compared with the program.")
