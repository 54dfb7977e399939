"""How fast the onnxruntime engine computes gradients, against PyTorch's eager mode.

MODEL_vs_torch   time of a gradient step through the engine, by torch eager's; both on one thread.
                 The engine draws the noise of its dropout, runs forward and backward and writes
                 loss, gradients and buffers into the update; torch clears the gradients, runs
                 forward (dropping out by its own generator) and backward
MODEL_ms         the engine's step in milliseconds, here
capture_MODEL_s  from the module to a published program: trace, rewrite, export, gate, and for
                 convolutions both forms of their gradient
boundary_us      handing a unit to the trainer process and hearing back, less the computing

The two alternate in short windows, and steps are timed in seconds of the processor, not of the
clock: on a machine with other work the clock measures that work. `_models` has the sizes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from _boundary import boundary_us
from _models import MODELS, Batch, resnet18
from _report import Report, arguments

import crowdgrad as cg
from crowdgrad.capture.capture import Captured, capture
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.program.engines.base import Batch as EngineBatch
from crowdgrad.program.engines.base import UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine

Step = Callable[[], object]


def captured(report: Report, name: str, task: cg.Task) -> Captured:
    def say(what: str) -> None:
        print(f"{name}: {what}", file=sys.stderr)

    began = time.perf_counter()
    found = capture(task, progress=say)
    report.add(f"capture_{name}_s", [time.perf_counter() - began])
    return found


def engine_step(found: Captured, batch: Batch) -> Step:
    engine = OnnxEngine(found.program, threads=1)
    fields = tuple(column.numpy() for column in batch)
    work = UnitWork(
        unit=Unit(id=UnitId(1), kind="train", epoch=0, shard=0, first_batch=0, batches=1),
        local=LocalSteps(batch_size=len(fields[0])),
        seed=0,
        batches=[EngineBatch(number=0, fields=fields)],
    )
    update = np.empty(found.program.spec.update_words, np.float32)
    return lambda: engine.train(work, found.state, update)


def torch_step(task: cg.Task, batch: Batch) -> Step:
    model, (x, y) = task.model.train(), batch

    def step() -> None:
        model.zero_grad()
        task.loss(model(x), y).backward()

    return step


def seconds(step: Step, steps: int) -> float:
    """Of the processor, for one step, in a window."""
    began = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - began) / steps


def compare(report: Report, name: str, ours: Step, theirs: Step, windows: int) -> None:
    seconds(ours, 5), seconds(theirs, 5)
    steps = max(3, round(0.1 / seconds(theirs, 5)))
    pairs = [(seconds(ours, steps), seconds(theirs, steps)) for _ in range(windows)]
    report.add(f"{name}_vs_torch", [one / other for one, other in pairs])
    report.add(f"{name}_ms", [1e3 * one for one, _ in pairs])


def main() -> None:
    args = arguments(__doc__)
    report = Report("engines", args.quick)
    torch.set_num_threads(1)
    # First: an agent is small, and this process will have captured seven models in the end.
    report.add("boundary_us", boundary_us(5 if args.quick else 25))
    for name, make in MODELS.items():
        torch.manual_seed(0)
        task, batch = make()
        found = captured(report, name, task)
        ours, theirs = engine_step(found, batch), torch_step(task, batch)
        compare(report, name, ours, theirs, 9 if args.quick else 41)
    captured(report, "resnet18", resnet18()[0])
    report.write(args.json)


if __name__ == "__main__":
    main()
