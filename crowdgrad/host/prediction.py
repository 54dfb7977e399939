"""A finished run's model, ready to be asked: `model.onnx` with onnxruntime, no PyTorch.

Records go in as they are stored (bytes of pixels stay bytes); casting and normalising are inside
the model. What a model draws in evaluation mode comes from Philox, so the same seed gives the same
answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.program import NoiseSpec
from crowdgrad.errors import ComputeError, DataMalformed, DataMissing, ProgramRefused
from crowdgrad.host.earlier import Earlier
from crowdgrad.host.samples import Wanted
from crowdgrad.numerics import noise
from crowdgrad.program.engines.onnx_runtime import open_session

BATCH = 256
Columns = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    outputs: tuple[NDArray[Any], ...]
    """What the model returns, one array for each of its tensors."""
    classes: NDArray[np.int64] | None = None
    """For a classification: the class with the largest output of each record."""
    probabilities: NDArray[np.float32] | None = None
    """How sure it is of that class: the softmax of its outputs, or the outputs themselves."""


class Model:
    def __init__(self, run: Earlier) -> None:
        """Raises DataMissing, DataMalformed."""
        file = run.folder / "model.onnx"
        if not file.is_file():
            raise DataMissing(f"{run.folder} has no model.onnx.", advice="Choose another run.")
        self.run = run
        self._session = _session(file)
        ports = self._session.get_inputs()
        self.inputs = tuple(_wanted(port) for port in ports if port.name.startswith("x:"))
        self._drawn = {port.name for port in ports if port.name.startswith("z:")}
        self._noise = _noise(run.told)
        self.outputs = tuple(port.name for port in self._session.get_outputs())
        sizes = {port.shape[0] for port in ports if port.name.startswith("x:")}
        fixed = [size for size in sizes if isinstance(size, int)]
        self._batch = fixed[0] if fixed else BATCH
        self._fixed = bool(fixed)
        classes = run.told.get("classes")
        self.classes = classes if isinstance(classes, int) else None

    @property
    def draws(self) -> bool:
        """Whether answers depend on a seed."""
        return bool(self._drawn)

    def answer(
        self, columns: Columns, *, seed: int = 0, progress: Callable[[int], None] | None = None
    ) -> Answers:
        """What the model says of every record. `progress` hears how many are done."""
        found: list[list[NDArray[Any]]] = []
        total = len(columns[0])
        for number, start in enumerate(range(0, total, self._batch)):
            part = [np.ascontiguousarray(c[start : start + self._batch]) for c in columns]
            found.append(self._run(part, seed, number))
            if progress is not None:
                progress(min(total, start + self._batch))
        outputs = tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
        return self._read(outputs)

    def _run(self, part: list[NDArray[Any]], seed: int, number: int) -> list[NDArray[Any]]:
        samples = len(part[0])
        if self._fixed and samples < self._batch:  # filled up; the answers to it are dropped
            rest = self._batch - samples
            part = [np.concatenate([c, np.repeat(c[:1], rest, axis=0)]) for c in part]
        feeds = {f"x:{wanted.name}": c for wanted, c in zip(self.inputs, part, strict=True)}
        for index, spec in enumerate(self._noise):
            if f"z:{spec.name}" in self._drawn:
                stream = noise.FORWARD_STREAM + index
                feeds[f"z:{spec.name}"] = noise.fill(spec, seed, 0, number, stream, len(part[0]))
        try:
            found: list[NDArray[Any]] = self._session.run(None, feeds)
        except Exception as error:  # the runtime's exceptions share no other base
            raise ComputeError(
                f"the model fails on records {number * self._batch} to "
                f"{number * self._batch + samples - 1}: {str(error).splitlines()[0]}.",
                advice="Check that they hold what the model accepts (ids in range).",
            ) from error
        if any(output.shape[:1] != (len(part[0]),) for output in found):
            raise ComputeError(
                "the model does not return one row for each record.",
                advice="Run model.onnx yourself with onnxruntime.",
            )
        return [output[:samples] for output in found]

    def _read(self, outputs: tuple[NDArray[Any], ...]) -> Answers:
        first = outputs[0]
        if self.classes is None or first.shape[1:] != (self.classes,):
            return Answers(outputs=outputs)
        shares = first if _sums_to_one(first) else _softmax(first)
        classes = shares.argmax(axis=1)
        sure = shares[np.arange(len(shares)), classes].astype(np.float32)
        return Answers(outputs=outputs, classes=classes, probabilities=sure)


def _session(file: Path) -> Any:
    try:
        return open_session(str(file), threads=0)
    except ProgramRefused as error:
        raise DataMalformed(
            f"{file} cannot be loaded: {error.message}", advice="Choose another run."
        ) from error


def _wanted(port: Any) -> Wanted:
    kind = port.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64"}.get(kind, kind)
    return Wanted(
        name=port.name.removeprefix("x:"), dtype=np.dtype(dtype), shape=tuple(port.shape[1:])
    )


def _noise(told: object) -> tuple[NoiseSpec, ...]:
    specs = told.get("forward_noise", []) if isinstance(told, dict) else []
    return tuple(NoiseSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in specs)


def _sums_to_one(rows: NDArray[Any]) -> bool:
    return bool((rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, atol=1e-3))


def _softmax(rows: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    shares: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return shares
