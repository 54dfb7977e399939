"""Weights from a file into a model: training then starts from them instead of the model's own.

The file fits the model exactly or is refused with the names of what does not: half a model loaded
in silence is worse than none. Who wants half of one loads it in the function that makes the task.

They go into the tensors that the model has: a loss may hold these too, and would go on reading the
old ones beside a copy.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from crowdgrad.capture.quiet import ALONE, untouched
from crowdgrad.errors import DataMalformed, DataMissing, TaskError

NAMED = 4
"""How many keys of a kind an error names."""


@contextmanager
def holding_weights(model: nn.Module, source: Path | None) -> Iterator[None]:
    """Inside, the model holds the weights in `source`, if there is one; afterwards its own again.

    Raises what `load_weights` does.
    """
    with ALONE, untouched(model):
        if source is not None:
            load_weights(model, source)
        yield


def load_weights(model: nn.Module, source: Path) -> None:
    """The weights in `source` into the model, in place; one that does not fit changes nothing.

    A .safetensors file, a .pt or .pth file of a state dict (read without running any code in it),
    or a run folder. Raises DataMissing, DataMalformed or TaskError.
    """
    file = source / "model.safetensors" if source.is_dir() else source
    found = _read(file)
    _check_fit(model, found, file)
    model.load_state_dict(found, strict=False)  # checked, but for the other names of tied weights


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise DataMissing(
            f"There are no weights at {file}.",
            advice="Give a .safetensors file, a .pt file of a state dict, or a finished run.",
        )
    try:
        if file.suffix in (".pt", ".pth"):
            found = torch.load(file, map_location="cpu", weights_only=True)
        else:
            found = load_file(file)
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        first = str(error).partition("\n")[0]
        raise DataMalformed(
            f"{file} cannot be read as weights: {first}.",
            advice="Write them with safetensors.torch.save_model(model, file).",
        ) from error
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise DataMalformed(
            f"{file} does not hold a state dict.", advice="Save model.state_dict(), nothing else."
        )
    return dict(found)


def _check_fit(model: nn.Module, found: Mapping[str, Tensor], file: Path) -> None:
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    shapes = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(value.shape)}"
        for name, value in own.items()
        if name in found and found[name].shape != value.shape
    ]
    loaded = {own[name].data_ptr() for name in own if name in found}
    problems = {
        "missing": [n for n, v in own.items() if n not in found and v.data_ptr() not in loaded],
        "not in the model": [name for name in found if name not in own],
        "of another shape": shapes,
    }
    said = "; ".join(f"{what}: {_some(names)}" for what, names in problems.items() if names)
    if said:
        raise TaskError(
            f"the weights in {file} do not fit the model. {said[:1].upper()}{said[1:]}.",
            advice="To load only a part, do it where the task is made: "
            "model.load_state_dict(part, strict=False).",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
