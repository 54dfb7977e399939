"""`crowdgrad check`: can this model travel, and what will it cost?"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdgrad.cli.output import JSON_HELP, add_common, write_json
from crowdgrad.errors import DataError, ProgramError, TargetError, UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.status import Status

    from crowdgrad.capture.capture import Captured
    from crowdgrad.capture.speed import Speed
    from crowdgrad.capture.task import Task
    from crowdgrad.domain.data import Field
    from crowdgrad.host.job import JobPlan

TEXT = """\
Capture a task as a gradient program and compare it with PyTorch's own
gradients, without publishing anything. Names a cg.Task or a cg.Job, a function
that returns one, or a job file; a job is checked with its own data and batch
size:

  crowdgrad check model:task            task in model.py in this folder
  crowdgrad check job.toml              the task of a job, on its data
  crowdgrad check model:task --json -   the same for a script
"""

SIZES = (1, 32, 256)
"""Batch sizes whose memory is told."""
USUAL_BATCH = 32
SECONDS = 2.0
MEASURED = ("max_gradient_error", "parameters", "frozen", "buffers", "bytes_per_update",
            "program_bytes", "work_per_sample", "noise_inputs", "smallest_batch", "fixed_batch",
            "sample_weights", "activation_bytes", "conv_form", "conv_times_ms",
            "speed", "estimate")  # fmt: skip
LISTS: dict[str, list[str]] = {"operators": [], "metrics": [], "notes": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is checked, and what is known of the data it will see."""

    task: Task
    batch_size: int | None = None
    fields: tuple[Field, ...] | None = None
    records: list[NDArray[Any]] | None = None
    plan: JobPlan | None = None


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "check",
        help="can this model travel? what will it cost?",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:OBJECT", help="the task or job, or a job file")
    parser.add_argument("--no-speed", action="store_true", help="do not measure how fast it is")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    try:
        # The stream itself: capture takes `sys.stderr` away from the exporters meanwhile.
        with Console(file=sys.stderr).status("Reading the task") as spinner:
            found = _examine(args, spinner)
    except (ProgramError, UserError, DataError) as error:
        nothing = dict.fromkeys(MEASURED)
        write_json(
            args.json,
            {"travels": False, "reason": str(error), "code": error.code, **nothing, **LISTS},
        )
        if args.json == "-":
            return 1
        raise
    write_json(args.json, found)
    if args.json != "-":
        _print(found)
    return 0


def _examine(args: argparse.Namespace, spinner: Status) -> dict[str, Any]:
    from crowdgrad.capture.collecting import uncollected

    with uncollected():  # PyTorch, for the first time
        from crowdgrad.capture.capture import capture
        from crowdgrad.capture.speed import measure

    def say(text: str) -> None:
        spinner.update(text[:1].upper() + text[1:])

    subject = _subject(args.target, args.home, spinner)
    captured = capture(
        subject.task, subject.fields, say, subject.records, batch_size=subject.batch_size
    )
    speed = None
    if not args.no_speed:
        say(f"timing it against PyTorch, {SECONDS:.0f} seconds")
        speed = measure(
            subject.task,
            captured,
            batch=captured.program.spec.fixed_batch or subject.batch_size or USUAL_BATCH,
            seconds=SECONDS,
            fields=subject.fields,
            records=subject.records,
        )
    found = _findings(captured, speed)
    found["estimate"] = None
    if subject.plan is not None:
        from crowdgrad.host.estimating import of_plan

        say("estimating the whole training")
        found["estimate"] = asdict(of_plan(subject.plan, captured, probe=not args.no_speed))
    return found


def _subject(target: str, home: str | None, spinner: Status | None = None) -> Subject:
    from crowdgrad.capture.loading import load_object
    from crowdgrad.capture.pretrained import load_weights
    from crowdgrad.capture.task import Task
    from crowdgrad.cli.host import read_plan
    from crowdgrad.host.folder_data import fields_of, some_of
    from crowdgrad.host.job import GATE_RECORDS, JobPlan
    from crowdgrad.settings import load

    found: object
    if target.endswith(".toml"):
        found = read_plan(target, load({"home": home}).home / "data", spinner)
    else:
        found = load_object(target, Path.cwd(), object)
    if isinstance(found, Task):
        return Subject(task=found)
    if not isinstance(found, JobPlan):
        raise TargetError(
            f"{target} is a {type(found).__name__}, not a cg.Task or cg.Job.",
            advice="Name one, or a function that returns one.",
        )
    if found.weights:
        load_weights(found.task.model, Path(found.weights))
    return Subject(
        task=found.task,
        batch_size=found.recipe.local().batch_size,
        fields=fields_of(found.data),
        records=list(some_of(found.data, GATE_RECORDS)),
        plan=found,
    )


def _findings(captured: Captured, speed: Speed | None) -> dict[str, Any]:
    from crowdgrad.program.artifact import encode

    spec = captured.program.spec
    sizes = (spec.fixed_batch,) if spec.fixed_batch else SIZES
    return {
        "travels": True,
        "reason": "the program computes the same gradients as PyTorch",
        "max_gradient_error": captured.max_gradient_error,
        "parameters": spec.size,
        "frozen": sum(t.elements for t in spec.parameters if t.name in spec.frozen),
        "buffers": len(spec.buffers) + len(spec.fixed),
        "bytes_per_update": 4 * spec.update_words,
        "operators": list(captured.operators),
        "program_bytes": len(encode(captured.program)),
        "work_per_sample": spec.work_per_sample,
        "metrics": [metric.name for metric in spec.metrics],
        "noise_inputs": len(spec.noise),
        "smallest_batch": spec.fixed_batch or spec.smallest_batch,
        "fixed_batch": spec.fixed_batch or None,
        "sample_weights": spec.weighted,
        "activation_bytes": {str(n): captured.memory.at(n) for n in sizes},
        "conv_form": captured.conv_form,
        "conv_times_ms": dict(captured.conv_times_ms) or None,
        "speed": _speed(speed),
        "notes": list(captured.notes),
    }


def _speed(speed: Speed | None) -> dict[str, float] | None:
    if speed is None:
        return None
    return {
        "batch": speed.batch,
        "program_ms": speed.program_ms,
        "torch_ms": speed.torch_ms,
        "ratio": speed.ratio,
        "samples_per_s": speed.samples_per_s,
    }


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print("[bold green]This model can travel[/]:", found["reason"])
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(found).items():
        table.add_row(name, Text(value))
    console.print(table)
    for note in found["notes"]:
        console.print(f"Note: {note}", markup=False)


def _rows(found: dict[str, Any]) -> dict[str, str]:
    frozen = f", {found['frozen']:,} of them frozen" if found["frozen"] else ""
    buffers = f", and {found['buffers']} buffers" if found["buffers"] else ""
    smallest, only = found["smallest_batch"], found["fixed_batch"]
    memory = "   ".join(f"{n}: {_bytes(b)}" for n, b in found["activation_bytes"].items())
    rows = {
        "Parameters": f"{found['parameters']:,}{frozen}{buffers}",
        "Each update": _bytes(found["bytes_per_update"]),
        "The program": _bytes(found["program_bytes"]),
        "Work per sample": f"{_short(found['work_per_sample'])}FLOP",
        "Memory by batch": memory,
        "Batches": f"of {only} alone" if only else f"of {smallest} or more",
        "Gradient error": f"{found['max_gradient_error']:.1e} at most, relative to PyTorch",
        "Speed here": _spell_speed(found["speed"]),
        "Training here": _spell_estimate(found.get("estimate")),
        "Convolutions": _spell_form(found["conv_form"], found["conv_times_ms"]),
        "Random inputs": str(found["noise_inputs"] or ""),
        "Sample weights": "the loss gives one value per sample" * found["sample_weights"],
        "Metrics": ", ".join(found["metrics"]) or "the loss only",
        "Operators": ", ".join(found["operators"]),
    }
    return {name: value for name, value in rows.items() if value}


def _spell_speed(speed: dict[str, float] | None) -> str:
    if speed is None:
        return ""
    return (
        f"{speed['ratio']:.2f} times PyTorch's ({speed['program_ms']:.3g} ms against "
        f"{speed['torch_ms']:.3g} ms), {speed['samples_per_s']:,.0f} samples/s; one thread, "
        f"batches of {speed['batch']}"
    )


def _spell_estimate(estimate: dict[str, Any] | None) -> str:
    if estimate is None or estimate["total_s"] is None:
        return ""
    return (
        f"about {_duration(estimate['total_s'])} alone on one thread: {estimate['epochs']} epochs "
        f"of {estimate['steps_per_epoch']:,} steps, {_duration(estimate['epoch_s'])} each"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _spell_form(form: str | None, times_ms: dict[str, float] | None) -> str:
    if form is None:
        return ""
    timed = ", ".join(f"{name} {ms:.3g} ms" for name, ms in (times_ms or {}).items())
    return f"gradients as {form}, the faster here" + (f" ({timed})" if timed else "")


def _bytes(count: float) -> str:
    return f"{_short(count)}B" if count >= 1000 else f"{count:.0f} bytes"


def _short(value: float) -> str:
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {letter}"
    return f"{value:.0f} "
