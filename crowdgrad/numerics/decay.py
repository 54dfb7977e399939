"""Weight decay: w ← w·(1 − amount), beside whatever else changes w.

Decoupled from the gradient, as in AdamW (Loshchilov & Hutter 2017, arXiv 1711.05101): the amount is
η·λ. Parameters that do not learn do not decay either.

D: the length of the flat parameter vector.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crowdgrad.numerics.vectors import Vector, blocks


def decay(parameters_D: Vector, amount: float, trained: tuple[slice, ...] | None) -> None:
    """In place, within the `trained` slices, which do not overlap; None: everywhere."""
    with np.errstate(all="ignore"):
        kept = np.float32(1 - amount)
        for here in blocks(len(parameters_D)):
            for part in within(parameters_D[here], here.start, trained):
                np.multiply(part, kept, out=part)


def within(block: Vector, start: int, trained: tuple[slice, ...] | None) -> Iterator[Vector]:
    """The trained parts of a block that begins at number `start` of the vector."""
    if trained is None:
        yield block
        return
    for piece in trained:
        first, last = max(piece.start - start, 0), min(piece.stop - start, len(block))
        if first < last:
            yield block[first:last]
