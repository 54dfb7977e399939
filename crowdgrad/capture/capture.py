"""The whole way from a task to a program: trace → rewrite → ONNX → check → gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor

from crowdgrad.capture.assemble import Graphs, make_spec, write_forward, write_gradient
from crowdgrad.capture.attempt import attempt, freeze_unreached, smallest_batch
from crowdgrad.capture.collecting import uncollected
from crowdgrad.capture.cost import Memory, activation_memory
from crowdgrad.capture.fallback import note, trace_fixed_evaluation, trace_fixed_training
from crowdgrad.capture.fields import Records, draw_batch, readers
from crowdgrad.capture.forms import FORMS, Choice, conv_form, pick
from crowdgrad.capture.gate import Gate
from crowdgrad.capture.holdings import Holdings, look
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.quiet import ALONE, plain_attention, untouched
from crowdgrad.capture.reference import Reference
from crowdgrad.capture.task import Task, resolve_metrics
from crowdgrad.capture.trace import Batches, trace_evaluation, trace_training
from crowdgrad.domain.data import Field
from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.errors import CaptureError
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.check import check
from crowdgrad.program.engines.base import Batch
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.program.graph import parse

Progress = Callable[[str], None]
_TIMED: Final = 16
"""The batch size at which forms are timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A program that passed the gate, and the state to start from."""

    program: Program
    state: Vector
    """Parameters, then buffers, as `numerics.layout.StateLayout` has them."""
    names: dict[str, str]
    """Each key of the module's state dict → the program's name of that tensor."""
    max_gradient_error: float
    operators: tuple[str, ...]
    memory: Memory
    """An estimate of what a gradient step needs beside the state, by batch size."""
    notes: tuple[str, ...] = ()
    """What a host should know, in plain words."""
    conv_form: str | None = None
    """How the gradients of convolutions are computed; None where there are none."""
    conv_times_ms: dict[str, float] = field(default_factory=dict)
    """What a step took in each form."""

    @property
    def bytes_per_update(self) -> int:
        return 4 * self.program.spec.update_words


def capture(
    task: Task,
    fields: tuple[Field, ...] | None = None,
    progress: Progress | None = None,
    records: Records | None = None,
    batch_size: int | None = None,
) -> Captured:
    """The task as a program; its module is left as it was.

    `fields` are the storage types of the record fields, inputs then targets; without them records
    look like the example tensors. `records` are some of the real ones, for the gate to compare on:
    an example of zeros would show it next to nothing. `batch_size` is what a program gets that
    works for one size only; without it, the example's. Raises TaskError, CaptureError, GateError or
    ProgramRefused.
    """
    say = progress or (lambda _: None)
    holdings = look(task.model)
    with ALONE, uncollected(), untouched(task.model, task.loss), plain_attention():
        beginning = holdings.arrays()  # before anything runs: running changes buffers
        tried = attempt(task, holdings)
        objective = Objective(
            model=task.model,
            loss=task.loss,
            readers=readers(task, fields, records, weighted=tried.weighted),
            metrics=tried.metrics,
            weighted=tried.weighted,
            groups=tried.groups,
        )
        freeze_unreached(objective, holdings)
        say("following the model")
        graphs, notes = _follow(objective, holdings, batch_size)
        spec = make_spec(objective, holdings, graphs, tried.outputs)
        say("writing the gradient program")
        program = _write(spec, objective, holdings, graphs, FORMS[0])
        state = StateLayout(spec).pack(beginning)
        choice: Choice | None = None
        if graphs.convolves:
            say("timing both ways to differentiate its convolutions")
            program, choice = _faster(program, objective, holdings, graphs, state)
        say("comparing it with autograd")
        engine, reference = OnnxEngine(program), Reference(objective, holdings, spec)
        error = Gate(spec, state, objective.readers, engine, reference).pass_through()
    return Captured(
        program=program,
        state=state,
        names=holdings.kept,
        max_gradient_error=error,
        operators=_operators(program),
        memory=activation_memory(graphs.training),
        notes=notes,
        conv_form=choice.name if choice else None,
        conv_times_ms=choice.times_ms if choice else {},
    )


def classes_of(task: Task) -> int | None:
    """How many classes a classification has, from the model's output; None for anything else."""
    with ALONE, untouched(task.model, task.loss), torch.no_grad():
        task.model.eval()
        try:
            output = task.model(*task.inputs)
        except Exception:  # the user's own code; `capture` runs it again and says what is wrong
            return None
    if not isinstance(output, Tensor) or output.dim() != 2 or output.shape[1] < 2:
        return None
    return int(output.shape[1]) if "accuracy" in resolve_metrics(task, output) else None


def _follow(
    objective: Objective, holdings: Holdings, batch_size: int | None
) -> tuple[Graphs, tuple[str, ...]]:
    """The graphs for any batch size or, where that fails, for one, with a note that says so."""
    try:
        batches = Batches(smallest=smallest_batch(objective))
        training = trace_training(objective, holdings, batches)
        evaluation = trace_evaluation(objective, holdings, batches)
        return Graphs(training=training, evaluation=evaluation), ()
    except CaptureError as first:
        batches = Batches(fixed=batch_size or len(objective.readers[0].example))
        try:
            training = trace_fixed_training(objective, holdings, batches)
            evaluation = trace_fixed_evaluation(objective, holdings, batches)
        except CaptureError:
            raise first from None
        return (
            Graphs(training=training, evaluation=evaluation),
            (note(objective, batches.fixed),),
        )


def _write(
    spec: ProgramSpec, objective: Objective, holdings: Holdings, graphs: Graphs, form: str
) -> Program:
    with conv_form(form):
        forward = write_forward(spec, objective, holdings, graphs)
        gradient = write_gradient(spec, objective, holdings, graphs)
    program = Program(spec=spec, gradient=gradient, forward=forward)
    check(program)
    return program


def _faster(
    program: Program,
    objective: Objective,
    holdings: Holdings,
    graphs: Graphs,
    state: Vector,
) -> tuple[Program, Choice]:
    """The program in the form of convolution gradients that is faster on this machine."""
    written = {FORMS[0]: program}
    for form in FORMS[1:]:
        with conv_form(form):
            gradient = write_gradient(program.spec, objective, holdings, graphs)
        written[form] = replace(program, gradient=gradient)
        check(written[form])
    samples = program.spec.fixed_batch or max(_TIMED, program.spec.smallest_batch)
    generator = torch.Generator().manual_seed(0)
    columns = [column.numpy() for column in draw_batch(objective.readers, samples, generator)]
    choice = pick(written, state, Batch(number=0, fields=tuple(columns)))
    return written[choice.name], choice


def _operators(program: Program) -> tuple[str, ...]:
    graphs = (parse(program.gradient, "gradient"), parse(program.forward, "forward"))
    return tuple(sorted({node.op for graph in graphs for node in graph.nodes}))
