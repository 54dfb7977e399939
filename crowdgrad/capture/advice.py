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
from torch import fx, nn

from crowdgrad.capture.quiet import silence
from crowdgrad.errors import CaptureError, CrowdgradError

_OURS: Final = Path(__file__).parent
_TORCH: Final = Path(torch.__file__).parent
_STANDARD: Final = Path(linecache.__file__).parent

# A piece of PyTorch's message or a place it went through → what happened, what to write instead;
# the last that fits counts.
_KNOWN: Final = (
    (
        "data-dependent",
        "the model decides something in Python from the values of a tensor",
        "Write torch.where instead of `if` on tensor values, and no .item() or float().",
    ),
    (
        "specialized it to be a constant",
        "the model works for one batch size only",
        "Write x.flatten(1), x.shape[0] (not len(x)) or -1, nowhere the batch size as a number; "
        "torch.gather, not take_along_dim.",
    ),
    (
        "did not receive a gradient",
        "a parameter receives no gradient",
        "Set requires_grad=False for parameters the loss does not use.",
    ),
    (
        "torch.autograd.grad",
        "the model or the loss calls autograd itself",
        "Gradients of gradients cannot travel yet: write the penalty without torch.autograd.",
    ),
    (
        "torch/distributions/",
        "torch.distributions looks at the values it is given",
        "Give the distribution validate_args=False.",
    ),
    (
        "in gaussian_nll_loss",
        "gaussian_nll_loss looks at the values it is given",
        "Write it out: 0.5 * (var.log() + (target - mean) ** 2 / var).mean(), with var clamped.",
    ),
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MISSING: Final = (
    re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'"),
    re.compile(r"^(aten\.\w+\.\w+)$", re.MULTILINE),
)
"""How PyTorch names an operator that it cannot translate, or not even trace."""
# A part of an operator's name → what to write instead.
_INSTEAD: Final = (
    ("linalg_", "Linear algebra beyond products cannot travel: compute it before training."),
    ("_fft", "Fourier transforms cannot travel: transform the data before training."),
    ("nonzero", "Its size depends on the values: use torch.where and a mask of fixed size."),
    ("masked_select", "Its size depends on the values: multiply by the mask instead."),
    ("unique", "Its size depends on the values: count with one-hot vectors instead."),
    ("bincount", "Its size depends on the values: sum one-hot vectors instead."),
    ("_ctc_loss", "CTC cannot travel: use a loss per time step."),
    ("cholesky", "Linear algebra beyond products cannot travel: learn the factor itself."),
    ("_embedding_bag", "Use nn.Embedding and a mean over its output."),
    ("_local_scalar_dense", "Keep values in tensors: no .item(), float() or int()."),
    ("complex", "Complex numbers cannot travel: keep real and imaginary part apart."),
    ("view_as_", "Complex numbers cannot travel: keep real and imaginary part apart."),
)
_OTHERWISE: Final = "Write that part of the model with other operators."


def instead_of(operator: str) -> str:
    """What to write where an operator (`aten.name` or `aten::name`) cannot travel."""
    name = operator.replace("::", ".").split(".")[1] if "aten" in operator else operator
    return next((advice for part, advice in _INSTEAD if part in name), _OTHERWISE)


@contextmanager
def explain(model: nn.Module) -> Iterator[None]:
    """Silence the exporters; what they raise becomes a CaptureError with the user's line."""
    try:
        with silence():
            yield
    except CrowdgradError:
        raise
    except Exception as error:  # the exporters raise everything, AssertionError included
        what, advice = _diagnosis(error)
        name = type(model).__name__
        raise CaptureError(
            f"{name} cannot be captured: {what}{_place(error)}.", advice=advice
        ) from error


def _diagnosis(error: BaseException) -> tuple[str, str]:
    """What happened, and what to do about it."""
    chain = _causes(error)
    said = [_COLOURS.sub("", str(cause)).strip() for cause in chain]
    text = "\n".join(said)
    for pattern in _MISSING:
        if missing := pattern.search(text):
            return f"its operator {missing[1]} has no translation yet", instead_of(missing[1])
    text += "\n" + "\n".join(_places(error))
    fitting = [(happened, remedy) for piece, happened, remedy in _KNOWN if piece in text]
    if fitting:
        return fitting[-1]
    first = said[-1].partition("\n")[0][:200].rstrip(".") or type(chain[-1]).__name__
    return f"PyTorch says: {first}", "Try the model with torch.export.export alone."


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from, the innermost last."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _places(error: BaseException) -> list[str]:
    """The functions the error went through, as 'torch/nn/functional.py in relu'."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).as_posix()} in {frame.name}" for frame in frames]


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


def node_line(node: fx.Node) -> str:
    """', at ' and the user's line that a node of a graph comes from, or ''."""
    line = stack_line(str(node.meta.get("stack_trace") or ""))
    return f", at {line}" if line else ""


def _place(error: BaseException) -> str:
    line = user_line(error)
    return f", at {line}" if line else ""


def _is_library(path: Path) -> bool:
    return any(path.is_relative_to(base) for base in (_OURS, _TORCH, _STANDARD))
