"""The onnxruntime engine: gradients from an inference runtime, without copying the vectors.

Every parameter and buffer is bound to its slice of the flat state and every gradient and new buffer
to its slice of the update, by address, so a step moves none of them. A binding is kept for each
place (state, update, batch size) it was made for: units reuse the same few. Random numbers are
drawn just before a step, so all bindings share one piece of memory for them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.program import NoiseSpec, Program, ProgramSpec, TensorSpec
from crowdgrad.errors import ProgramError
from crowdgrad.numerics import noise
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitResult, UnitWork
from crowdgrad.program.engines.fit import check_batch, check_vector
from crowdgrad.program.engines.onnx_memory import Piece, aligned, drawn_shape, drawn_words
from crowdgrad.program.engines.onnx_runtime import first_line, open_session, take, warm_up
from crowdgrad.program.engines.replica import Replicas

__all__ = ["OnnxEngine", "warm_up"]

KEPT_BINDINGS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A runtime binding with the arrays that stay bound to it."""

    binding: Any
    noise: tuple[NDArray[np.float32], ...]
    scalars: dict[str, NDArray[np.float32]]


class OnnxEngine:
    """Implements `Engine`. `threads` is how many cores one step may use.

    `piece`: the memory its steps take, where that is known (`onnx_memory.piece_for`). For an engine
    that is alone in its process: it then takes no more than that.
    """

    def __init__(self, program: Program, threads: int = 1, piece: Piece | None = None) -> None:
        self._spec: ProgramSpec = program.spec
        self._forward_bytes = program.forward
        self._threads = threads
        self._layout = StateLayout(program.spec)
        self._piece = piece
        if piece is not None:
            take(piece)
        self._gradient = open_session(program.gradient, threads, piece)
        self._forward: Any = None
        self._places: OrderedDict[tuple[int, ...], _Place] = OrderedDict()
        self._drawn: Vector = np.empty(0, np.float32)
        self._replicas = Replicas(program.spec)

    def train(self, work: UnitWork, state: Vector, update: Vector) -> UnitResult:
        check_vector("state", state, self._layout.words)
        check_vector("update", update, self._layout.update_words)
        losses = self._replicas.train(work, state, update, partial(self._step, work))
        samples = [batch.samples for batch in work.batches]
        return UnitResult(samples=sum(samples), loss=_mean(losses, samples), metrics={})

    def evaluate(self, work: UnitWork, state: Vector) -> UnitResult:
        check_vector("state", state, self._layout.words)
        session = self._forward_session()
        names = ("loss", *(f"m:{metric.name}" for metric in self._spec.metrics))
        columns: dict[str, list[float]] = {name: [] for name in names}
        for batch in work.batches:
            place = self._place(session, names, state, None, batch)
            self._draw_forward(place.noise, work.seed, batch)
            self._run(session, place, batch)
            for name, column in columns.items():
                column.append(float(place.scalars[name]))
        samples = [batch.samples for batch in work.batches]
        means = {name: _mean(column, samples) for name, column in columns.items()}
        metrics = {metric.name: means[f"m:{metric.name}"] for metric in self._spec.metrics}
        return UnitResult(samples=sum(samples), loss=means["loss"], metrics=metrics)

    def predict(self, batch: Batch, state: Vector, seed: int = 0) -> tuple[NDArray[Any], ...]:
        """The model's own outputs for one batch, in evaluation mode."""
        check_vector("state", state, self._layout.words)
        check_batch(self._spec, batch)
        feeds: dict[str, NDArray[Any]] = {}
        for spec, view in self._layout.parameters.views(state[: self._layout.size]):
            feeds[f"p:{spec.name}"] = view
        for spec, view in (*self._layout.buffers(state), *self._layout.fixed(state)):
            feeds[f"b:{spec.name}"] = view
        for spec, column in zip(self._spec.inputs, batch.fields, strict=True):
            feeds[f"x:{spec.name}"] = column
        drawn = tuple(
            np.empty(drawn_shape(z, batch.samples), np.float32) for z in self._spec.forward_noise
        )
        self._draw_forward(drawn, seed, batch)
        for z, values in zip(self._spec.forward_noise, drawn, strict=True):
            feeds[f"z:{z.name}"] = values
        names = [f"y:{index}" for index in range(self._spec.outputs)]
        return tuple(self._forward_session().run(names, feeds))

    def _forward_session(self) -> Any:
        if self._forward is None:  # training alone never needs it
            self._forward = open_session(self._forward_bytes, self._threads, self._piece)
        return self._forward

    def _step(self, work: UnitWork, batch: Batch, state: Vector, update: Vector) -> float:
        place = self._place(self._gradient, ("loss",), state, update, batch)
        for stream, (spec, out) in enumerate(zip(self._spec.noise, place.noise, strict=True)):
            noise.fill(
                spec, work.seed, work.unit.epoch, batch.number, stream, batch.samples, out=out
            )
        self._run(self._gradient, place, batch)
        return float(place.scalars["loss"])

    def _draw_forward(self, drawn: tuple[Vector, ...], seed: int, batch: Batch) -> None:
        for index, (spec, out) in enumerate(zip(self._spec.forward_noise, drawn, strict=True)):
            stream = noise.FORWARD_STREAM + index
            noise.fill(spec, seed, 0, batch.number, stream, batch.samples, out=out)

    def _place(
        self, session: Any, scalars: tuple[str, ...], state: Vector, update: Vector | None,
        batch: Batch,
    ) -> _Place:  # fmt: skip
        """The binding for these addresses and this batch size, made when first needed."""
        output = 0 if update is None else _address(update)
        key = (_address(state), output, batch.samples)
        place = self._places.get(key)
        if place is None:
            place = self._bind(session, scalars, state, update, batch.samples)
            self._places[key] = place
            if len(self._places) > KEPT_BINDINGS:
                self._places.popitem(last=False)
        else:
            self._places.move_to_end(key)
        return place

    def _bind(
        self, session: Any, scalars: tuple[str, ...], state: Vector, update: Vector | None,
        samples: int,
    ) -> _Place:  # fmt: skip
        binding = session.io_binding()
        for name, tensor, word in self._inputs():
            binding.bind_input(name, *_where(tensor, state, word))
        if update is not None:
            for name, tensor, word in self._outputs():
                binding.bind_output(name, *_where(tensor, update, word))
        specs = self._spec.forward_noise if update is None else self._spec.noise
        drawn = self._room(specs, samples)
        for spec, values in zip(specs, drawn, strict=True):
            at = ("cpu", 0, np.float32, values.shape, _address(values))
            binding.bind_input(f"z:{spec.name}", *at)
        numbers = {name: np.zeros((), np.float32) for name in scalars}
        for name, value in numbers.items():
            binding.bind_output(name, "cpu", 0, np.float32, (), _address(value))
        return _Place(binding=binding, noise=drawn, scalars=numbers)

    def _room(self, specs: tuple[NoiseSpec, ...], samples: int) -> tuple[Vector, ...]:
        """Where the numbers of one batch go. A larger batch than any before takes new memory."""
        words = drawn_words(specs, samples)
        if words > self._drawn.size:
            self._places.clear()  # they are bound to the memory that goes now
            self._drawn = np.empty(0, np.float32)
            self._drawn = np.empty(words, np.float32)
        parts, start = [], 0
        for spec in specs:
            shape = drawn_shape(spec, samples)
            size = math.prod(shape)
            parts.append(self._drawn[start : start + size].reshape(shape))
            start += aligned(size)
        return tuple(parts)

    def _inputs(self) -> Iterator[tuple[str, TensorSpec, int]]:
        """Name, tensor and first word of everything a graph reads of the state."""
        spec, layout = self._spec, self._layout
        for tensor, word in zip(spec.parameters, layout.parameters.offsets, strict=True):
            yield f"p:{tensor.name}", tensor, word
        places = (*layout.buffer_places, *layout.fixed_places)
        for tensor, word in zip((*spec.buffers, *spec.fixed), places, strict=True):
            yield f"b:{tensor.name}", tensor, word

    def _outputs(self) -> Iterator[tuple[str, TensorSpec, int]]:
        spec, layout = self._spec, self._layout
        for tensor, word in zip(spec.parameters, layout.parameters.offsets, strict=True):
            yield f"g:{tensor.name}", tensor, word
        for tensor, word in zip(spec.buffers, layout.buffer_places, strict=True):
            yield f"n:{tensor.name}", tensor, word

    def _run(self, session: Any, place: _Place, batch: Batch) -> None:
        check_batch(self._spec, batch)
        for spec, column in zip(self._spec.inputs, batch.fields, strict=True):
            place.binding.bind_input(
                f"x:{spec.name}", "cpu", 0, column.dtype, column.shape, _address(column)
            )
        try:
            session.run_with_iobinding(place.binding)
        except Exception as error:  # the runtime's exceptions share no other base
            raise ProgramError(
                f"onnxruntime failed on batch {batch.number}: {first_line(error)}.",
                advice="Check that the data holds what the model accepts (class numbers in range).",
            ) from error


def _where(tensor: TensorSpec, vector: Vector, word: int) -> tuple[Any, ...]:
    """What the runtime wants to know of a tensor inside a vector."""
    return "cpu", 0, np.dtype(tensor.dtype), tensor.shape, _address(vector) + 4 * word


def _address(array: NDArray[Any]) -> int:
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def _mean(values: list[float], samples: list[int]) -> float:
    return sum(v * n for v, n in zip(values, samples, strict=True)) / sum(samples)
