"""The torch engine on a machine whose owner has the model: loaded there, compared, then used.

The model comes from that machine's own disk, named by its owner. Before its first unit it must
compute what the published program computes, which onnxruntime runs beside it: in float32 (no TF32)
within the bound of the gate; then, where the owner wants bfloat16, the whole gradient within a
wider one. While training, TF32 is as PyTorch has it by default: on for convolutions, off for
matrix products.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch

from crowdgrad.capture.attempt import attempt
from crowdgrad.capture.compare import distance
from crowdgrad.capture.fields import draw_batch, readers
from crowdgrad.capture.gate import Gate
from crowdgrad.capture.holdings import Holdings, look
from crowdgrad.capture.loading import load_object
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.quiet import ALONE, untouched
from crowdgrad.capture.task import Task
from crowdgrad.domain.data import Field
from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import GateError, SettingError, TaskError
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector
from crowdgrad.program.engines.base import Batch, Engine, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.program.engines.torch import TorchEngine, TorchOptions
from crowdgrad.program.engines.torch_feed import pin
from crowdgrad.program.engines.torch_state import check_same

BF16_BOUND: Final = 5e-2
_BF16_SAMPLES: Final = 32
_SEED: Final = 0x74727573
_ADVICE: Final = "Use the same version of the model as the host, or work without --trusted."


def open_engine(
    program: Program,
    fields: tuple[Field, ...],
    target: str,
    folder: Path,
    options: TorchOptions,
) -> TorchEngine:
    """The engine, once it has proved itself. `folder` is where modules are looked for first.

    Raises TargetError, TaskError, SettingError or GateError.
    """
    _check_options(program.spec, options)
    with ALONE:
        return _open(program, fields, target, folder, options)


def _open(
    program: Program,
    fields: tuple[Field, ...],
    target: str,
    folder: Path,
    options: TorchOptions,
) -> TorchEngine:
    task = load_object(target, folder, Task)
    check_same(task.model, program.spec)
    holdings = look(task.model)
    state = StateLayout(program.spec).pack(holdings.arrays())
    with untouched(task.model, task.loss):
        objective = objective_of(task, holdings, fields)
    _check_same_ends(objective, program.spec)
    engine = TorchEngine(program.spec, objective, options)
    published = OnnxEngine(program, threads=os.cpu_count() or 1)
    try:
        with engine.exact():
            Gate(program.spec, state, objective.readers, published, engine).pass_through()
        if options.bf16:
            _check_bf16(program.spec, objective, state, published, engine)
    except GateError as error:
        raise GateError(
            f"{target} does not compute what the job's program does: {error.message}",
            advice=_ADVICE,
        ) from None
    return engine


def open_named(
    program: Program,
    fields: tuple[Field, ...],
    target: str,
    folder: Path,
    *,
    device: str,
    bf16: bool,
    compiled: bool,
    threads: int,
    shared: Sequence[memoryview],
) -> tuple[TorchEngine, str]:
    """The engine by what its owner wrote, and what to call it.

    `device` may be `auto`. `shared` is memory that states and updates will lie in; a GPU reads and
    writes it faster once it is pinned. Raises what `open_engine` does.
    """
    options = TorchOptions(device=pick_device(device), bf16=bf16, compile=compiled)
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.backends.cudnn.benchmark = True  # batches have one size, or two
    else:
        torch.set_num_threads(threads)
    engine = open_engine(program, fields, target, folder, options)
    for memory in shared if on_gpu else ():
        pin(memory)
    return engine, label(options)


def pick_device(wanted: str) -> str:
    """The device to use: `auto` is a GPU where there is one. Raises SettingError."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise SettingError(
            f"PyTorch {torch.__version__} finds no CUDA device here.",
            advice="Leave out --device cuda, or install a PyTorch made for this GPU.",
        )
    return wanted


def label(options: TorchOptions) -> str:
    """The engine in words, for people: PyTorch on NVIDIA H200, bf16."""
    on_gpu = torch.device(options.device).type == "cuda"
    where = torch.cuda.get_device_name(options.device) if on_gpu else "the CPU"
    extras = [word for word, on in (("bf16", options.bf16), ("compiled", options.compile)) if on]
    return ", ".join([f"PyTorch on {where}", *extras])


def _check_options(spec: ProgramSpec, options: TorchOptions) -> None:
    if options.compile and (spec.noise or spec.forward_noise):
        raise SettingError(
            "this job's program takes random numbers as inputs, which a compiled model would draw "
            "by itself.",
            advice="Leave out --compile.",
        )


def objective_of(task: Task, holdings: Holdings, fields: tuple[Field, ...]) -> Objective:
    """What the task computes of stored records. Raises TaskError, or GateError for other fields."""
    tried = attempt(task, holdings)
    try:
        reading = readers(task, fields, weighted=tried.weighted)
    except TaskError as error:  # said for hosts, who can change either side
        raise GateError(
            f"the trusted model is not the job's: {error.message}", advice=_ADVICE
        ) from None
    return Objective(
        model=task.model,
        loss=task.loss,
        readers=reading,
        metrics=tried.metrics,
        weighted=tried.weighted,
        groups=tried.groups,
    )


def _check_same_ends(objective: Objective, spec: ProgramSpec) -> None:
    """Raises GateError where what goes in, or is watched, is something else."""
    metrics = tuple(m.spec(name) for name, m in objective.metric_specs().items())
    for what, ours, theirs in (
        ("inputs", tuple(reader.spec for reader in objective.readers), spec.inputs),
        ("metrics", metrics, spec.metrics),
    ):
        if ours != theirs:
            found, wanted = (
                ", ".join(one.name for one in some) or "none" for some in (ours, theirs)
            )
            raise GateError(
                f"the trusted model is not the job's: its {what} are {found}; the program has "
                f"{wanted}" + (", of other kinds." if found == wanted else "."),
                advice=_ADVICE,
            )


def _check_bf16(
    spec: ProgramSpec, objective: Objective, state: Vector, published: Engine, engine: Engine
) -> None:
    """Loss and whole gradient: single tensors, and metrics that jump, say little at this width."""
    generator = torch.Generator().manual_seed(_SEED)
    samples = spec.fixed_batch or _BF16_SAMPLES
    drawn = [column.numpy() for column in draw_batch(objective.readers, samples, generator)]
    unit = Unit(id=UnitId(0), kind="train", epoch=1, shard=0, first_batch=0, batches=1)
    work = UnitWork(
        unit=unit,
        local=LocalSteps(batch_size=samples),
        seed=_SEED,
        batches=[Batch(number=0, fields=tuple(drawn))],
    )
    results: list[tuple[float, Vector]] = []
    for one in (published, engine):
        update: Vector = np.zeros(spec.update_words, np.float32)
        results.append((one.train(work, state, update).loss, update[: spec.size]))
    (wanted_loss, wanted), (loss, gradient) = results
    for what, error in (
        ("loss", distance(loss, wanted_loss, 1e-6)),
        ("gradient", distance(gradient, wanted, 1e-6)),
    ):
        if error > BF16_BOUND:
            raise GateError(
                f"in bfloat16 the {what} is off by {error:.1e} (relative L2; at most "
                f"{BF16_BOUND:.0e} is allowed)."
            )
