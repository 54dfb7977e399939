"""The whole way from a task to a program: trace → rewrite → ONNX → check → gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from crowdgrad.capture.advice import explain, refuse_state, user_line
from crowdgrad.capture.cost import work_per_sample
from crowdgrad.capture.export import OPSET, Port, to_onnx
from crowdgrad.capture.fields import Reader, Records, readers
from crowdgrad.capture.gate import Subject, pass_gate
from crowdgrad.capture.lift import lift, plan_noise
from crowdgrad.capture.quiet import untouched
from crowdgrad.capture.task import Metric, Task, resolve_metrics
from crowdgrad.capture.trace import Traced, trace_evaluation, trace_training
from crowdgrad.domain.data import Field
from crowdgrad.domain.program import NoiseSpec, Program, ProgramSpec, TensorSpec
from crowdgrad.errors import CaptureError, TaskError
from crowdgrad.numerics.layout import Layout
from crowdgrad.program.check import BATCH, check
from crowdgrad.program.graph import parse

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A program that passed the gate, and the weights to start from."""

    program: Program
    parameters: NDArray[np.float32]
    max_gradient_error: float
    operators: tuple[str, ...]

    @property
    def bytes_per_update(self) -> int:
        return self.program.spec.vector_bytes


def capture(
    task: Task,
    fields: tuple[Field, ...] | None = None,
    progress: Progress | None = None,
    records: Records | None = None,
) -> Captured:
    """The task as a program; its module is left as it was.

    `fields` are the storage types of the record fields, inputs then targets; without them records
    look like the example tensors. `records` are some of the real ones, for the gate to compare on:
    an example of zeros would show it next to nothing. Raises TaskError, CaptureError, GateError or
    ProgramRefused.
    """
    say = progress or (lambda _: None)
    refuse_state(task.model)
    reading = readers(task, fields, records)
    with untouched(task.model):
        metrics, outputs = _try(task)
        _freeze_unreached(task)
        say("following the model")
        training = trace_training(task.model, task.loss, reading)
        evaluation = trace_evaluation(task.model, task.loss, reading, metrics)
        say("writing the gradient program")
        program = _program(task, reading, training, evaluation, metrics, outputs)
        check(program)
        parameters = _vector(task, program.spec)
        say("comparing it with autograd")
        subject = Subject(model=task.model, loss=task.loss, metrics=metrics, readers=reading)
        error = pass_gate(program, parameters, subject)
    return Captured(
        program=program,
        parameters=parameters,
        max_gradient_error=error,
        operators=_operators(program),
    )


def classes_of(task: Task) -> int | None:
    """How many classes a classification has, from the model's output; None for anything else."""
    with untouched(task.model), torch.no_grad():
        task.model.eval()
        try:
            output = task.model(*task.inputs)
        except Exception:  # the user's own code; `capture` runs it again and says what is wrong
            return None
    if isinstance(output, Tensor) and "accuracy" in resolve_metrics(task, output):
        return int(output.shape[1])
    return None


def _try(task: Task) -> tuple[dict[str, Metric], int]:
    """Run the task once as it is; returns its metrics and how many tensors the model returns."""
    task.model.train()
    try:
        output = task.model(*task.inputs)
        loss = task.loss(output, *task.targets)
        metrics = resolve_metrics(task, output)
        numbers = {name: metric(output, *task.targets) for name, metric in metrics.items()}
    except Exception as error:  # the user's own code: whatever it raises is the answer
        line = user_line(error)
        first = str(error).partition("\n")[0]
        raise TaskError(
            f"the task fails on its own example batch: {type(error).__name__}: {first}"
            + (f", at {line}." if line else "."),
            advice="loss(model(*inputs), *targets) must work in plain PyTorch first.",
        ) from error
    for name, number in {"loss": loss, **numbers}.items():
        _check_number(name, number)
    if not loss.requires_grad:
        raise TaskError("the loss does not depend on any parameter that requires a gradient.")
    leaves = pytree.tree_leaves(output)
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise TaskError("the model returns something that is not a tensor.")
    return metrics, len(leaves)


def _check_number(name: str, number: object) -> None:
    if not isinstance(number, Tensor) or number.numel() != 1 or number.dim() > 0:
        found = tuple(number.shape) if isinstance(number, Tensor) else type(number).__name__
        raise TaskError(
            f"{name} gives {found}, not a scalar tensor.",
            advice="Return one number for the batch, for instance its mean.",
        )
    if not bool(torch.isfinite(number)):
        raise TaskError(
            f"{name} is {float(number.detach())} on the example batch.",
            advice="Check the example's values and the model's first weights.",
        )


def _freeze_unreached(task: Task) -> None:
    """Parameters the loss does not reach count as frozen while we trace: their gradient is zero."""
    wanted = [p for p in task.model.parameters() if p.requires_grad]
    loss = task.loss(task.model(*task.inputs), *task.targets)
    for parameter, gradient in zip(
        wanted, torch.autograd.grad(loss, wanted, allow_unused=True), strict=True
    ):
        if gradient is None:
            parameter.requires_grad_(False)


def _program(
    task: Task,
    reading: tuple[Reader, ...],
    training: Traced,
    evaluation: Traced,
    metrics: Mapping[str, Metric],
    outputs: int,
) -> Program:
    noise = plan_noise(training)
    if plan_noise(evaluation):
        raise CaptureError(
            "the model draws random numbers in evaluation mode.",
            advice="Draw only while training: F.dropout(x, p, self.training).",
        )
    parameters = {name: p.detach() for name, p in task.model.named_parameters()}
    spec = ProgramSpec(
        parameters=tuple(
            TensorSpec(name=name, dtype="float32", shape=tuple(p.shape))
            for name, p in parameters.items()
        ),
        buffers=(),
        inputs=tuple(reader.spec for reader in reading),
        noise=noise,
        metrics=tuple(metrics),
        outputs=outputs,
        work_per_sample=work_per_sample(training.module, len(training.examples[0])),
        opset=OPSET,
        frozen=tuple(name for name, p in task.model.named_parameters() if not p.requires_grad),
    )
    with explain(task.model):
        gradient = _gradient(spec, training, parameters, noise)
        forward = _forward(spec, evaluation, parameters)
    return Program(spec=spec, gradient=gradient, forward=forward)


def _gradient(
    spec: ProgramSpec, traced: Traced, parameters: dict[str, Tensor], noise: tuple[NoiseSpec, ...]
) -> bytes:
    inputs = _inputs(spec)
    for z in noise:
        inputs.append((f"z:{z.name}", "float32", (BATCH, *z.shape) if z.per_sample else z.shape))
    outputs: list[Port] = [("loss", "float32", ())]
    outputs += [(f"g:{t.name}", t.dtype, t.shape) for t in spec.parameters]
    return to_onnx(lift(traced, parameters, noise), inputs, outputs)


def _forward(spec: ProgramSpec, traced: Traced, parameters: dict[str, Tensor]) -> bytes:
    numbers = ("loss", *(f"m:{name}" for name in spec.metrics))
    outputs: list[Port | str] = [(name, "float32", ()) for name in numbers]
    outputs += [f"y:{index}" for index in range(spec.outputs)]
    return to_onnx(lift(traced, parameters, ()), _inputs(spec), outputs)


def _inputs(spec: ProgramSpec) -> list[Port]:
    ports: list[Port] = [(f"p:{t.name}", t.dtype, t.shape) for t in spec.parameters]
    ports += [(f"x:{t.name}", t.dtype, (BATCH, *t.shape)) for t in spec.inputs]
    return ports


def _vector(task: Task, spec: ProgramSpec) -> NDArray[np.float32]:
    arrays = {name: p.detach().numpy() for name, p in task.model.named_parameters()}
    return Layout(spec.parameters).pack(arrays)


def _operators(program: Program) -> tuple[str, ...]:
    graphs = (parse(program.gradient, "gradient"), parse(program.forward, "forward"))
    return tuple(sorted({node.op for graph in graphs for node in graph.nodes}))
