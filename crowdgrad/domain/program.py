"""A program: the model as data.

One ONNX graph `(parameters, buffers, batch, noise) → (loss, gradients, new buffers)` and one
forward graph `(parameters, buffers, batch) → (loss, metrics, outputs)`. The spec names every tensor
in the order in which the graphs take and return them. Parameters lie one after the other in one
flat float32 vector, the *state*, with the buffers behind them. What a volunteer returns is laid out
like the state's beginning: gradients, then new buffers.

Names inside the graphs: parameter `p` is input `p:<p>`, its gradient output `g:<p>`; buffer `b` is
input `b:<b>`, its new value (unless it is fixed) output `n:<b>`; batch field `f` is input `x:<f>`;
noise `z` is input `z:<z>`; the loss is output `loss`, metric `m` is output `m:<m>`, model output i
is `y:<i>`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

DType = Literal["float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]
NoiseKind = Literal["uniform", "normal"]
Better = Literal["higher", "lower"]
OfMean = Literal["itself", "exp", "sqrt"]

ITEM_BYTES: dict[str, int] = {
    "float32": 4, "float64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1,
}  # fmt: skip
MAX_NAME = 256
MAX_RANK = 8
MAX_ELEMENTS = 1 << 40
MAX_SMALLEST = 64


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
    batch_axis: int = 0
    """Where the model itself has the batch when it draws: PyTorch's recurrent layers have time
    first. The program knows; who runs the model itself moves the batch there."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_shape(self.shape)
        if not 0 <= self.batch_axis <= len(self.shape):
            raise ValueError(f"noise of shape {self.shape} has no axis {self.batch_axis}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """A number the forward graph gives for a batch, and what is shown of its mean over a split."""

    name: str
    better: Better = "higher"
    of_mean: OfMean = "itself"
    """Of the mean over all samples: a perplexity is the exp of a mean, not a mean of exps."""

    def __post_init__(self) -> None:
        check_name(self.name)

    def shown(self, mean: float) -> float:
        """What people see, for the mean over all samples."""
        try:
            if self.of_mean == "exp":
                return math.exp(mean)
            return math.sqrt(mean) if self.of_mean == "sqrt" else mean
        except (OverflowError, ValueError):
            return math.inf if mean > 0 else math.nan

    def is_better(self, one: float, other: float) -> bool:
        return one > other if self.better == "higher" else one < other


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec:
    parameters: tuple[TensorSpec, ...]
    """float32, in the order in which they lie in the flat vector."""
    buffers: tuple[TensorSpec, ...]
    """What training changes besides the parameters: means and variances, counters."""
    inputs: tuple[TensorSpec, ...]
    """The batch: the record fields the model reads, then those the loss compares with."""
    noise: tuple[NoiseSpec, ...]
    metrics: tuple[MetricSpec, ...]
    """Each a mean over the batch, from the forward graph; the first steers stopping rules."""
    outputs: int
    """How many tensors the model itself returns."""
    work_per_sample: float
    """Floating-point operations of one sample's forward and backward pass: the unit of credit."""
    opset: int
    frozen: tuple[str, ...] = ()
    """Parameters whose gradient is always zero: penalties and decay leave them alone too."""
    fixed: tuple[TensorSpec, ...] = ()
    """Buffers that are only read: masks, positions. Last in the state, never in an update."""
    forward_noise: tuple[NoiseSpec, ...] = ()
    """What the forward graph draws: a generator samples in evaluation too."""
    weighted: bool = False
    """The last input is the samples' weights (float32): ones where the data has none."""
    smallest_batch: int = 1
    """Batch normalisation cannot train on fewer."""
    fixed_batch: int = 0
    """The one batch size both graphs take; 0: any."""

    def __post_init__(self) -> None:
        if not set(self.frozen) <= {t.name for t in self.parameters}:
            raise ValueError("a frozen parameter is not one of the parameters")
        names = [t.name for t in (*self.parameters, *self.buffers, *self.fixed, *self.inputs)]
        names.extend(noise.name for noise in self.noise)
        if not self.parameters or not self.inputs:
            raise ValueError("a program has at least one parameter and one input")
        if len(set(names)) != len(names):
            raise ValueError("two tensors of the program have the same name")
        if any(t.dtype != "float32" for t in self.parameters):
            raise ValueError("parameters are float32")
        if any(t.dtype == "bool" for t in self.buffers):
            raise ValueError("a buffer of truth values cannot be merged")
        if len({m.name for m in self.metrics}) != len(self.metrics):
            raise ValueError("two metrics have the same name")
        if len({noise.name for noise in self.forward_noise}) != len(self.forward_noise):
            raise ValueError("two noise inputs of the forward graph have the same name")
        if self.weighted and (len(self.inputs) < 2 or self.inputs[-1].dtype != "float32"):
            raise ValueError("sample weights are the last of several inputs, float32")
        if not 1 <= self.smallest_batch <= MAX_SMALLEST or not 0 <= self.fixed_batch <= 1 << 16:
            raise ValueError(f"batches of {self.smallest_batch}, {self.fixed_batch} make no sense")
        if not math.isfinite(self.work_per_sample) or self.work_per_sample <= 0:
            raise ValueError(f"work per sample is {self.work_per_sample}")

    @property
    def size(self) -> int:
        """How many numbers the flat parameter vector holds."""
        return sum(t.elements for t in self.parameters)

    @property
    def update_words(self) -> int:
        """float32 words of an update: gradients, then new buffers, each from an even word on."""
        return _end(self.size, self.buffers)

    @property
    def state_words(self) -> int:
        """float32 words of the state: parameters, buffers, fixed buffers."""
        return _end(self.update_words, self.fixed)


def word_places(start: int, tensors: tuple[TensorSpec, ...]) -> tuple[int, ...]:
    """Where each tensor begins, in words of four bytes after `start`: even, for 64-bit numbers."""
    places = []
    for tensor in tensors:
        start += start % 2
        places.append(start)
        start += -(-tensor.bytes // 4)
    return tuple(places)


def _end(start: int, tensors: tuple[TensorSpec, ...]) -> int:
    if not tensors:
        return start
    return word_places(start, tensors)[-1] + -(-tensors[-1].bytes // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    spec: ProgramSpec
    gradient: bytes
    """ONNX: one training step's loss and gradients."""
    forward: bytes
    """ONNX: loss, metrics and outputs in evaluation mode."""
