"""Random uses of every operator, most of them sensible, for comparing our rules with onnxruntime.

A use is made from a seed. `graph` gives it as our reader would, `run` asks onnxruntime what really
comes out. About every fifth use is spoilt in one place, so that refusals are tried as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from crowdgrad.program.graph import Attribute, Constant, Graph, Node, Port

DTYPES = {
    1: np.float32, 2: np.uint8, 3: np.int8, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    11: np.float64,
}  # fmt: skip
Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Feed:
    """An input: of these sizes, and a constant where it has contents."""

    element: int
    dims: Dims
    contents: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Use:
    op: str
    inputs: tuple[Feed | None, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    outputs: int = 1


def graph(use: Use) -> Graph:
    node = Node(use.op, _names(use), _outputs(use), use.attributes)
    named = [(name, feed) for name, feed in zip(_names(use), use.inputs, strict=True) if feed]
    return Graph(
        ir_version=9,
        opset=20,
        nodes=(node,),
        constants=tuple(constant(n, f) for n, f in named if f.contents is not None),
        inputs=tuple(
            Port(name=n, element=f.element, dims=f.dims) for n, f in named if f.contents is None
        ),
        outputs=(),
    )


def constant(name: str, feed: Feed) -> Constant:
    dims = tuple(size for size in feed.dims if isinstance(size, int))
    data = np.array(feed.contents, DTYPES[feed.element]).tobytes()
    return Constant(name=name, element=feed.element, dims=dims, data=data)


def run(use: Use, batches: tuple[int, ...]) -> list[list[np.ndarray]]:
    """What onnxruntime makes at each batch; it raises where it does not like the use."""
    model = helper.make_model(
        _onnx_graph(use), opset_imports=[helper.make_opsetid("", 20)], ir_version=9
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    return [session.run(None, _feeds(use, batch)) for batch in batches]


def _onnx_graph(use: Use) -> onnx.GraphProto:
    constants, inputs = [], []
    for name, feed in zip(_names(use), use.inputs, strict=True):
        if feed is not None and feed.contents is not None:
            dtype = DTYPES[feed.element]
            array = np.array(feed.contents, dtype).reshape(feed.dims)
            constants.append(onnx.numpy_helper.from_array(array, name))
        elif feed is not None:
            inputs.append(helper.make_tensor_value_info(name, feed.element, feed.dims))
    attributes = {
        name: onnx.numpy_helper.from_array(_array(value)) if isinstance(value, Constant) else value
        for name, value in use.attributes.items()
    }
    node = helper.make_node(use.op, _names(use), _outputs(use), **attributes)
    made = [onnx.ValueInfoProto(name=name) for name in _outputs(use)]
    return helper.make_graph([node], "g", inputs, made, constants)


def _array(tensor: Constant) -> np.ndarray:
    return np.frombuffer(tensor.data, DTYPES[tensor.element]).reshape(tensor.dims)


def _feeds(use: Use, batch: int) -> dict[str, np.ndarray]:
    """Zeros where they are whole numbers, so that every index is good."""
    return {
        name: np.full(
            [batch if size == "batch" else size for size in feed.dims],
            0.5 if feed.element in (1, 11) else 0,
            DTYPES[feed.element],
        )
        for name, feed in zip(_names(use), use.inputs, strict=True)
        if feed is not None and feed.contents is None
    }


def _names(use: Use) -> tuple[str, ...]:
    return tuple(f"i{k}" if feed else "" for k, feed in enumerate(use.inputs))


def _outputs(use: Use) -> tuple[str, ...]:
    return tuple(f"o{k}" for k in range(use.outputs))


# ---- making them up


class Maker:
    """Draws the parts of a use."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def size(self) -> int | str:
        return self.r.choice(
            ["batch", "batch", 1, 1, 2, 3, 4, 5, 6, 0 if self.r.random() < 0.2 else 7]
        )

    def dims(self, least: int = 0, most: int = 4) -> Dims:
        return tuple(self.size() for _ in range(self.r.randint(least, most)))

    def element(self) -> int:
        return 1 if self.r.random() < 0.6 else self.r.choice(list(DTYPES))

    def feed(self, least: int = 0, most: int = 4, element: int | None = None) -> Feed:
        return Feed(self.element() if element is None else element, self.dims(least, most))

    def fit(self, feed: Feed) -> Feed:
        """Another that broadcasts with it."""
        dims = [1 if self.r.random() < 0.3 else size for size in feed.dims]
        return replace(feed, dims=tuple(dims[self.r.randint(0, len(dims)) :]), contents=None)

    def axis(self, rank: int) -> int:
        return self.r.randint(-rank, rank - 1) if rank else 0

    def maybe(self, **attributes: Callable[[], Attribute]) -> dict[str, Attribute]:
        return {name: make() for name, make in attributes.items() if self.r.random() < 0.5}

    def flag(self) -> int:
        return self.r.randint(0, 1)

    def ints(self, count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.r.randint(low, high) for _ in range(count))

    def spoil(self, use: Use) -> Use:
        inputs = list(use.inputs)
        place = self.r.randrange(len(inputs))
        feed = inputs[place]
        if feed is None:
            return use
        if feed.contents is not None:
            change = list(feed.contents)
            if change:
                change[self.r.randrange(len(change))] = self.r.choice([-9, -2, -1, 0, 1, 3, 9])
            inputs[place] = replace(feed, contents=tuple(change))
        elif self.r.random() < 0.3:
            inputs[place] = replace(feed, element=self.r.choice(list(DTYPES)))
        else:
            dims = list(feed.dims)
            if dims and self.r.random() < 0.7:
                dims[self.r.randrange(len(dims))] = self.size()
            else:
                dims.insert(0, self.size())
            inputs[place] = replace(feed, dims=tuple(dims))
        return replace(use, inputs=tuple(inputs))


def listed(*numbers: int) -> Feed:
    return Feed(7, (len(numbers),), numbers)


def number(value: int) -> Feed:
    return Feed(7, (), (value,))


def _one(m: Maker, op: str) -> Use:
    return Use(op, (m.feed(),))


def _two(m: Maker, op: str) -> Use:
    first = replace(m.feed(), element=9) if op in ("And", "Or", "Xor") else m.feed()
    if op in ("Div", "Mod") and first.element not in (1, 11):
        return Use(op, (first, Feed(first.element, (), (m.r.randint(1, 9),))))
    attributes: dict[str, Attribute] = {"fmod": 1} if op == "Mod" and m.flag() else {}
    pair = [first, m.fit(first)]
    m.r.shuffle(pair)
    return Use(op, tuple(pair), attributes)


def _many(m: Maker, op: str) -> Use:
    first = m.feed()
    return Use(op, (first, *(m.fit(first) for _ in range(m.r.randint(0, 3)))))


def _where(m: Maker, op: str) -> Use:
    first = m.feed()
    return Use(op, (replace(m.fit(first), element=9), first, m.fit(first)))


def _clip(m: Maker, op: str) -> Use:
    x = m.feed()
    bound = Feed(x.element, ())
    return Use(op, (x, m.r.choice([bound, None]), bound)[: m.r.randint(1, 3)])


def _cast(m: Maker, op: str) -> Use:
    if op == "CastLike":
        return Use(op, (m.feed(), m.feed()))
    return Use(op, (m.feed(),), {"to": m.r.choice(list(DTYPES))})


def _along(m: Maker, op: str) -> Use:
    x = m.feed(1)
    attributes = m.maybe(axis=lambda: m.axis(len(x.dims)))
    if op in ("ArgMax", "ArgMin"):
        attributes |= m.maybe(keepdims=m.flag)
    return Use(op, (x,), attributes)


def _reduce(m: Maker, op: str) -> Use:
    x = m.feed()
    axes = sorted(
        {m.axis(len(x.dims)) % len(x.dims) for _ in range(m.r.randint(0, 3))} if x.dims else ()
    )
    attributes = m.maybe(keepdims=m.flag, noop_with_empty_axes=m.flag)
    return Use(op, (x, listed(*axes))[: m.r.randint(1, 2)], attributes)


def _top(m: Maker, op: str) -> Use:
    x = m.feed(1)
    axis = m.axis(len(x.dims))
    size = x.dims[axis]
    k = m.r.randint(0, size) if isinstance(size, int) else 1
    return Use(op, (x, listed(k)), {"axis": axis, **m.maybe(largest=m.flag, sorted=m.flag)}, 2)


def _running(m: Maker, op: str) -> Use:
    x = m.feed(1)
    attributes = m.maybe(exclusive=m.flag, reverse=m.flag)
    return Use(op, (x, number(m.axis(len(x.dims)))), attributes)


def _matmul(m: Maker, op: str) -> Use:
    inner, stack, element = m.size(), m.dims(0, 2), m.element()
    left, right = (m.size(), inner), (inner, m.size())
    x = Feed(element, (*stack, *left)[m.r.choice([0, 0, 0, len(stack) + 1]) :])
    fitted = m.fit(Feed(element, stack)).dims
    y = Feed(element, (*fitted, *right) if m.r.random() < 0.8 else (inner,))
    return Use(op, (x, y))


def _gemm(m: Maker, op: str) -> Use:
    rows, inner, columns = m.size(), m.size(), m.size()
    a, b, element = m.flag(), m.flag(), m.element()
    x = Feed(element, (inner, rows) if a else (rows, inner))
    y = Feed(element, (columns, inner) if b else (inner, columns))
    bias = m.fit(Feed(element, (rows, columns)))
    return Use(op, (x, y, bias)[: m.r.randint(2, 3)], {"transA": a, "transB": b})


def _window(m: Maker, space: int, kernel: tuple[int, ...]) -> dict[str, Attribute]:
    return m.maybe(
        kernel_shape=lambda: kernel,
        pads=lambda: m.ints(2 * space, 0, 2),
        strides=lambda: m.ints(space, 1, 3),
        dilations=lambda: m.ints(space, 1, 2),
        auto_pad=lambda: b"NOTSET",
    )


def _image(m: Maker, channels: int | str) -> tuple[int, Feed, tuple[int, ...]]:
    space = m.r.randint(1, 3)
    sides = [
        m.r.choice(["batch", 3, 5, 6, 7]) if m.r.random() < 0.2 else m.r.randint(1, 7)
        for _ in range(space)
    ]
    return space, Feed(1, (m.size(), channels, *sides)), m.ints(space, 1, 3)


def _conv(m: Maker, op: str) -> Use:
    group = m.r.choice([1, 1, 2, 3])
    each, outputs = (
        m.r.choice(["batch", 1, 2, 3]) if group == 1 else m.r.randint(1, 3),
        m.r.randint(1, 3),
    )
    channels = each if group == 1 or isinstance(each, str) else each * group
    space, x, kernel = _image(m, channels)
    if op == "Conv":
        w, bias = Feed(1, (outputs * group, each, *kernel)), outputs * group
    else:
        w, bias = Feed(1, (channels, outputs, *kernel)), outputs * group
    attributes = _window(m, space, kernel) | {"group": group}
    if op == "ConvTranspose":
        attributes |= m.maybe(output_padding=lambda: m.ints(space, 0, 1))
    return Use(op, (x, w, Feed(1, (bias,)))[: m.r.randint(2, 3)], attributes)


def _pool(m: Maker, op: str) -> Use:
    space, x, kernel = _image(m, m.size())
    attributes = _window(m, space, kernel) | {"kernel_shape": kernel} | m.maybe(ceil_mode=m.flag)
    if op == "AveragePool":
        attributes |= m.maybe(count_include_pad=m.flag)
        attributes.pop("dilations", None)
    return Use(op, (x,), attributes, 2 if op == "MaxPool" and m.r.random() < 0.2 else 1)


def _norm(m: Maker, op: str) -> Use:
    x = m.feed(3 if op == "InstanceNormalization" else 2)
    if op == "LayerNormalization":
        axis = m.axis(len(x.dims))
        w = replace(x, dims=x.dims[axis:])
        return Use(op, (x, w, w)[: m.r.randint(2, 3)], {"axis": axis}, m.r.randint(1, 3))
    w = replace(x, dims=x.dims[1:2])
    return Use(op, (x, *[w] * (2 if op == "InstanceNormalization" else 4)))


def _reshape(m: Maker, op: str) -> Use:
    x = m.feed()
    kept = m.r.randint(0, len(x.dims))
    rest = [size for size in x.dims[kept:] if isinstance(size, int)]
    shape = [0] * kept + (rest if len(rest) == len(x.dims) - kept and m.flag() else [-1])
    return Use(op, (x, listed(*shape)), m.maybe(allowzero=m.flag))


def _expand(m: Maker, op: str) -> Use:
    x = m.feed()
    shape = [1 if isinstance(s, str) or m.flag() else s for s in x.dims]
    shape = [m.r.randint(0, 4) if x.dims[k] == 1 else s for k, s in enumerate(shape)]
    return Use(op, (x, listed(*([2] * m.flag()), *shape)))


def _tile(m: Maker, op: str) -> Use:
    x = m.feed(1)
    return Use(op, (x, listed(*m.ints(len(x.dims), 0, 3))))


def _squeeze(m: Maker, op: str) -> Use:
    x = m.feed()
    axes = [k for k, size in enumerate(x.dims) if size == 1 and m.flag()]
    return Use(op, (x, listed(*axes))[: m.r.randint(1, 2)])


def _unsqueeze(m: Maker, op: str) -> Use:
    x = m.feed()
    count = m.r.randint(0, 3)
    return Use(op, (x, listed(*m.r.sample(range(len(x.dims) + count), count))))


def _flatten(m: Maker, op: str) -> Use:
    x = m.feed()
    return Use(op, (x,), {"axis": m.r.randint(-len(x.dims), len(x.dims))})


def _transpose(m: Maker, op: str) -> Use:
    x = m.feed(1, 5)
    perm = tuple(m.r.sample(range(len(x.dims)), len(x.dims)))
    return Use(op, (x,), {"perm": perm})


def _shape(m: Maker, op: str) -> Use:
    ends = m.maybe(start=lambda: m.r.randint(-5, 5), end=lambda: m.r.randint(-5, 5))
    return Use(op, (m.feed(),), ends if op == "Shape" else {})


def _concat(m: Maker, op: str) -> Use:
    x = m.feed(1)
    axis = m.axis(len(x.dims))
    parts = []
    for _ in range(m.r.randint(1, 4)):
        dims = list(x.dims)
        dims[axis] = m.size()
        parts.append(replace(x, dims=tuple(dims)))
    return Use(op, tuple(parts), {"axis": axis})


def _split(m: Maker, op: str) -> Use:
    count, x = m.r.randint(1, 4), m.feed(1)
    axis = m.axis(len(x.dims))
    sizes = m.ints(count, 0, 3)
    if m.flag():
        return Use(op, (x,), {"axis": axis, "num_outputs": count}, count)
    dims = list(x.dims)
    dims[axis] = sum(sizes)
    return Use(op, (replace(x, dims=tuple(dims)), listed(*sizes)), {"axis": axis}, count)


def _range(m: Maker, op: str) -> Use:
    return Use(op, tuple(number(n) for n in m.ints(3, -9, 9)))


def _filled(m: Maker, op: str) -> Use:
    dims = m.ints(m.r.randint(0, 3), 0, 4)
    value = constant("", Feed(m.r.choice(list(DTYPES)), (1,), (1,)))
    return Use(op, (listed(*dims),), {"value": value} if m.flag() else {})


def _slice(m: Maker, op: str) -> Use:
    x = m.feed(1)
    axes = m.r.sample(range(-len(x.dims), 0), m.r.randint(1, len(x.dims)))
    far = [-(1 << 63), (1 << 63) - 1]
    ends = [-9, -2, -1, 0, 1, 2, 5, *far, *far]
    starts = [m.r.choice(ends) for _ in axes]
    stops = [m.r.choice(ends) for _ in axes]
    steps = [m.r.choice([1, 1, 1, 2, -1, -2]) for _ in axes]
    inputs = (x, listed(*starts), listed(*stops), listed(*axes), listed(*steps))
    return Use(op, inputs[: m.r.randint(4, 5)])


def _pad(m: Maker, op: str) -> Use:
    x = m.feed(1)
    filler = Feed(x.element, m.r.choice([(), (1,)]))
    return Use(op, (x, listed(*m.ints(2 * len(x.dims), -2, 3)), filler)[: m.r.randint(2, 3)])


def _gather(m: Maker, op: str) -> Use:
    x = m.feed(1)
    return Use(op, (x, m.feed(0, 2, m.r.choice([7, 7, 6]))), {"axis": m.axis(len(x.dims))})


def _elements(m: Maker, op: str) -> Use:
    x = m.feed(1)
    axis = m.axis(len(x.dims))
    dims = list(x.dims)
    dims[axis] = m.size()
    indices = Feed(m.r.choice([7, 7, 6]), tuple(dims))
    if op == "GatherElements":
        return Use(op, (x, indices), {"axis": axis})
    how = {"reduction": m.r.choice([b"none", b"add", b"mul", b"max", b"min"])}
    return Use(op, (x, indices, replace(x, dims=indices.dims)), {"axis": axis, **how})


def _nd(m: Maker, op: str) -> Use:
    x, depth = m.feed(1), m.r.randint(1, 3)
    indices = Feed(7, (*m.dims(0, 2), depth))
    if op == "GatherND":
        return Use(op, (x, indices))
    how: dict[str, Attribute] = {"reduction": m.r.choice([b"none", b"add"])}
    return Use(op, (x, indices, replace(x, dims=(*indices.dims[:-1], *x.dims[depth:]))), how)


MAKERS: dict[str, Callable[[Maker, str], Use]] = {
    op: make
    for make, ops in (
        (
            _one,
            "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Gelu Identity "
            "IsInf IsNaN LeakyRelu Log Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sinh Sqrt "
            "Tan Tanh",
        ),
        (_two, "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Mod Mul Or Pow Sub Xor"),
        (_many, "Max Min"),
        (_where, "Where"),
        (_clip, "Clip"),
        (_cast, "Cast CastLike"),
        (_along, "ArgMax ArgMin LogSoftmax Softmax"),
        (_reduce, "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"),
        (_top, "TopK"),
        (_running, "CumSum"),
        (_matmul, "MatMul"),
        (_gemm, "Gemm"),
        (_conv, "Conv ConvTranspose"),
        (_pool, "AveragePool MaxPool"),
        (_norm, "BatchNormalization InstanceNormalization LayerNormalization"),
        (_reshape, "Reshape"),
        (_expand, "Expand"),
        (_tile, "Tile"),
        (_squeeze, "Squeeze"),
        (_unsqueeze, "Unsqueeze"),
        (_flatten, "Flatten"),
        (_transpose, "Transpose"),
        (_shape, "Shape Size"),
        (_concat, "Concat"),
        (_split, "Split"),
        (_range, "Range"),
        (_filled, "ConstantOfShape"),
        (_slice, "Slice"),
        (_pad, "Pad"),
        (_gather, "Gather"),
        (_elements, "GatherElements ScatterElements"),
        (_nd, "GatherND ScatterND"),
    )
    for op in ops.split()
}


def make(op: str, seed: int) -> Use:
    maker = Maker(seed)
    use = MAKERS[op](maker, op)
    return maker.spoil(use) if maker.r.random() < 0.2 else use
