"""Where each tensor lies in the flat float32 vectors: parameters first, without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.program import ProgramSpec, TensorSpec, word_places
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


class StateLayout:
    """The whole state: parameters, then buffers, then fixed ones, as bytes of their own types.

    An update is laid out like the state's first `update_words`, so one layout serves both.
    """

    def __init__(self, spec: ProgramSpec) -> None:
        self.parameters = Layout(spec.parameters)
        self.size = spec.size
        """How many numbers the parameters are."""
        self.update_words = spec.update_words
        self.words = spec.state_words
        self.buffer_places = word_places(self.size, spec.buffers)
        self.fixed_places = word_places(self.update_words, spec.fixed)
        self._buffers = tuple(zip(spec.buffers, self.buffer_places, strict=True))
        self._fixed = tuple(zip(spec.fixed, self.fixed_places, strict=True))

    def buffers(self, vector: Vector) -> Iterator[tuple[TensorSpec, NDArray[Any]]]:
        """Each buffer that training changes, with its part of a state or an update."""
        return (_part(vector, tensor, at) for tensor, at in self._buffers)

    def counters(self, vector: Vector) -> list[NDArray[Any]]:
        """Copies of the buffers that count, in order."""
        return [v.copy() for tensor, v in self.buffers(vector) if not is_floating(tensor)]

    def fixed(self, state: Vector) -> Iterator[tuple[TensorSpec, NDArray[Any]]]:
        return (_part(state, tensor, at) for tensor, at in self._fixed)

    def tensors(self, state: Vector) -> Iterator[tuple[TensorSpec, NDArray[Any]]]:
        """Everything, by name, in the order in which it lies."""
        yield from self.parameters.views(state[: self.size])
        yield from self.buffers(state)
        yield from self.fixed(state)

    def pack(self, arrays: dict[str, NDArray[Any]]) -> Vector:
        """One state from arrays by tensor name."""
        state: Vector = np.zeros(self.words, np.float32)
        for tensor, view in self.tensors(state):
            view[...] = arrays[tensor.name]
        return state


def is_floating(tensor: TensorSpec) -> bool:
    return tensor.dtype.startswith("float")


def _part(vector: Vector, tensor: TensorSpec, at: int) -> tuple[TensorSpec, NDArray[Any]]:
    words = vector[at : at + -(-tensor.bytes // 4)]
    return tensor, words.view(np.uint8)[: tensor.bytes].view(tensor.dtype).reshape(tensor.shape)


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
