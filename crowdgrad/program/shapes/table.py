"""Every operator with its rule: the same operators as in `attributes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from crowdgrad.program.shapes import (
    elementwise,
    indexing,
    products,
    reductions,
    shaping,
    windows,
)
from crowdgrad.program.shapes.base import Call, Value

Rule = Callable[[Call], tuple[Value, ...]]

_ALIKE: Final[tuple[tuple[Rule, str], ...]] = (
    (
        elementwise.one,
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Gelu Identity "
        "LeakyRelu Log Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sinh Sqrt Tan Tanh",
    ),
    (elementwise.one_to_bool, "IsInf IsNaN"),
    (elementwise.along_axis, "LogSoftmax Softmax"),
    (elementwise.two, "Add And Div Mod Mul Or Sub Xor"),
    (elementwise.compare, "Equal Greater GreaterOrEqual Less LessOrEqual"),
    (elementwise.many, "Max Min"),
    (elementwise.cast_to, "Cast CastLike"),
    (
        reductions.reduction,
        "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum",
    ),
    (reductions.arg, "ArgMax ArgMin"),
    (windows.pool, "AveragePool MaxPool"),
)
RULES: Final[dict[str, Rule]] = {op: rule for rule, ops in _ALIKE for op in ops.split()} | {
    "BatchNormalization": windows.batch_norm,
    "Clip": elementwise.clip,
    "Concat": shaping.concat,
    "ConstantOfShape": shaping.constant_of_shape,
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    "CumSum": reductions.running,
    "Expand": elementwise.expand,
    "Flatten": shaping.flatten,
    "Gather": indexing.gather,
    "GatherElements": indexing.gather_elements,
    "GatherND": indexing.gather_nd,
    "Gemm": products.gemm,
    "InstanceNormalization": windows.instance_norm,
    "LayerNormalization": windows.layer_norm,
    "MatMul": products.matmul,
    "Pad": indexing.pad,
    "Pow": elementwise.power,
    "Range": shaping.span,
    "Reshape": shaping.reshape,
    "ScatterElements": indexing.scatter_elements,
    "ScatterND": indexing.scatter_nd,
    "Shape": shaping.shape,
    "Size": shaping.size,
    "Slice": indexing.cut,
    "Split": shaping.split,
    "Squeeze": shaping.squeeze,
    "Tile": shaping.tile,
    "TopK": reductions.top,
    "Transpose": shaping.transpose,
    "Unsqueeze": shaping.unsqueeze,
    "Where": elementwise.where,
}
