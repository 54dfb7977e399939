"""Recurrent layers keep their dropout and stay plain while they are traced."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._decomp import decompositions
from torch.export import Dim
from torch.export.experimental import _export_forward_backward

from crowdgrad.capture.quiet import silence
from crowdgrad.capture.rewrites.recurrent import mended

DROPOUT = torch.ops.aten.native_dropout.default
KINDS = (
    nn.LSTM,
    pytest.param(nn.GRU, marks=pytest.mark.slow),
    pytest.param(nn.RNN, marks=pytest.mark.slow),
)


class _Loss(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.layer(x)[0].sin().mean(),)


def _operators(kind: type[nn.Module], context: Any, **options: Any) -> list[Any]:
    layer = kind(3, 2, 2, batch_first=True, **options)
    shapes = ({0: Dim("batch", min=1)},)
    with silence(), context:
        exported = torch.export.export(
            _Loss(layer), (torch.randn(4, 2, 3),), dynamic_shapes=shapes, strict=False
        )
        joint = _export_forward_backward(exported, 0)
    return [node.target for node in joint.graph.nodes]


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_is_kept(kind: type[nn.Module]) -> None:
    operators = _operators(kind, mended(), dropout=0.5)
    assert operators.count(DROPOUT) == 1
    assert not any("mkldnn" in str(operator) for operator in operators)


def test_pytorch_still_drops_it() -> None:
    """When this fails, PyTorch has mended it and `recurrent` can go."""
    assert DROPOUT not in _operators(nn.RNN, nullcontext(), dropout=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_dropout_the_values_are_pytorchs(kind: type[nn.Module]) -> None:
    """The loop over the layers itself, both ways, in evaluation too."""
    torch.manual_seed(0)
    layer = kind(3, 4, 2, batch_first=True, bidirectional=True, dropout=0.5).eval()
    x = torch.randn(4, 3, 3)
    wanted, last = layer(x)
    shapes = ({0: Dim("batch", min=1)},)
    with silence(), mended(), torch.no_grad():
        exported = torch.export.export(layer, (x,), dynamic_shapes=shapes, strict=False)
        exported = exported.run_decompositions()
    got, got_last = exported.module()(x[:2])
    torch.testing.assert_close(got, wanted[:2])
    first, got_first = (last[0], got_last[0]) if kind is nn.LSTM else (last, got_last)
    torch.testing.assert_close(got_first, first[:, :2])


def test_pytorch_is_left_as_it_was() -> None:
    before = decompositions._rnn_helper, decompositions.select_one_layer_lstm_function
    with mended():
        assert decompositions._rnn_helper is not before[0]
    assert (decompositions._rnn_helper, decompositions.select_one_layer_lstm_function) == before
