"""A program: the model as data.

One ONNX graph `(parameters, buffers, batch, noise) → (loss, gradients, new buffers)` and one
forward graph `(parameters, buffers, batch) → (loss, metrics, outputs)`. The spec names every tensor
in the order in which the graphs take and return them; parameters and gradients lie one after the
other in one flat float32 vector.

Names inside the graphs: parameter `p` is input `p:<p>`, its gradient output `g:<p>`; buffer `b` is
input `b:<b>`, its new value output `n:<b>`; batch field `f` is input `x:<f>`; noise `z` is input
`z:<z>`; the loss is output `loss`, metric `m` is output `m:<m>`, model output i is `y:<i>`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

DType = Literal["float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]
NoiseKind = Literal["uniform", "normal"]

ITEM_BYTES: dict[str, int] = {
    "float32": 4, "float64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1,
}  # fmt: skip
MAX_NAME = 256
MAX_RANK = 8
MAX_ELEMENTS = 1 << 40


def check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ValueError(f"a name has 1 to {MAX_NAME} printable characters, not {name[:40]!r}")


def check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        raise ValueError(f"a shape has at most {MAX_RANK} sizes, none negative, not {shape[:9]}")
    if math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"shape {shape} has more than {MAX_ELEMENTS} elements")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor. For a batch field, `shape` is that of one record, without the batch dimension."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        check_shape(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSpec:
    """Random numbers the program takes as an input (float32): anyone can make them again."""

    name: str
    kind: NoiseKind
    shape: tuple[int, ...]
    """Without the batch dimension when `per_sample`."""
    per_sample: bool
    """True: one block of `shape` for every sample of the batch, the batch dimension first."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_shape(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec:
    parameters: tuple[TensorSpec, ...]
    """float32, in the order in which they lie in the flat vector."""
    buffers: tuple[TensorSpec, ...]
    inputs: tuple[TensorSpec, ...]
    """The batch: the record fields the model reads, then those the loss compares with."""
    noise: tuple[NoiseSpec, ...]
    metrics: tuple[str, ...]
    """Each a mean over the batch, from the forward graph; the first steers stopping rules."""
    outputs: int
    """How many tensors the model itself returns."""
    work_per_sample: float
    """Floating-point operations of one sample's forward and backward pass: the unit of credit."""
    opset: int
    frozen: tuple[str, ...] = ()
    """Parameters whose gradient is always zero: penalties and decay leave them alone too."""

    def __post_init__(self) -> None:
        if not set(self.frozen) <= {t.name for t in self.parameters}:
            raise ValueError("a frozen parameter is not one of the parameters")
        names = [t.name for t in (*self.parameters, *self.buffers, *self.inputs)]
        names.extend(noise.name for noise in self.noise)
        if not self.parameters or not self.inputs:
            raise ValueError("a program has at least one parameter and one input")
        if len(set(names)) != len(names):
            raise ValueError("two tensors of the program have the same name")
        if any(t.dtype != "float32" for t in self.parameters):
            raise ValueError("parameters are float32")
        if not math.isfinite(self.work_per_sample) or self.work_per_sample <= 0:
            raise ValueError(f"work per sample is {self.work_per_sample}")

    @property
    def size(self) -> int:
        """How many numbers the flat parameter vector holds."""
        return sum(t.elements for t in self.parameters)

    @property
    def vector_bytes(self) -> int:
        return 4 * self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    spec: ProgramSpec
    gradient: bytes
    """ONNX: one training step's loss and gradients."""
    forward: bytes
    """ONNX: loss, metrics and outputs in evaluation mode."""
