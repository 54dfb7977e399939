"""Traced graphs → a program: its spec, and both graphs as ONNX with the spec's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from crowdgrad.capture.advice import explain
from crowdgrad.capture.cost import work_per_sample
from crowdgrad.capture.export import Port, to_onnx
from crowdgrad.capture.holdings import NAMES, Holdings, specs
from crowdgrad.capture.lift import lift, plan_noise
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.trace import Traced
from crowdgrad.capture.translator import OPSET
from crowdgrad.domain.program import NoiseSpec, ProgramSpec, TensorSpec
from crowdgrad.errors import CaptureError
from crowdgrad.program.sizes import BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """Everything that was traced of a task."""

    training: tuple[Traced, ...]
    """One for each group of parameters that has a loss of its own."""
    evaluation: Traced

    @property
    def convolves(self) -> bool:
        """Whether the gradient of a convolution's weights is computed, which has two forms."""
        wanted = torch.ops.aten.convolution_backward.default
        nodes = (node for traced in self.training for node in traced.module.graph.nodes)
        return any(node.target is wanted for node in nodes)


def make_spec(
    objective: Objective, holdings: Holdings, graphs: Graphs, outputs: int
) -> ProgramSpec:
    first, *others = graphs.training
    noise = plan_noise(first)
    if any(plan_noise(other) != noise for other in others):
        raise CaptureError(
            "the losses of the groups draw different random numbers.",
            advice="Draw them in the model's forward, which runs once for all groups.",
        )
    changed = {name for traced in graphs.training for name in traced.changed}
    _refuse_changing_truths(holdings, changed)
    kept = {name: b for name, b in holdings.buffers.items() if name in changed}
    fixed = {name: b for name, b in holdings.buffers.items() if name not in changed}
    return ProgramSpec(
        parameters=specs(holdings.parameters.items()),
        buffers=specs(kept.items()),
        fixed=specs(fixed.items()),
        inputs=tuple(reader.spec for reader in objective.readers),
        noise=noise,
        forward_noise=plan_noise(graphs.evaluation),
        metrics=tuple(m.spec(name) for name, m in objective.metric_specs().items()),
        outputs=outputs,
        work_per_sample=work_per_sample(graphs.training, graphs.evaluation),
        opset=OPSET,
        frozen=_frozen(objective, holdings),
        weighted=objective.weighted,
        smallest_batch=first.batches.smallest,
        fixed_batch=first.batches.fixed,
    )


def write_gradient(
    spec: ProgramSpec, objective: Objective, holdings: Holdings, graphs: Graphs
) -> bytes:
    """The gradient graph as ONNX."""
    outputs: list[Port] = [("loss", "float32", ())]
    outputs += [(f"g:{t.name}", t.dtype, t.shape) for t in spec.parameters]
    outputs += [(f"n:{t.name}", t.dtype, t.shape) for t in spec.buffers]
    labels = tuple(name for name, _, _ in outputs)
    with explain(objective.model):
        lifted = lift(graphs.training, _state(spec, holdings), spec.noise, labels)
        return to_onnx(lifted, _inputs(spec, spec.noise), outputs)


def write_forward(
    spec: ProgramSpec, objective: Objective, holdings: Holdings, graphs: Graphs
) -> bytes:
    """The forward graph as ONNX."""
    numbers = ("loss", *(f"m:{metric.name}" for metric in spec.metrics))
    outputs: list[Port | str] = [(name, "float32", ()) for name in numbers]
    outputs += [f"y:{index}" for index in range(spec.outputs)]
    with explain(objective.model):
        lifted = lift((graphs.evaluation,), _state(spec, holdings), spec.forward_noise, None)
        return to_onnx(lifted, _inputs(spec, spec.forward_noise), outputs)


def _state(spec: ProgramSpec, holdings: Holdings) -> Mapping[str, Tensor]:
    every: dict[str, Tensor] = {**holdings.parameters, **holdings.buffers}
    return {t.name: every[t.name] for t in (*spec.parameters, *spec.buffers, *spec.fixed)}


def _inputs(spec: ProgramSpec, noise: tuple[NoiseSpec, ...]) -> list[Port]:
    batch = spec.fixed_batch or BATCH
    ports: list[Port] = [_port("p", t) for t in spec.parameters]
    ports += [_port("b", t) for t in (*spec.buffers, *spec.fixed)]
    ports += [(f"x:{t.name}", t.dtype, (batch, *t.shape)) for t in spec.inputs]
    for z in noise:
        ports.append((f"z:{z.name}", "float32", (batch, *z.shape) if z.per_sample else z.shape))
    return ports


def _port(kind: str, tensor: TensorSpec) -> Port:
    return f"{kind}:{tensor.name}", tensor.dtype, tensor.shape


def _frozen(objective: Objective, holdings: Holdings) -> tuple[str, ...]:
    taught = {name for names in objective.groups.values() for name in names}
    return tuple(
        name
        for name, parameter in holdings.parameters.items()
        if not parameter.requires_grad or (objective.groups and name not in taught)
    )


def _refuse_changing_truths(holdings: Holdings, changed: set[str]) -> None:
    for name, buffer in holdings.buffers.items():
        if name in changed and NAMES[buffer.dtype] == "bool":
            raise CaptureError(
                f"training changes the buffer {name!r}, which holds truth values: those of many "
                "volunteers cannot be merged.",
                advice="Make it float32, or a number that counts.",
            )
