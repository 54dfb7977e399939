"""Our own shape inference: what every tensor in a program is, before any runtime sees it.

`infer` walks a graph once. Each operator has a rule that takes the element types and sizes of its
inputs and gives those of its outputs, as the standard and onnxruntime do, or refuses. Sizes are
numbers or polynomials in the batch size (`sizes`). Where a shape is computed inside the graph, the
contents of small tensors of int64 are followed (`known`). `work` counts what a node costs.
"""

from crowdgrad.program.shapes.base import Value
from crowdgrad.program.shapes.infer import Shapes, infer
from crowdgrad.program.shapes.work import work

__all__ = ["Shapes", "Value", "infer", "work"]
