"""How much memory the onnxruntime engine takes, told before the runtime is loaded.

    the runtime itself                    RUNTIME_BYTES
    + a graph as the runtime keeps it     so much for each node, twice where it evaluates
    + constants                           as read, and once more as the runtime lays them out
    + one piece for what a batch makes    the larger peak of both graphs, and what is lost between
    + random numbers                      of the largest batch

Shared memory (parameters, updates, records), the records of a unit and the replicas are counted by
who holds them (`replica.held_bytes`, the trainer).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crowdgrad.domain.program import NoiseSpec, Program

if TYPE_CHECKING:
    from crowdgrad.program.bounds import Bounds
    from crowdgrad.program.check import Checked

RUNTIME_BYTES: Final = 64 << 20
"""A trainer with numpy and onnxruntime, warmed up: all that is resident, with the parts of its
libraries that were used. Measured 63.4 MB, of which 28 are its own (Linux, CPython 3.11, numpy 2,
onnxruntime 1.31); `crowdgrad bench memory` measures it again."""
GRAPH_BYTES: Final = 3 << 20
NODE_BYTES: Final = 6 << 10
"""A graph in the runtime: something at any rate, and for each node. Measured 0.5 MB and 3.8 kB when
it is loaded, and up to 2 MB more when it first runs."""
LOST: Final = 1.25
"""The runtime joins nodes and takes some in another order than was reckoned with, and a tensor that
does not fit makes it take another piece. At 1.15 that happened to 2 of 221 operators at batches of
20,000, at 1.25 to none."""
BOOKS: Final = 32
"""The runtime keeps books of a piece of memory: a part in so many of it."""
PIECE_LEAST_BYTES: Final = 1 << 20
PLANNED_BYTES: Final = 8 << 20
"""Up to this peak the runtime plans where every tensor goes (`onnx_runtime`)."""
PLANNED_LOST: Final = 2.0
"""Such a plan takes up to so much more than what it is made for."""
ALIGNED_WORDS: Final = 16
"""Every input of random numbers begins at a multiple of 64 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Memory that the runtime takes at once."""

    bytes: int
    planned: bool
    """Have it plan where every tensor goes."""


def resident_bytes(program: Program, checked: Checked, samples: int, evaluates: bool) -> int:
    """What `OnnxEngine` adds to its process, for batches of at most so many samples."""
    graphs = (checked.gradient, checked.forward) if evaluates else (checked.gradient,)
    spec = program.spec
    drawn = [drawn_words(spec.noise, samples)]
    if evaluates:
        drawn.append(drawn_words(spec.forward_noise, samples))
    piece = piece_for(checked, evaluates).bytes
    return piece + piece // BOOKS + 4 * max(drawn) + sum(map(_graph_bytes, graphs))


def piece_for(checked: Checked, evaluates: bool) -> Piece:
    """The one piece of memory for all that batches make on their way."""
    peak = max(checked.gradient.peak_bytes, checked.forward.peak_bytes if evaluates else 0)
    planned = peak <= PLANNED_BYTES
    lost = PLANNED_LOST if planned else LOST
    return Piece(bytes=max(PIECE_LEAST_BYTES, math.ceil(lost * peak)), planned=planned)


def drawn_words(specs: Iterable[NoiseSpec], samples: int) -> int:
    """Words that the random numbers of one batch take."""
    return sum(aligned(math.prod(drawn_shape(spec, samples))) for spec in specs)


def drawn_shape(spec: NoiseSpec, samples: int) -> tuple[int, ...]:
    return (samples, *spec.shape) if spec.per_sample else spec.shape


def aligned(words: int) -> int:
    return -(-words // ALIGNED_WORDS) * ALIGNED_WORDS


def _graph_bytes(bounds: Bounds) -> int:
    return GRAPH_BYTES + NODE_BYTES * bounds.nodes + 2 * bounds.kept_bytes
