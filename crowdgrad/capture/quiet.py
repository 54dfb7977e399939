"""Guards around work on someone else's module: nothing is left changed, nothing chatters."""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import Any, Final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

ALONE: Final = threading.RLock()
"""Held while a model is captured or compared: that changes settings of the whole process."""


@contextmanager
def untouched(*given: object) -> Iterator[None]:
    """Restore values, buffers, modes, `requires_grad` and the global random state afterwards.

    Of every module among `given`: a loss may be one, or a plain function.
    """
    roots = [one for one in given if isinstance(one, nn.Module)]
    modes = [(module, module.training) for root in roots for module in root.modules()]
    flags = [(p, p.requires_grad) for root in roots for p in root.parameters()]
    held = [tensor for root in roots for tensor in (*root.parameters(), *root.buffers())]
    values = [(tensor, tensor.detach().clone()) for tensor in held]
    try:
        with torch.random.fork_rng(devices=[]), ExitStack() as places:
            for root in roots:
                places.enter_context(same_tensors(root))
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for tensor, value in values:
                if not torch.equal(tensor, value):  # a write in vain could spoil a pending backward
                    tensor.copy_(value)
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


@contextmanager
def same_tensors(model: nn.Module) -> Iterator[None]:
    """Every parameter and buffer is the tensor it was before, whatever was put in its place.

    A module may give a buffer another tensor; and torch.export leaves its own stand-ins behind in
    modules that go by two names.
    """
    held: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (place, dict(place))
        for module in model.modules()
        for place in (module._parameters, module._buffers)
    ]
    try:
        yield
    finally:
        for place, tensors in held:
            place.clear()
            place.update(tensors)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention as arithmetic: fused kernels have no gradient that could be written down."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def silence() -> Iterator[None]:
    """No output of the exporters: what matters of it, the gate finds or the exception says."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
