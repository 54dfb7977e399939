"""Two ways to try rewrites: in eager mode, in no time, and the whole way to onnxruntime.

`Rewritten` swaps operators while PyTorch itself runs forward and backward. `Bundle` puts many cases
into one gradient graph, because each export takes a second whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.export import Dim
from torch.export.experimental import _export_forward_backward
from torch.export.graph_signature import OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from crowdgrad.capture.quiet import silence
from crowdgrad.capture.rewrites import replacement
from crowdgrad.capture.rewrites.early import before_autograd
from crowdgrad.capture.rewrites.recurrent import mended
from tests.capture.operators import Case

SAMPLES = (5, 2)
"""Batch sizes that everything is compared at."""


_NOT_IN_EAGER_MODE = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})
"""Autograd itself needs these; in a finished graph they do nothing."""


class Rewritten(TorchDispatchMode):
    """Operators with a rewrite are replaced by it; `seen` says which."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        instead = replacement(func)
        if instead is None or func in _NOT_IN_EAGER_MODE:
            return func(*args, **(kwargs or {}))
        self.seen.add(func)
        return instead(*args, **(kwargs or {}))


class Bundle(nn.Module):
    """Cases side by side: one loss, and gradients that tell whose they are."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        built = [case.build() for case in cases]
        self.probes = nn.ModuleDict({f"case{i}": probe for i, (probe, _) in enumerate(built)})
        self.names = {f"case{i}": case.name for i, case in enumerate(cases)}
        self.counts = [len(inputs) for _, inputs in built]
        self.inputs = tuple(x for _, inputs in built for x in inputs)

    def forward(self, *inputs: Tensor) -> tuple[Tensor]:
        rest = list(inputs)
        total = torch.zeros(())
        for probe, count in zip(self.probes.values(), self.counts, strict=True):
            total = total + probe(*rest[:count])
            rest = rest[count:]
        return (total,)

    def case_of(self, parameter: str) -> str:
        return self.names[parameter.split(".")[1]]


class Travelled:
    """A bundle as an ONNX gradient graph."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        batch = Dim("batch", min=1)
        with silence(), sdpa_kernel(SDPBackend.MATH):
            with mended():
                free = (tuple({0: batch} for _ in bundle.inputs),)
                exported = torch.export.export(
                    bundle, bundle.inputs, dynamic_shapes=free, strict=False
                )
                joint = _export_forward_backward(before_autograd(exported), 0)
            outputs = joint.graph_signature.output_specs
            self.gradients = {
                place: str(spec.target)
                for place, spec in enumerate(outputs)
                if spec.kind is OutputKind.GRADIENT_TO_PARAMETER
            }
            kept = {**joint.state_dict, **joint.constants}
            arguments = [s for s in joint.graph_signature.input_specs if s.target]
            self.state = [kept[s.target].detach() for s in arguments]
            module = _Replaced(joint.graph_module)
            shapes = ([None] * len(self.state), [{0: batch} for _ in bundle.inputs])
            with torch.no_grad():
                lifted = torch.export.export(
                    module, (self.state, list(bundle.inputs)), dynamic_shapes=shapes, strict=False
                )
            self.model = torch.onnx.export(
                lifted, dynamo=True, opset_version=20, external_data=False, verbose=False
            ).model_proto
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(self.model.SerializeToString(), options)

    @property
    def operators(self) -> set[str]:
        return {str(node.op_type) for node in self.model.graph.node}

    def __call__(self, inputs: Sequence[Tensor]) -> dict[str, NDArray[np.float32]]:
        """Gradients by parameter name."""
        names = [port.name for port in self.model.graph.input]
        values = [tensor.numpy() for tensor in (*self.state, *inputs)]
        found = self.session.run(None, dict(zip(names, values, strict=True)))
        return {name: found[place] for place, name in self.gradients.items()}


class _Replaced(nn.Module):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self._module = (module,)

    def forward(self, state: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(_Interpreter(self._module[0]).run(*state, *inputs))


class _Interpreter(fx.Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        instead = replacement(target)
        return (instead or super().call_function)(
            *(args if instead else (target, args, kwargs)), **(kwargs if instead else {})
        )


def autograd(module: nn.Module, inputs: Sequence[Tensor]) -> dict[str, NDArray[np.float32]]:
    """PyTorch's own gradients by parameter name."""
    named = dict(module.named_parameters())
    result = module(*inputs)
    loss = result[0] if isinstance(result, tuple) else result
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {n: g.detach().numpy() for n, g in zip(named, found, strict=True) if g is not None}


def distance(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Relative L2."""
    return float(np.linalg.norm(got - wanted) / max(float(np.linalg.norm(wanted)), 1e-4))
