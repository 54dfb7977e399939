"""Whether vectors and batches have the form an engine was made for, before it touches them."""

from __future__ import annotations

import numpy as np

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.errors import DataMalformed
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch


def check_vector(name: str, vector: Vector, words: int) -> None:
    """Engines read and write vectors by address. Raises DataMalformed."""
    if vector.dtype != np.float32 or vector.shape != (words,):
        raise DataMalformed(
            f"{name}: {vector.dtype}{vector.shape} where the program has {words} float32 numbers."
        )
    if not vector.flags.c_contiguous:
        raise DataMalformed(f"{name} must lie contiguously in memory.")


def check_batch(spec: ProgramSpec, batch: Batch) -> None:
    """Raises DataMalformed where a batch is not what the program takes."""
    if len(batch.fields) != len(spec.inputs) or batch.samples == 0:
        raise DataMalformed(
            f"batch {batch.number}: {len(batch.fields)} fields, {batch.samples} samples; "
            f"the program takes {len(spec.inputs)} fields and at least one sample."
        )
    if spec.fixed_batch not in (0, batch.samples):
        raise DataMalformed(
            f"batch {batch.number} has {batch.samples} samples, the program takes "
            f"{spec.fixed_batch}."
        )
    for tensor, column in zip(spec.inputs, batch.fields, strict=True):
        shape = (batch.samples, *tensor.shape)
        if column.dtype != tensor.dtype or column.shape != shape or not column.flags.c_contiguous:
            raise DataMalformed(
                f"batch {batch.number}, field {tensor.name!r}: {column.dtype}{column.shape} "
                f"where the program takes contiguous {tensor.dtype}{shape}."
            )
