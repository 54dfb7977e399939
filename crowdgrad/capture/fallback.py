"""When the model cannot be followed for every batch size: capture it for one.

This way needs neither a symbolic batch size nor the private joint export, so it also serves where a
later PyTorch has dropped that. What it costs is said to the host: batches of other sizes are lost.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch._decomp import core_aten_decompositions
from torch._functorch.aot_autograd import aot_export_module
from torch._subclasses.fake_tensor import FakeTensorMode

from crowdgrad.capture.advice import explain
from crowdgrad.capture.holdings import Holdings
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.quiet import same_tensors
from crowdgrad.capture.rewrites.recurrent import mended
from crowdgrad.capture.trace import (
    LOSS,
    MODEL,
    OTHER,
    Batches,
    EvaluationStep,
    Traced,
    TrainingStep,
    example_batch,
    teaching,
)
from crowdgrad.errors import CaptureError


def note(objective: Objective, samples: int) -> str:
    """What a host gives up."""
    rest = (
        "batches with fewer records are padded with samples of weight 0"
        if objective.weighted
        else "records left over at the end of a shard are not trained on"
    )
    return (
        f"The model could be captured for batches of exactly {samples} samples only, so uneven "
        f"batches are lost: {rest}."
    )


def trace_fixed_training(
    objective: Objective, holdings: Holdings, batches: Batches
) -> tuple[Traced, ...]:
    """As `trace_training`, for batches of `batches.fixed` samples."""
    objective.model.train()
    found = []
    for group in objective.groups or ("",):
        with teaching(holdings, objective.groups.get(group)):
            step = TrainingStep(objective, group)
            found.append(_trace(step, objective, holdings, batches, joint=True))
    return tuple(found)


def trace_fixed_evaluation(objective: Objective, holdings: Holdings, batches: Batches) -> Traced:
    """As `trace_evaluation`, for batches of `batches.fixed` samples."""
    objective.model.eval()
    return _trace(EvaluationStep(objective), objective, holdings, batches, joint=False)


class _EachOnce(nn.Module):
    """A step whose parameters and buffers are registered once each: tied ones are not allowed.

    They are stand-ins without values: constants that a model holds may be mixed with those only.
    """

    def __init__(self, step: nn.Module, holdings: Holdings, stand_ins: FakeTensorMode) -> None:
        super().__init__()
        self._step = (step,)  # in a tuple, out of the module tree
        self._names: dict[str, str] = {}
        for index, (name, parameter) in enumerate(holdings.parameters.items()):
            self.register_parameter(
                f"p{index}", cast(nn.Parameter, stand_ins.from_tensor(parameter))
            )
            self._names[f"p{index}"] = name
        for index, (name, buffer) in enumerate(holdings.buffers.items()):
            self.register_buffer(f"b{index}", stand_ins.from_tensor(buffer))
            self._names[f"b{index}"] = name

    def named(self, own: str) -> str:
        """The model's name of a tensor registered here."""
        return self._names[own]

    def forward(self, *batch: Tensor) -> Any:
        state = {MODEL + name: getattr(self, own) for own, name in self._names.items()}
        return torch.func.functional_call(self._step[0], state, (list(batch),))


def _trace(
    step: nn.Module, objective: Objective, holdings: Holdings, batches: Batches, *, joint: bool
) -> Traced:
    examples = example_batch(objective.readers, batches)
    stand_ins = FakeTensorMode(allow_non_fake_inputs=True)
    module = _EachOnce(step, holdings, stand_ins)
    with explain(objective.model), same_tensors(objective.model), mended():
        found, signature = aot_export_module(
            module,
            tuple(stand_ins.from_tensor(column) for column in examples),
            trace_joint=joint,
            output_loss_index=0 if joint else None,
            decompositions=dict(core_aten_decompositions()),
        )
    graph = cast(fx.GraphModule, found)
    inputs = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return Traced(
        module=graph,
        arguments=tuple(module.named(name) for name in inputs.values()),
        results=_labels(graph, signature, module),
        examples=examples,
        batches=batches,
    )


def _labels(graph: fx.GraphModule, signature: Any, module: _EachOnce) -> tuple[str, ...]:
    """What each output is: new buffers, the forward's results, then gradients in order."""
    changed = [f"n:{module.named(own)}" for own in signature.buffers_to_mutate.values()]
    others = [OTHER] * len(signature.user_outputs)
    gradients = []
    if signature.backward_signature is not None:
        others[0] = LOSS
        trained = (own for own, p in module.named_parameters() if p.requires_grad)
        gradients = [f"g:{module.named(own)}" for own in trained]
    labels = (*changed, *others, *gradients)
    outputs: Any = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    if len(labels) != len(outputs):
        raise CaptureError("two buffers of the model are given one and the same new value.")
    return labels
