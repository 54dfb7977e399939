"""`crowdgrad check`: can this model travel, and what will it cost?"""

from __future__ import annotations

import argparse
from pathlib import Path

from crowdgrad.cli.output import JSON_HELP, write_json
from crowdgrad.errors import ProgramError, UserError

TEXT = """\
Capture a task as a gradient program and compare it with PyTorch's own gradients, without publishing
anything. Names a cg.Task, or a function that returns one:

  crowdgrad check model:task            task in model.py in this folder
  crowdgrad check model:task --json -   the same for a script
"""

MEASURED = ("max_gradient_error", "parameters", "bytes_per_update", "program_bytes",
            "work_per_sample", "noise_inputs")  # fmt: skip
LISTS: dict[str, list[str]] = {"operators": [], "metrics": []}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "check",
        help="can this model travel? what will it cost?",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:OBJECT", help="the task")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from crowdgrad.capture.capture import capture
    from crowdgrad.host.jobfile import load_task
    from crowdgrad.program.artifact import encode

    console = Console(stderr=True)
    try:
        task = load_task(args.target, Path.cwd())
        with console.status("Capturing") as spinner:
            captured = capture(task, None, lambda text: spinner.update(text.capitalize()))
    except (ProgramError, UserError) as error:
        nothing = dict.fromkeys(MEASURED)
        write_json(
            args.json,
            {"travels": False, "reason": str(error), "code": error.code, **nothing, **LISTS},
        )
        if args.json == "-":
            return 1
        raise
    spec = captured.program.spec
    found = {
        "travels": True,
        "reason": "the program computes the same gradients as PyTorch",
        "max_gradient_error": captured.max_gradient_error,
        "parameters": spec.size,
        "bytes_per_update": captured.bytes_per_update,
        "operators": list(captured.operators),
        "program_bytes": len(encode(captured.program)),
        "work_per_sample": spec.work_per_sample,
        "metrics": list(spec.metrics),
        "noise_inputs": len(spec.noise),
    }
    write_json(args.json, found)
    if args.json != "-":
        _print(found)
    return 0


def _print(found: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    rows = {
        "Parameters": f"{found['parameters']:,}",
        "Each update": f"{found['bytes_per_update']:,} bytes",
        "The program itself": f"{found['program_bytes']:,} bytes",
        "Work per sample": f"{found['work_per_sample']:,.0f} floating-point operations",
        "Largest gradient error": f"{found['max_gradient_error']:.1e} (relative to PyTorch)",
        "Metrics": ", ".join(found["metrics"]) or "the loss only",  # type: ignore[arg-type]
        "Operators": ", ".join(found["operators"]),  # type: ignore[arg-type]
    }
    for name, value in rows.items():
        table.add_row(f"[bold]{name}[/]", value)
    console = Console()
    console.print("[green]This model can travel:[/]", found["reason"])
    console.print(table)
