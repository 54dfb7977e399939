"""Guards around work on someone else's module: nothing is left changed, nothing chatters."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import torch
from torch import nn


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore modes, `requires_grad` and the global random state afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


@contextmanager
def silence() -> Iterator[None]:
    """No output of the exporters: what matters of it, the gate finds or the exception says."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
