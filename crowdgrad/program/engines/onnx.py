"""The onnxruntime engine: gradients from an inference runtime, without copying the vectors.

Every parameter input is bound to its slice of the flat parameter vector and every gradient output
to its slice of the update, by address, so a step moves no parameters at all. A binding is kept for
each place (parameters, update, batch size) it was made for: units reuse the same few buffers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.errors import DataMalformed, ProgramError, ProgramRefused
from crowdgrad.numerics import noise
from crowdgrad.numerics.layout import Layout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, UnitResult, UnitWork
from crowdgrad.program.engines.replica import Replicas

_KEPT_BINDINGS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A runtime binding with the buffers that stay bound to it."""

    binding: Any
    noise: tuple[NDArray[np.float32], ...]
    scalars: dict[str, NDArray[np.float32]]


class OnnxEngine:
    """Implements `Engine`. `threads` is how many cores one step may use."""

    def __init__(self, program: Program, threads: int = 1) -> None:
        self._spec: ProgramSpec = program.spec
        self._forward_bytes = program.forward
        self._threads = threads
        self._layout = Layout(program.spec.parameters)
        self._offsets = self._layout.offsets
        self._gradient = _session(program.gradient, threads)
        self._forward: Any = None
        self._places: OrderedDict[tuple[int, ...], _Place] = OrderedDict()
        self._replicas = Replicas(program.spec)

    def train(self, work: UnitWork, parameters: Vector, update: Vector) -> UnitResult:
        self._check_vector("parameters", parameters)
        self._check_vector("update", update)
        losses = self._replicas.train(work, parameters, update, partial(self._step, work))
        samples = [batch.samples for batch in work.batches]
        return UnitResult(samples=sum(samples), loss=_mean(losses, samples), metrics={})

    def evaluate(self, work: UnitWork, parameters: Vector) -> UnitResult:
        self._check_vector("parameters", parameters)
        session = self._forward_session()
        names = ("loss", *(f"m:{name}" for name in self._spec.metrics))
        columns: dict[str, list[float]] = {name: [] for name in names}
        for batch in work.batches:
            place = self._place(session, names, parameters, None, batch)
            self._run(session, place, batch)
            for name, column in columns.items():
                column.append(float(place.scalars[name]))
        samples = [batch.samples for batch in work.batches]
        means = {name: _mean(column, samples) for name, column in columns.items()}
        metrics = {name: means[f"m:{name}"] for name in self._spec.metrics}
        return UnitResult(samples=sum(samples), loss=means["loss"], metrics=metrics)

    def predict(self, batch: Batch, parameters: Vector) -> tuple[NDArray[Any], ...]:
        """The model's own outputs for one batch, in evaluation mode."""
        self._check_vector("parameters", parameters)
        self._check_batch(batch)
        feeds = {f"p:{spec.name}": view for spec, view in self._layout.views(parameters)}
        for spec, column in zip(self._spec.inputs, batch.fields, strict=True):
            feeds[f"x:{spec.name}"] = column
        names = [f"y:{index}" for index in range(self._spec.outputs)]
        return tuple(self._forward_session().run(names, feeds))

    def _forward_session(self) -> Any:
        if self._forward is None:  # training alone never needs it
            self._forward = _session(self._forward_bytes, self._threads)
        return self._forward

    def _step(self, work: UnitWork, batch: Batch, weights: Vector, gradient: Vector) -> float:
        place = self._place(self._gradient, ("loss",), weights, gradient, batch)
        for stream, (spec, out) in enumerate(zip(self._spec.noise, place.noise, strict=True)):
            noise.fill(
                spec, work.seed, work.unit.epoch, batch.number, stream, batch.samples, out=out
            )
        self._run(self._gradient, place, batch)
        return float(place.scalars["loss"])

    def _place(
        self, session: Any, scalars: tuple[str, ...], weights: Vector, gradient: Vector | None,
        batch: Batch,
    ) -> _Place:  # fmt: skip
        """The binding for these addresses and this batch size, made when first needed."""
        output = 0 if gradient is None else _address(gradient)
        key = (_address(weights), output, batch.samples)
        place = self._places.get(key)
        if place is None:
            place = self._bind(session, scalars, weights, gradient, batch.samples)
            self._places[key] = place
            if len(self._places) > _KEPT_BINDINGS:
                self._places.popitem(last=False)
        else:
            self._places.move_to_end(key)
        return place

    def _bind(
        self, session: Any, scalars: tuple[str, ...], weights: Vector, gradient: Vector | None,
        samples: int,
    ) -> _Place:  # fmt: skip
        binding = session.io_binding()
        for spec, offset in zip(self._spec.parameters, self._offsets, strict=True):
            place = ("cpu", 0, np.float32, spec.shape)
            binding.bind_input(f"p:{spec.name}", *place, _address(weights) + 4 * offset)
            if gradient is not None:
                binding.bind_output(f"g:{spec.name}", *place, _address(gradient) + 4 * offset)
        buffers: list[NDArray[np.float32]] = []
        if gradient is not None:
            for spec_ in self._spec.noise:
                shape = (samples, *spec_.shape) if spec_.per_sample else spec_.shape
                buffers.append(np.empty(shape, np.float32))
                binding.bind_input(
                    f"z:{spec_.name}", "cpu", 0, np.float32, shape, _address(buffers[-1])
                )
        values = {name: np.zeros((), np.float32) for name in scalars}
        for name, value in values.items():
            binding.bind_output(name, "cpu", 0, np.float32, (), _address(value))
        return _Place(binding=binding, noise=tuple(buffers), scalars=values)

    def _run(self, session: Any, place: _Place, batch: Batch) -> None:
        self._check_batch(batch)
        for spec, column in zip(self._spec.inputs, batch.fields, strict=True):
            place.binding.bind_input(
                f"x:{spec.name}", "cpu", 0, column.dtype, column.shape, _address(column)
            )
        try:
            session.run_with_iobinding(place.binding)
        except Exception as error:  # the runtime's exceptions share no other base
            raise ProgramError(
                f"onnxruntime failed on batch {batch.number}: {_first_line(error)}.",
                advice="Check that the data holds what the model accepts (class numbers in range).",
            ) from error

    def _check_vector(self, name: str, vector: Vector) -> None:
        # Binding by address reads and writes memory blindly: everything is checked before.
        if vector.dtype != np.float32 or vector.shape != (self._layout.size,):
            raise DataMalformed(
                f"{name}: {vector.dtype}{vector.shape} where the program has "
                f"{self._layout.size} float32 numbers."
            )
        if not vector.flags.c_contiguous:
            raise DataMalformed(f"{name} must lie contiguously in memory.")

    def _check_batch(self, batch: Batch) -> None:
        if len(batch.fields) != len(self._spec.inputs) or batch.samples == 0:
            raise DataMalformed(
                f"batch {batch.number}: {len(batch.fields)} fields, {batch.samples} samples; "
                f"the program takes {len(self._spec.inputs)} fields and at least one sample."
            )
        for spec, column in zip(self._spec.inputs, batch.fields, strict=True):
            shape = (batch.samples, *spec.shape)
            if column.dtype != spec.dtype or column.shape != shape or not column.flags.c_contiguous:
                raise DataMalformed(
                    f"batch {batch.number}, field {spec.name!r}: {column.dtype}{column.shape} "
                    f"where the program takes contiguous {spec.dtype}{shape}."
                )


def _session(model: bytes, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4  # fatal only: errors reach us as exceptions
    # A volunteer's machine belongs to someone: idle threads sleep instead of spinning.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no other base
        raise ProgramRefused(
            f"onnxruntime cannot load the program: {_first_line(error)}."
        ) from error


def _address(array: NDArray[Any]) -> int:
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def _mean(values: list[float], samples: list[int]) -> float:
    return sum(v * n for v, n in zip(values, samples, strict=True)) / sum(samples)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
