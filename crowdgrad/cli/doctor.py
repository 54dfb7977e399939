"""`crowdgrad doctor`: what is in the way of lending this machine, or of hosting from it."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, whole, write_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from crowdgrad.doctor.checkup import Asked, Check
    from crowdgrad.doctor.finding import Finding
    from crowdgrad.volunteer.sandbox.examination import Examination
    from crowdgrad.volunteer.sandbox.walls import Held

TEXT = """\
Look at whatever could be in the way: versions, clock, disk, ports, the network
and how it is reached from outside, matchmaker and relays with their speed, and
the walls around strangers' models, each of which is attacked. Each finding is
a line, with what to do where something is wrong. Exits with 1 if something
keeps this machine from lending or hosting.

  crowdgrad doctor                  look at everything
  crowdgrad doctor --offline        only at this machine
  crowdgrad doctor --only walls     every wall, with what holds it
  crowdgrad doctor LINK             can that host be reached from here?
"""

ADVICE = {
    "seccomp": "It needs Linux 4.14 or later on x86-64 or aarch64; a container must allow seccomp.",
    "landlock": "It needs Linux 5.13 or later, started with landlock among its `lsm=` modules.",
    "namespaces": "An administrator can allow user namespaces: `sysctl user.max_user_namespaces`, "
    "`kernel.unprivileged_userns_clone`, `kernel.apparmor_restrict_unprivileged_userns`.",
}
"""What can be done, by the step that failed."""
MARKS = {"good": "[green]✓[/]", "warn": "[yellow]![/]", "bad": "[bold red]✗[/]",
         "skipped": "[dim]–[/]"}  # fmt: skip
WALLS_ONLY = frozenset({"walls"})


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="what is in the way of lending this machine or of hosting from it",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", nargs="?", metavar="CODE | LINK | HOST:PORT", help="look at the way to this host"
    )
    parser.add_argument("--only", metavar="CHECKS", help="make these checks only, commas between")
    parser.add_argument("--offline", action="store_true", help="look at this machine only")
    parser.add_argument("--matchmaker", metavar="URL", help="the matchmaker you would use")
    parser.add_argument(
        "--relay", action="append", metavar="ROUTE",
        help="a relay you would use; once for each (otherwise the matchmaker's)",
    )  # fmt: skip
    parser.add_argument("--port", type=whole, default=0, help="the port you would host at (any)")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where results go (runs)")
    parser.add_argument(
        "--home", metavar="DIR", help="where keys and data are kept (see `crowdgrad settings`)"
    )
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises MissingExtra where too little is installed to look at anything."""
    from crowdgrad.doctor.measuring import INSTALL, LENDING
    from crowdgrad.errors import MissingExtra

    try:
        return _run(args)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in LENDING:
            raise
        raise MissingExtra(f"{name} is missing: nothing works.", advice=INSTALL) from None


def _run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from crowdgrad.doctor.checkup import Checkup, chosen
    from crowdgrad.doctor.finding import sound
    from crowdgrad.process import run_async

    asked = _asked(args)
    quiet = args.json == "-" or asked.only == WALLS_ONLY
    console = Console(highlight=False, stderr=args.json == "-")
    board = _Board(chosen(asked))

    async def look() -> tuple[Checkup, tuple[Finding, ...]]:
        checkup = Checkup(asked)
        with nullcontext() if quiet or not console.is_terminal else board.live(console):
            return checkup, await checkup.run(board.told)

    checkup, findings = run_async(look())
    write_json(args.json, _report(findings, checkup.examination))
    if args.json != "-":
        _print(console, board, findings, checkup.examination, asked)
    return 0 if sound(findings) else 1


def _asked(args: argparse.Namespace) -> Asked:
    """Raises TargetError or SettingError."""
    from crowdgrad.doctor.checkup import Asked
    from crowdgrad.settings import load, sourced
    from crowdgrad.volunteer import target

    said = {"home": args.home, "matchmaker": args.matchmaker}
    settings = load(said)
    sources = {one.name: one.source for one in sourced(said)}
    goal = target.read(args.target) if args.target is not None else None
    linked = goal.matchmaker if goal is not None else ""
    return Asked(
        home=settings.home,
        runs=Path(args.runs),
        matchmaker=linked or settings.matchmaker,
        chosen=bool(linked) or sources["matchmaker"] != "default",
        relays=tuple(map(_relay, args.relay or ())),
        port=args.port,
        target=goal,
        offline=args.offline,
        only=frozenset(name.strip() for name in (args.only or "").split(",") if name.strip()),
    )


def _relay(text: str) -> str:
    from crowdgrad.domain.routes import relay_of
    from crowdgrad.errors import SettingError

    try:
        return str(relay_of(text))
    except ValueError as error:
        raise SettingError(
            f"--relay {text[:70]!r}: {error}.", advice="Ask whoever runs it."
        ) from None


# -- what is told ---------------------------------------------------------------------------------


def _report(findings: Sequence[Finding], walls: Examination | None) -> dict[str, object]:
    """For support: without the names of folders above our home."""
    from crowdgrad.doctor.finding import sound
    from crowdgrad.volunteer.sandbox.walls import WALLS

    report: dict[str, object] = {
        "sound": sound(findings),
        "findings": [asdict(finding) for finding in findings],
        "system": _system(walls),
    }
    if walls is not None:
        verdict = {one.wall: one for one in walls.verdict}
        report["walls"] = [
            {**asdict(verdict[wall.id]), "promise": wall.promise, "essential": wall.essential}
            for wall in WALLS
        ]
        report["attempts"] = [asdict(one) for one in walls.outcomes]
    return {name: _at_home(part) for name, part in report.items()}


def _at_home(part: object) -> object:
    if isinstance(part, str):
        return shortened(part)
    if isinstance(part, list | tuple):
        return [_at_home(one) for one in part]
    if isinstance(part, Mapping):
        return {name: _at_home(one) for name, one in part.items()}
    return part


def shortened(text: str) -> str:
    """With ~ for the home folder: its name is often its owner's."""
    try:
        home = str(Path.home())
    except RuntimeError:  # there is none
        return text
    return text.replace(home, "~") if len(home) > 1 else text


def _system(walls: Examination | None) -> dict[str, str]:
    pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    memory = f"{pages * os.sysconf('SC_PAGE_SIZE') / 1e9:.1f} GB" if pages else "unknown"
    system = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
    }
    if walls is not None:
        system["computes"] = (
            walls.libraries["error"]
            if "error" in walls.libraries
            else ", ".join(f"{name} {version}" for name, version in walls.libraries.items())
        )
    return {**system, "memory": memory, "processors": str(os.cpu_count() or 1)}


class _Board:
    """What has been found, and what is still looked at."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self._found: dict[str, Sequence[Finding]] = {}

    def told(self, check: Check, findings: Sequence[Finding]) -> None:
        self._found[check.id] = findings

    def live(self, console: Console) -> Live:
        from rich.live import Live

        return Live(self, console=console, refresh_per_second=8, transient=True)

    def __rich__(self) -> Table:
        from rich.spinner import Spinner
        from rich.table import Table

        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        for check in self._checks:
            for finding in self._found.get(check.id, ()):
                words = _plain(shortened(finding.words))
                dim = finding.state == "skipped"
                words = f"[dim]{words}[/]" if dim else words
                table.add_row(MARKS[finding.state], finding.id, words)
                if finding.advice:
                    table.add_row("", "", f"[dim]→ {_plain(shortened(finding.advice))}[/]")
            if check.id not in self._found:
                table.add_row(Spinner("dots"), check.id, f"[dim]looks at {check.looks_at}[/]")
        return table


def _print(
    console: Console,
    board: _Board,
    findings: Sequence[Finding],
    walls: Examination | None,
    asked: Asked,
) -> None:
    if asked.only != WALLS_ONLY:
        console.print(board)
        console.print()
        console.print(_summary(findings))
    if walls is None:
        return
    shaky = any(one.id == "walls" and one.state != "good" for one in findings)
    if asked.only == WALLS_ONLY or shaky:
        if asked.only != WALLS_ONLY:
            console.print()
        _print_walls(console, walls)


def _summary(findings: Sequence[Finding]) -> str:
    count = {state: sum(one.state == state for one in findings) for state in MARKS}
    things = "one thing is" if count["bad"] == 1 else f"{count['bad']} things are"
    if any(one.id == "way" for one in findings) and count["bad"]:
        return "[red]That host cannot be joined from here.[/]"
    if count["bad"]:
        return f"[red]{things.capitalize()} in the way of lending or hosting.[/]"
    if count["warn"]:
        return "[yellow]Nothing is in the way, but see above what does not work well.[/]"
    if count["skipped"]:
        return "[green]All that could be looked at is well.[/]"
    return "[green]All is well.[/]"


def _print_walls(console: Console, found: Examination) -> None:
    from crowdgrad.volunteer.sandbox.walls import WALLS

    verdict = {one.wall: one for one in found.verdict}
    broken = [wall.id for wall in WALLS if wall.essential and not verdict[wall.id].holds]
    computes = "error" not in found.libraries
    for name, value in _system(found).items():
        colour = "red" if name == "computes" and not computes else "default"
        console.print(f"{name:<11}[{colour}]{_plain(value)}[/]")
    console.print()
    _print_verdict(console, verdict)
    _print_attempts(console, found, broken, computes=computes)


def _print_verdict(console: Console, verdict: Mapping[str, Held]) -> None:
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


def _print_attempts(
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
