"""`crowdgrad doctor`: which walls hold on this machine, found out by attacking them."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.volunteer.sandbox.examination import Examination
    from crowdgrad.volunteer.sandbox.walls import Held

TEXT = """\
Before you lend this machine: does each wall around a stranger's model hold
here? A process goes behind the walls exactly as a trainer does and then tries
each forbidden thing. Exits with 1 if one of the essential walls (network,
files, programs, processes) does not hold, or nothing can compute.
"""

ADVICE = {
    "seccomp": "It needs Linux 4.14 or later on x86-64 or aarch64; a container must allow seccomp.",
    "landlock": "It needs Linux 5.13 or later, started with landlock among its `lsm=` modules.",
    "namespaces": "An administrator can allow user namespaces: `sysctl user.max_user_namespaces`, "
    "`kernel.unprivileged_userns_clone`, `kernel.apparmor_restrict_unprivileged_userns`.",
}
"""What can be done, by the step that failed."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="try every wall around strangers' models on this machine",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from crowdgrad.volunteer.sandbox.examination import examine
    from crowdgrad.volunteer.sandbox.walls import WALLS

    found = examine()
    system = _system(found)
    verdict = {one.wall: one for one in found.verdict}
    broken = [wall.id for wall in WALLS if wall.essential and not verdict[wall.id].holds]
    computes = "error" not in found.libraries
    sound = computes and not broken
    rows = [
        {**asdict(verdict[wall.id]), "promise": wall.promise, "essential": wall.essential}
        for wall in WALLS
    ]
    attempts = [asdict(one) for one in found.outcomes]
    write_json(args.json, {"sound": sound, "system": system, "walls": rows, "attempts": attempts})
    if args.json != "-":
        console = Console(highlight=False)
        _print_system(console, system, computes=computes)
        _print_walls(console, verdict)
        _print_summary(console, found, broken, computes=computes)
    return 0 if sound else 1


def _system(found: Examination) -> dict[str, str]:
    pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    memory = f"{pages * os.sysconf('SC_PAGE_SIZE') / 1e9:.1f} GB" if pages else "unknown"
    computes = (
        found.libraries["error"]
        if "error" in found.libraries
        else ", ".join(f"{name} {version}" for name, version in found.libraries.items())
    )
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "computes": computes,
        "memory": memory,
        "processors": str(os.cpu_count() or 1),
    }


def _print_system(console: Console, system: dict[str, str], *, computes: bool) -> None:
    for name, value in system.items():
        colour = "red" if name == "computes" and not computes else "default"
        console.print(f"{name:<11}[{colour}]{_plain(value)}[/]")
    console.print()


def _print_walls(console: Console, verdict: Mapping[str, Held]) -> None:
    from rich.table import Table

    from crowdgrad.volunteer.sandbox.walls import WALLS

    table = Table.grid(padding=(0, 2, 0, 0))
    for wall in WALLS:
        held = verdict[wall.id]
        mark = "[green]holds[/]" if held.holds else "[bold red]FAILS[/]"
        table.add_row(wall.id, mark, wall.promise)
        told = [held.how, *(text for name, text in ADVICE.items() if f"{name}: " in held.how)]
        table.add_row("", "", f"[dim]{_plain(' '.join(told))}[/]")
    console.print(table)


def _print_summary(
    console: Console, found: Examination, broken: list[str], *, computes: bool
) -> None:
    stopped = sum(one.stopped for one in found.outcomes)
    console.print(f"\n{stopped} of {len(found.outcomes)} attempts were stopped.")
    for one in found.outcomes:
        if not one.stopped:
            console.print(f"[red]not stopped[/]: {one.words} ({_plain(one.how)})")
    if not computes:
        console.print("[red]onnxruntime cannot be loaded behind the walls: no job can run here.[/]")
    if broken:
        console.print(
            f"[red]Essential walls that do not hold: {', '.join(broken)}.[/] "
            "Lend this machine only to hosts you know."
        )
    elif computes:
        console.print("[green]A stranger's model can be let in.[/]")


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
