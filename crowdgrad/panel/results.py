"""What the panel's tasks bring back, as the web app reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crowdgrad.host.estimating import Estimate

Kind = Literal["image", "table", "text", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Records in each part of a data set."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    name: str
    kind: str
    role: str
    """What a column is for, where it was prepared from a table; else empty."""
    sentence: str
    """Why it is read like that, or what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSample:
    input: tuple[float, ...] | str
    """Of a picture brightness 0 to 1, row by row, channels last; of all else words."""
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFound:
    """What is in a data set."""

    data: str
    """What a draft calls it."""
    title: str
    records: int
    kind: Kind
    shape: tuple[int, ...]
    """Of an input as it is shown; a picture's is height and width, and 3 where it has colours."""
    classes: tuple[str, ...] | None
    fields: tuple[DataField, ...]
    splits: Splits
    notes: tuple[str, ...]
    """What it says of itself."""
    problems: tuple[str, ...]
    """What people should look at before they train on it."""
    bytes: int
    fits: dict[str, str]
    """Why a kind of ready-made model cannot learn from it; empty where it can."""
    samples: tuple[DataSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The program against PyTorch, on one thread of this machine."""

    batch: int
    program_ms: float
    torch_ms: float
    ratio: float
    samples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Travels:
    """A model that volunteers can train, as `crowdgrad check` measured it."""

    travels: Literal[True]
    reason: str
    max_gradient_error: float
    """Relative to PyTorch's gradients."""
    parameters: int
    frozen: int
    """How many of them stay as they are."""
    buffers: int
    bytes_per_update: int
    operators: tuple[str, ...]
    program_bytes: int
    work_per_sample: float
    """In FLOP."""
    metrics: tuple[str, ...]
    noise_inputs: int
    smallest_batch: int
    fixed_batch: int | None
    """The only batch size it takes; None: any."""
    sample_weights: bool
    activation_bytes: dict[str, int]
    """By batch size."""
    conv_form: str | None
    conv_times_ms: dict[str, float] | None
    speed: Speed
    notes: tuple[str, ...]
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """A model that cannot travel."""

    travels: Literal[False]
    reason: str
    code: str
    """Of `docs/errors.md`."""


CheckReport = Travels | Stays
Result = DataFound | CheckReport
