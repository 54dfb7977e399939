"""What a person can do when PyTorch cannot capture their model: the line, and what to write."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from torch import nn

from crowdgrad.capture.quiet import silence
from crowdgrad.errors import CaptureError, CrowdgradError, TaskError

_OURS: Final = Path(__file__).parent
_TORCH: Final = Path(torch.__file__).parent
_STANDARD: Final = Path(linecache.__file__).parent

# A piece of PyTorch's message → what happened, what to write instead.
_KNOWN: Final = (
    (
        "data-dependent",
        "the model decides something in Python from the values of a tensor",
        "Write torch.where instead of `if` on tensor values, and no .item() or float().",
    ),
    (
        "specialized it to be a constant",
        "the model works for one batch size only",
        "Write x.flatten(1), x.shape[0] or -1 where the batch size is written as a number.",
    ),
    (
        "did not receive a gradient",
        "a parameter receives no gradient",
        "Set requires_grad=False for parameters the loss does not use.",
    ),
)


@contextmanager
def explain(model: nn.Module) -> Iterator[None]:
    """Silence the exporters; what they raise becomes a CaptureError with the user's line."""
    try:
        with silence():
            yield
    except CrowdgradError:
        raise
    except Exception as error:  # the exporters raise everything, AssertionError included
        text = str(error)
        first = text.strip().partition("\n")[0][:200] or type(error).__name__
        what, advice = f"PyTorch says: {first}", "Try the model with torch.export.export alone."
        for piece, happened, remedy in _KNOWN:
            if piece in text:
                what, advice = happened, remedy
        missing = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", text)
        if missing:
            what = f"its operator {missing[1]} has no translation yet"
            advice = "Write that part of the model with other operators."
        name = type(model).__name__
        raise CaptureError(
            f"{name} cannot be captured: {what}{_place(error)}.", advice=advice
        ) from error


def user_line(error: BaseException) -> str:
    """'file.py:12: `code`' of the innermost frame that is neither ours nor PyTorch's, or ''."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.exists() and not _is_library(path):
            return f"{path.name}:{frame.lineno}: `{frame.line}`"
    return ""


def stack_line(stack: str) -> str:
    """The same from a stack that `torch.export` recorded as text."""
    for file, line, code in reversed(re.findall(r'File "(.+)", line (\d+), in .+\n\s*(.*)', stack)):
        path = Path(file)
        if path.exists() and not _is_library(path):
            return f"{path.name}:{line}: `{code}`"
    return ""


def refuse_state(model: nn.Module) -> None:
    """Refuse what this version cannot carry: buffers, tied weights, other types than float32."""
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            raise _buffer_error(path, module, name, changing="running" in name or buffer.dim() == 0)
    every = list(model.named_parameters(remove_duplicate=False))
    names = dict(model.named_parameters())
    if not names:
        raise TaskError("the model has no parameters.", advice="There is nothing to train.")
    for name, parameter in every:
        if name not in names:
            raise CaptureError(
                f"{name!r} shares its weights with another parameter; tied weights arrive in a "
                "later version.",
                advice="Use the one module twice, or torch.nn.functional with the first's weight.",
            )
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise CaptureError(
                f"parameter {name!r} is {parameter.dtype} on {parameter.device}.",
                advice="Parameters are float32 on the CPU: model.float().cpu().",
            )


def _buffer_error(path: str, module: nn.Module, name: str, *, changing: bool) -> CaptureError:
    where = f"{path or 'the model'} ({type(module).__name__})"
    if changing:
        return CaptureError(
            f"{where} changes its buffer {name!r} while training; such models arrive in a later "
            "version.",
            advice="Write nn.LayerNorm instead of batch normalisation.",
        )
    return CaptureError(
        f"{where} has a buffer {name!r}; buffers arrive in a later version.",
        advice="Write nn.Parameter(tensor, requires_grad=False) instead of register_buffer.",
    )


def _place(error: BaseException) -> str:
    line = user_line(error)
    return f", at {line}" if line else ""


def _is_library(path: Path) -> bool:
    return any(path.is_relative_to(base) for base in (_OURS, _TORCH, _STANDARD))
