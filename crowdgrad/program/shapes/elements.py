"""Which element types each operator takes: the standard's, as far as onnxruntime has them.

Found by asking onnxruntime operator by operator (`tests/program/test_shapes.py` does it again). A
type is written as its letter in Python's `struct`: f and d are float32 and float64, b h i l are
int8 to int64, B is uint8 and ? is bool.
"""

from __future__ import annotations

from typing import Final

from crowdgrad.program.shapes.base import BOOL, DOUBLE, FLOAT, INT8, INT16, INT32, INT64, UINT8

_LETTERS: Final = {
    "f": FLOAT, "B": UINT8, "b": INT8, "h": INT16, "i": INT32, "l": INT64, "?": BOOL, "d": DOUBLE,
}  # fmt: skip
_TABLE: Final = (
    ("?", "And Not Or Xor"),
    (
        "f",
        "Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cosh Elu Erf Gelu "
        "InstanceNormalization LeakyRelu Sinh Tan",
    ),
    (
        "fd",
        "BatchNormalization Ceil Cos Exp Floor Gemm IsInf IsNaN LayerNormalization Log LogSoftmax "
        "Reciprocal Round Sigmoid Sin Softmax Sqrt Tanh",
    ),
    ("fbid", "Relu"),
    ("fBbd", "MaxPool"),
    ("fild", "CumSum MatMul Pow ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum"),
    ("fhild", "Range"),
    ("fbhild", "Neg"),
    ("fBbild", "ArgMax ArgMin Clip Max Min Where"),
    ("fBbhild", "Abs Add Div Greater GreaterOrEqual Less LessOrEqual Mod Mul Sign Sub TopK"),
    ("fBbil?d", "Pad ReduceMax ReduceMin"),
    (
        "fBbhil?d",
        "Cast CastLike Concat ConstantOfShape Equal Expand Flatten Gather GatherElements GatherND "
        "Identity Reshape ScatterElements ScatterND Shape Size Slice Split Squeeze Tile Transpose "
        "Unsqueeze",
    ),
)
TAKES: Final = {
    op: frozenset(_LETTERS[letter] for letter in letters)
    for letters, ops in _TABLE
    for op in ops.split()
}
"""The types of an operator's first input (Where: of its second, the first is a bool)."""
