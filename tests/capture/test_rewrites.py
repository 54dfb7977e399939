"""Every rewrite computes what PyTorch computes, at two batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from crowdgrad.capture.forms import FORMS, conv_form
from crowdgrad.capture.rewrites import REWRITES
from crowdgrad.program.check import ALLOWED_OPS
from tests.capture.operators import CASES, CONVOLUTIONS, NORMALISATION, POOLING, Case
from tests.capture.rewriting import SAMPLES, Bundle, Rewritten, Travelled, autograd, distance

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same'"),
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
]
aten = torch.ops.aten
AT_ONCE = 10
"""Cases in one export: more take longer than two exports."""
SOME = (
    "conv: 2-d padded", "conv: transposed 2-d, everything", "max pool 2-d", "group norm",
    "cross entropy everything", "embedding with padding", "pad replicated",
    "variance over the batch", "max pool 2-d without channels",
)  # fmt: skip
REWRITTEN = (*CONVOLUTIONS, *POOLING, *NORMALISATION)
"""Where eager mode meets operators that have a rewrite."""
SCALARS = {
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
}


def _by_name(cases: Sequence[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", _by_name(REWRITTEN))
def test_eager_gradients_with_rewrites_are_pytorchs(case: Case) -> None:
    _compare_eagerly(case)


@pytest.mark.parametrize("case", _by_name(CONVOLUTIONS))
def test_the_other_form_of_the_weight_gradient(case: Case) -> None:
    with conv_form("gemm"):
        _compare_eagerly(case)


def _compare_eagerly(case: Case) -> None:
    probe, inputs = case.build()
    for samples in SAMPLES:
        batch = [x[:samples] for x in inputs]
        wanted = autograd(probe, batch)
        with Rewritten():
            got = autograd(probe, batch)
        assert got.keys() == wanted.keys()
        for name, gradient in wanted.items():
            assert distance(got[name], gradient) < 1e-5, name


def test_the_table_reaches_the_rewrites() -> None:
    """A rewrite that no case uses would be tested by nobody."""
    seen = set()
    for case in REWRITTEN:
        probe, inputs = case.build()
        with Rewritten() as rewritten:
            autograd(probe, inputs)
        seen |= rewritten.seen
    # What only the exported graph has: eager mode calls these by other names or not at all.
    exported = {
        aten.empty_permuted.default, aten._assert_tensor_metadata.default,
        aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats,
        aten.squeeze.dims, aten.alias.default, aten.detach.default, *SCALARS,
    }  # fmt: skip
    assert set(REWRITES) - seen - exported == set()


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, True)])
@pytest.mark.parametrize("form", FORMS)
def test_only_the_gradients_asked_for(wanted: Sequence[bool], form: str) -> None:
    x, weight, grad = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(2, 4, 4, 4)
    arguments = (grad, x, weight, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted)
    with conv_form(form):
        found = REWRITES[aten.convolution_backward.default](*arguments)
    assert [tensor is not None for tensor in found] == list(wanted)


class _BySize(nn.Module):
    """An operator's rewrite with a number that follows from the batch size."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self._operator = operator

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = REWRITES[self._operator](x, 1.0 / (x.shape[0] + 1))
        return y


@pytest.mark.parametrize("operator", SCALARS, ids=str)
def test_numbers_that_follow_from_the_batch_size_become_tensors(operator: Any) -> None:
    module = _BySize(operator)
    exported = torch.export.export(
        module, (torch.randn(4, 3),), dynamic_shapes=({0: Dim("batch", min=1)},), strict=False
    )
    targets = {node.target for node in exported.graph.nodes}
    assert SCALARS[operator] in targets
    assert operator not in targets
    x = torch.randn(7, 3)
    torch.testing.assert_close(exported.module()(x), module(x))


def test_the_first_of_equal_maxima_gets_the_gradient() -> None:
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    with Rewritten() as rewritten:
        torch.nn.functional.max_pool2d(x, 2).sum().backward()
    assert aten.max_pool2d_with_indices_backward.default in rewritten.seen
    assert x.grad is not None
    assert x.grad.flatten().nonzero().flatten().tolist() == [0, 2, 8, 10]


def test_some_of_everything_travels() -> None:
    _compare_through_onnxruntime([case for case in CASES if case.name in SOME])
    assert set(SOME) <= {case.name for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(CASES), AT_ONCE))
@pytest.mark.timeout(300)
def test_everything_travels(first: int) -> None:
    _compare_through_onnxruntime(CASES[first : first + AT_ONCE])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_convolutions_travel_as_products_too() -> None:
    with conv_form("gemm"):
        _compare_through_onnxruntime(CONVOLUTIONS[:AT_ONCE])


def _compare_through_onnxruntime(cases: Sequence[Case]) -> None:
    bundle = Bundle(cases)
    program = Travelled(bundle)
    for samples in SAMPLES:
        batch: list[Tensor] = [x[:samples] for x in bundle.inputs]
        wanted, got = autograd(bundle, batch), program(batch)
        errors = {
            f"{bundle.case_of(name)}: {name}": distance(got[name], gradient)
            for name, gradient in wanted.items()
        }
        wrong = {name: error for name, error in errors.items() if not error < 1e-4}
        assert not wrong, f"with {samples} samples"
        assert all(np.isfinite(gradient).all() for gradient in got.values())
    assert program.operators <= ALLOWED_OPS
