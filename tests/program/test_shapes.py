"""Our shape inference tells what onnxruntime does, operator by operator and program by program.

Real runs are the judge: whatever is accepted must run, at every batch, with exactly the shapes,
types and contents that were told. What runs but depends on the batch in other ways is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from crowdgrad.errors import ProgramRefused
from crowdgrad.program import attributes
from crowdgrad.program.graph import Port, parse
from crowdgrad.program.shapes import Value, infer
from crowdgrad.program.shapes.table import RULES
from crowdgrad.program.sizes import at
from tests.program import random_calls
from tests.program.random_calls import DTYPES, MAKERS, Feed, Use
from tests.program.small_graphs import of

BATCHES = (1, 2, 5)
SEEDS = 12


# ---- every operator against onnxruntime


def test_every_allowed_operator_has_a_rule():
    assert set(RULES) == set(attributes.RULES) == set(MAKERS)


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_what_is_told_is_what_onnxruntime_makes(op: str):
    accepted = 0
    for seed in range(SEEDS):
        use = random_calls.make(op, seed)
        try:
            shapes = infer(random_calls.graph(use))
        except ProgramRefused:
            continue
        accepted += 1
        for batch, arrays in zip(BATCHES, random_calls.run(use, BATCHES), strict=True):
            for k, array in enumerate(arrays):
                assert_told(shapes.values[f"o{k}"], array, batch, use)
    assert accepted


def assert_told(value: Value, array: np.ndarray, batch: int, what: object) -> None:
    told = (tuple(at(size, batch) for size in value.dims), DTYPES[value.element])
    assert told == (array.shape, array.dtype), f"{what} at batch {batch}"
    if value.known is not None:
        assert [at(size, batch) for size in value.known] == array.ravel().tolist(), what


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_windows_have_as_many_places_as_onnxruntime_gives_them(op: str):
    sides = [
        (size, kernel, stride, pad, ceil)
        for size in (4, 5, 6, 7)
        for kernel, pad in ((2, 0), (2, 1), (3, 1))
        for stride in (2, 3)
        for ceil in (0, 1)
    ]
    for size, kernel, stride, pad, ceil in sides:
        use = of(
            op, Feed(1, (1, 1, size)),
            kernel_shape=(kernel,), strides=(stride,), pads=(pad, pad), ceil_mode=ceil,
        )  # fmt: skip
        told = infer(random_calls.graph(use)).values["o0"]
        assert_told(told, random_calls.run(use, (1,))[0][0], 1, use)


STRICTER = {
    "Clip": {5},  # only without bounds
    "Div": {2, 3, 5, 6, 7},  # an unknown divisor may be zero
    "Mod": {2, 3, 5, 6, 7},
}
"""Element types that onnxruntime has and we refuse."""


@pytest.mark.parametrize("op", sorted(set(MAKERS) - {"Range", "ConstantOfShape"}))
def test_element_types_are_those_onnxruntime_has(op: str):
    use = plain_use(op)
    for element in DTYPES:
        typed = replace(use, inputs=tuple(retyped(feed, use, element) for feed in use.inputs))
        ours = theirs = True
        try:
            infer(random_calls.graph(typed))
        except ProgramRefused:
            ours = False
        try:
            random_calls.run(typed, (2,))
        except Exception:  # whatever it raises means that it has no such operator
            theirs = False
        assert ours == (theirs and element not in STRICTER.get(op, ())), (typed, ours, theirs)


def plain_use(op: str) -> Use:
    """One that is accepted and whose data comes from outside."""
    wanted = 9 if op in ("And", "Not", "Or", "Xor") else 1
    for seed in range(200):
        use = random_calls.make(op, seed)
        data = use.inputs[1 if op == "Where" else 0]
        try:
            infer(random_calls.graph(use))
        except ProgramRefused:
            continue
        if data is not None and data.contents is None and data.element == wanted and data.dims:
            return use
    raise AssertionError(f"no plain use of {op}")


def retyped(feed: Feed | None, use: Use, element: int) -> Feed | None:
    main = use.inputs[1 if use.op == "Where" else 0]
    if feed is None or main is None or feed.contents is not None or feed.element != main.element:
        return feed
    return replace(feed, element=element)


# ---- whole programs against onnxruntime


class Pictures(nn.Module):
    """Convolutions with a step and in groups, normalisation, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, groups=2)
        self.last = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.second(self.norm(self.first(x)).relu()), 2)
        result: torch.Tensor = self.last(x.flatten(1))
        return result


@pytest.fixture(scope="module")
def pictures() -> Captured:
    torch.manual_seed(2)
    x, y = torch.randn(4, 1, 12, 12), torch.tensor([0, 1, 1, 0])
    fields = (
        Field(name="image", dtype="float32", shape=(1, 12, 12)),
        Field(name="label", dtype="uint8", shape=()),
    )
    return capture(Task(Pictures(), nn.functional.cross_entropy, inputs=(x,), targets=(y,)), fields)


def assert_told_throughout(data: bytes, smallest: int) -> None:
    """Run a graph with every value as an output and compare."""
    graph, model = parse(data, "the graph"), onnx.ModelProto.FromString(data)
    shapes = infer(graph, smallest)
    given_out = {port.name for port in graph.outputs}
    inner = [name for node in graph.nodes for name in node.outputs if name not in given_out]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    for batch in {max(smallest, batch) for batch in BATCHES}:
        feeds = {port.name: ones(port, batch) for port in graph.inputs}
        names = [output.name for output in session.get_outputs()]
        for name, array in zip(names, session.run(names, feeds), strict=True):
            assert_told(shapes.values[name], array, batch, name)


def ones(port: Port, batch: int) -> np.ndarray:
    dims = [batch if isinstance(size, str) else size for size in port.dims]
    return np.ones(dims, DTYPES[port.element])


def test_captured_programs_are_told_value_by_value(captured, rich, pair, pictures):
    for each in (captured, rich.captured, pair.captured, pictures):
        for data in (each.program.gradient, each.program.forward):
            assert_told_throughout(data, each.program.spec.smallest_batch)


def test_equal_values_are_one_object(pictures: Captured):
    """What makes it fast: calls are compared by the objects they read."""
    values = infer(parse(pictures.program.gradient, "the graph")).values
    assert len({id(value) for value in values.values()}) == len(set(values.values()))
