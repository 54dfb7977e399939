"""LSTM, GRU and RNN, unrolled as PyTorch means them.

torch 2.13 unrolls recurrent layers while exporting, and goes wrong twice, both times silently: the
dropout between layers is left out (its condition can never be true), and an LSTM whose input needs
no gradient becomes one oneDNN operator that nothing else understands. `mended` puts our own loop
over the layers in the place of PyTorch's for as long as a model is being traced. The gate would
find either mistake; this is what keeps it from having to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch._decomp import decompositions

_LAYERS: Final = "_rnn_helper"
_LSTM: Final = "select_one_layer_lstm_function"


@contextmanager
def mended() -> Iterator[None]:
    """Inside, tracing unrolls recurrent layers with their dropout and without oneDNN."""
    # `patch` puts back what was there, and raises where PyTorch has no such name any more.
    with (
        patch.object(decompositions, _LAYERS, layers),
        patch.object(decompositions, _LSTM, _plain_lstm),
    ):
        yield


def layers(
    x: Tensor,
    hidden: Sequence[Any],
    params: Sequence[Sequence[Tensor]],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    layer_fn: Callable[..., tuple[Tensor, Any]],
) -> tuple[Tensor, list[Any]]:
    """Called by PyTorch in the place of its own `_rnn_helper`; the order of draws is eager's."""
    directions = 2 if bidirectional else 1
    x = x.transpose(0, 1) if batch_first else x
    last: list[Any] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            backwards = {"reverse": True} if direction else {}
            y, final = layer_fn(x, hidden[index], params[index], has_biases, **backwards)
            outputs.append(y)
            last.append(final)
        x = torch.cat(outputs, outputs[0].dim() - 1) if bidirectional else outputs[0]
        if train and dropout > 0 and layer < num_layers - 1:
            x = torch.dropout(x, dropout, train=True)
    return (x.transpose(0, 1) if batch_first else x), last


def _plain_lstm(*_args: Any) -> Callable[..., tuple[Tensor, Any]]:
    unrolled: Callable[..., tuple[Tensor, Any]] = decompositions.one_layer_lstm
    return unrolled
