"""Where each tensor lies in the flat float32 vector: one after the other, without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.numerics.vectors import Vector


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets (in numbers, not bytes) and views of a flat vector for a tuple of tensors."""

    tensors: tuple[TensorSpec, ...]

    @property
    def size(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def offsets(self) -> tuple[int, ...]:
        found, total = [], 0
        for tensor in self.tensors:
            found.append(total)
            total += tensor.elements
        return tuple(found)

    def views(self, vector: Vector) -> Iterator[tuple[TensorSpec, Vector]]:
        """Each tensor with its part of `vector`, in its shape, sharing memory."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"the vector has shape {vector.shape}, the tensors {self.size} numbers"
            )
        for tensor, offset in zip(self.tensors, self.offsets, strict=True):
            yield tensor, vector[offset : offset + tensor.elements].reshape(tensor.shape)

    def pack(self, arrays: dict[str, NDArray[np.float32]]) -> Vector:
        """One vector from arrays by tensor name, each of its tensor's shape."""
        vector = np.empty(self.size, np.float32)
        for tensor, view in self.views(vector):
            view[...] = arrays[tensor.name]
        return vector


def trained_parts(spec: ProgramSpec) -> tuple[slice, ...] | None:
    """The parts of the flat vector that learn; None where everything does."""
    if not spec.frozen:
        return None
    layout = Layout(spec.parameters)
    return tuple(
        slice(offset, offset + tensor.elements)
        for tensor, offset in zip(layout.tensors, layout.offsets, strict=True)
        if tensor.name not in spec.frozen
    )
