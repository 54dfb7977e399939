"""Tensors without anything in them: runtimes disagree with themselves about those, so none pass."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.shapes import infer
from tests.program import random_calls
from tests.program.random_calls import Feed, Use, listed

X = Feed(1, ("batch", 4, 1))
EMPTY = [
    Use("Expand", (X, listed(0))),
    Use("Tile", (X, listed(1, 1, 0))),
    Use("Slice", (X, listed(0), listed(0), listed(1))),
    Use("Pad", (X, listed(0, -4, 0, 0, 0, 0))),
    Use("ConstantOfShape", (listed(3, 0),)),
    Use("Gather", (X, Feed(7, (0,), ())), {"axis": 1}),
    Use("TopK", (X, listed(0)), {"axis": 1}, outputs=2),
    Use("Split", (X, listed(0, 4)), {"axis": 1}, outputs=2),
    Use("Relu", (Feed(1, ("batch", 0)),)),
    Use("Expand", (listed(5), listed(0))),
]


@pytest.mark.parametrize("use", EMPTY, ids=lambda use: use.op)
def test_nothing_is_refused(use: Use) -> None:
    with pytest.raises(ProgramRefused, match="a tensor without anything in it"):
        infer(random_calls.graph(use))


def test_the_sizes_of_a_single_number_are_an_empty_list() -> None:
    assert infer(random_calls.graph(Use("Shape", (Feed(1, ()),)))).values["o0"].known == ()


def test_why_the_optimiser_takes_nothing_for_one() -> None:
    """Should this fail some day, the runtime has been mended; the rule costs nobody anything."""
    calls = (("Neg", ["x"], ["a"]), ("Expand", ["a", "shape"], ["b"]), ("Neg", ["b"], ["z"]))
    graph = helper.make_graph(
        [helper.make_node(*call) for call in calls],
        "g",
        [helper.make_tensor_value_info("x", 1, ("n", 1))],
        [helper.make_tensor_value_info("z", 1, None)],
        [numpy_helper.from_array(np.array([0]), "shape")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (made,) = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": np.ones((3, 1), np.float32)})
    assert made.shape == (3, 1), "the standard says (3, 0)"
