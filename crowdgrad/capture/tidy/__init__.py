"""ONNX → ONNX: the same arithmetic in fewer and larger operations.

What the exporter writes follows PyTorch's graph, in which a node costs nothing. For an engine
every node costs a microsecond or two, and a pass over memory whatever the memory's size. Each pass
here is a function from a net to a net that computes the same (tests/capture/test_tidy.py), and they
are repeated until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx

from crowdgrad.capture.tidy.channels import with_channel_maps
from crowdgrad.capture.tidy.copies import (
    with_single_reshapes,
    with_sums_in_place,
    without_copies,
    without_twins,
    without_unread,
    without_unread_results,
)
from crowdgrad.capture.tidy.expands import with_late_expands, without_expands
from crowdgrad.capture.tidy.net import Net, read, write
from crowdgrad.capture.tidy.sums import with_stacked_sums

PASSES: Final[tuple[Callable[[Net], Net], ...]] = (
    without_copies,
    with_single_reshapes,
    with_sums_in_place,
    without_unread_results,
    without_twins,
    without_unread,
    with_stacked_sums,
    with_late_expands,
    without_expands,
    with_channel_maps,
)
ROUNDS: Final = 8
"""More than any graph needs; whatever is left then is merely slower."""


def tidy(graph: onnx.GraphProto) -> onnx.GraphProto:
    """A graph with the same inputs and outputs that computes the same, faster."""
    net = read(graph)
    for _ in range(ROUNDS):
        before = net.nodes
        for improve in PASSES:
            net = improve(net)
        if net.nodes == before:
            break
    return write(without_unread(net), graph)
