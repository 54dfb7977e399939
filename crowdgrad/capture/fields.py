"""From stored records to what the model reads: the first operations of every program.

Records keep their storage type (bytes of an image stay bytes), so they are small on disk and on the
wire; casting and normalising them is part of the program, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdgrad.capture.metrics import IGNORED
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field, Moment
from crowdgrad.domain.program import ITEM_BYTES, DType, TensorSpec
from crowdgrad.errors import TaskError
from crowdgrad.program.nodes import MAX_CONSTANT_BYTES

Role = Literal["input", "target", "weight"]
TORCH: Final[dict[DType, torch.dtype]] = {name: getattr(torch, name) for name in get_args(DType)}
Records = Sequence[NDArray[Any]]
"""Some records of a data set, a column for each field."""
_LONG: Final[tuple[DType, ...]] = ("float64", "int64", "int32")
"""Stored with more digits than a float32 has."""
_NAMES: Final[dict[torch.dtype, DType]] = {dtype: name for name, dtype in TORCH.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How one record field becomes one tensor of the task."""

    field: Field
    example: Tensor
    role: Role
    records: Tensor | None = None
    """Some real records, as stored: what the program will be shown."""

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(name=self.field.name, dtype=self.field.dtype, shape=self.field.shape)

    @property
    def _exact(self) -> DType:
        return "float64" if self.field.dtype in _LONG else "float32"

    @property
    def constant_bytes(self) -> int:
        """What its means and deviations take in a program."""
        places = len(self.field.mean) if isinstance(self.field.mean, tuple) else 1
        return 2 * places * ITEM_BYTES[self._exact]

    def read(self, stored: Tensor) -> Tensor:
        """(value − mean) / std in the task's type; this is what gets captured.

        What float32 cannot hold is subtracted in float64: a date in seconds has ten digits, of
        which the mean leaves the last few.
        """
        if self.field.mean is None or self.field.std is None:
            return stored.to(self.example.dtype)
        exact = self._exact
        mean = self._along(self.field.mean, exact, stored.device)
        std = self._along(self.field.std, exact, stored.device)
        return ((stored.to(TORCH[exact]) - mean) / std).to(self.example.dtype)

    def store(self, value: Tensor) -> Tensor:
        """The stored value that reads as `value`, as nearly as the storage type can say it."""
        if self.field.mean is not None and self.field.std is not None:
            mean = self._along(self.field.mean, "float64", value.device)
            std = self._along(self.field.std, "float64", value.device)
            value = value.to(torch.float64) * std + mean
        dtype = TORCH[self.field.dtype]
        if dtype.is_floating_point or dtype == torch.bool or dtype == value.dtype:
            return value.to(dtype)
        limits = torch.iinfo(dtype)
        return value.to(torch.float64).round().clamp(limits.min, limits.max).to(dtype)

    def _along(self, moment: Moment, dtype: DType, device: torch.device) -> float | Tensor:
        """Several stand along the first dimension of a record."""
        if not isinstance(moment, tuple):
            return moment
        after = len(self.field.shape) - 1
        if device.type == "cpu" or torch.compiler.is_compiling():
            # Made anew: what traces must see it being made, or it would not know it.
            return torch.tensor(_column(moment, after, dtype), device=device)
        return _placed(moment, after, dtype, device)

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        """Fresh stored values like the example's."""
        stored = self.store(self.example)
        shape = (samples, *self.field.shape)
        if stored.dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
        if not stored.is_floating_point():
            return self._draw_whole(stored, shape, generator)
        low, high = stored.min(), stored.max()
        if self.role == "weight":  # nothing, for padding, up to more than one
            drawn = torch.rand(shape, generator=generator) * 2
            return drawn.where(torch.arange(samples) != 1, 0.0)
        if low == high and self.role == "input":  # an example of zeros says nothing about its range
            return torch.randn(shape, generator=generator, dtype=stored.dtype) + low
        return torch.rand(shape, generator=generator, dtype=stored.dtype) * (high - low) + low

    def _draw_whole(
        self, stored: Tensor, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor:
        """Whole numbers in the example's range; between padding and classes there is nothing."""
        padding = (stored.long() == IGNORED) & (self.role == "target")
        real = stored[~padding] if not padding.all() else stored
        low, high = int(real.min()), int(real.max())
        drawn = torch.randint(low, high + 1, shape, generator=generator, dtype=stored.dtype)
        if not padding.any():
            return drawn
        padded = torch.rand(shape, generator=generator) < padding.float().mean()
        return drawn.masked_fill(padded, IGNORED)


@lru_cache(maxsize=64)
def _column(moment: tuple[float, ...], after: int, dtype: DType) -> NDArray[Any]:
    """With `after` dimensions of one behind it."""
    return np.array(moment, dtype).reshape(-1, *[1] * after)


@lru_cache(maxsize=64)
def _placed(moment: tuple[float, ...], after: int, dtype: DType, device: torch.device) -> Tensor:
    """On a GPU it stays where it is: a recording cannot copy from the host's memory."""
    return torch.tensor(_column(moment, after, dtype), device=device)


def draw_batch(reading: Sequence[Reader], samples: int, generator: torch.Generator) -> list[Tensor]:
    """A fresh batch, as stored: real records where there are some, else like the example's.

    The columns of a record stay together: a mask or a target says something about its own input.
    """
    held = [len(reader.records) for reader in reading if reader.records is not None]
    rows = torch.randint(0, min(held), (samples,), generator=generator) if held else None
    return [
        reader.draw(samples, generator) if reader.records is None else reader.records[rows]
        for reader in reading
    ]


def readers(
    task: Task,
    fields: tuple[Field, ...] | None,
    records: Records | None = None,
    *,
    weighted: bool = False,
) -> tuple[Reader, ...]:
    """A reader for each example tensor; TaskError where field and example do not fit.

    `weighted`: one more for the samples' weights, from the data's last field where it has one field
    more than the task has tensors.
    """
    chosen = _derived(task) if fields is None else fields
    examples, roles = list(task.example), _roles(task)
    if weighted:
        examples.append(torch.ones(len(examples[0])))
        roles.append("weight")
        if len(chosen) < len(examples):
            chosen = (*chosen, _weights_field(chosen))
        elif chosen[-1].dtype != "float32":
            raise TaskError(
                f"the samples' weights, field {chosen[-1].name!r}, are {chosen[-1].dtype}.",
                advice="Store them as float32.",
            )
    if len(chosen) != len(examples):
        raise TaskError(
            f"the data has {len(chosen)} fields, the task {len(examples)} inputs and targets.",
            advice="Name a field for each input and target, in that order.",
        )
    columns: list[Tensor | None] = [torch.from_numpy(np.array(c)) for c in records or ()]
    columns += [None] * (len(chosen) - len(columns))
    made = tuple(
        _reader(field, example, column, role)
        for field, example, column, role in zip(chosen, examples, columns, roles, strict=True)
    )
    if sum(reader.constant_bytes for reader in made) > MAX_CONSTANT_BYTES:
        raise TaskError(
            "the data's means and deviations take more than the "
            f"{MAX_CONSTANT_BYTES:,} bytes of constants that a program may hold.",
            advice="Standardise so many columns by one mean (each=False), or in the model.",
        )
    return made


def _roles(task: Task) -> list[Role]:
    roles: list[Role] = ["input"] * len(task.inputs)
    targets: list[Role] = ["target"] * len(task.targets)
    return roles + targets


def _weights_field(others: tuple[Field, ...]) -> Field:
    name = "weights"
    while any(field.name == name for field in others):
        name += "_"
    return Field(name=name, dtype="float32", shape=())


def _reader(field: Field, example: Tensor, records: Tensor | None, role: Role) -> Reader:
    if tuple(example.shape[1:]) != field.shape:
        raise TaskError(
            f"field {field.name!r} has records of shape {field.shape}, "
            f"the task's example has {tuple(example.shape[1:])}.",
            advice="Reshape inside the model, for instance with nn.Flatten or nn.Unflatten.",
        )
    _dtype(example)
    return Reader(field=field, example=example, role=role, records=records)


def _derived(task: Task) -> tuple[Field, ...]:
    names = [f"input{i}" for i in range(len(task.inputs))]
    names += [f"target{i}" for i in range(len(task.targets))]
    return tuple(
        Field(name=name, dtype=_dtype(example), shape=tuple(example.shape[1:]))
        for name, example in zip(names, task.example, strict=True)
    )


def _dtype(tensor: Tensor) -> DType:
    if tensor.layout != torch.strided:
        raise TaskError("an example tensor is sparse.", advice="Make it dense: x.to_dense().")
    found = _NAMES.get(tensor.dtype)
    if found is None:
        raise TaskError(
            f"an example tensor has type {tensor.dtype}.", advice=f"Use one of {', '.join(TORCH)}."
        )
    return found
