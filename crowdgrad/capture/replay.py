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

from crowdgrad.errors import CaptureError

aten = torch.ops.aten
_PLAIN: Final = frozenset(
    {aten.rand.default, aten.rand_like.default, aten.randn.default, aten.randn_like.default}
)


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


def _replace(func: Any, noise: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
    if func is aten.normal.float_float:
        return noise * args[1] + args[0]
    raise CaptureError(f"the random operator {func} cannot be compared with the program.")
