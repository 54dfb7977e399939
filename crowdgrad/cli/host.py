"""`crowdgrad host`: train your model with whoever comes to help."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, add_common, whole, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.data.dataset import DataSet
    from crowdgrad.host.job import JobPlan, Prepared
    from crowdgrad.host.serve import Here, Outcome
    from crowdgrad.host.status import Status
    from crowdgrad.settings import Settings

TEXT = """\
Host a job: capture the model, listen for volunteers, train, and leave the
result in runs/<id>/. This machine's own worker is the first volunteer, so a
job trains even when nobody comes. Volunteers can read and keep the data they
train on: you are asked before it is published for the first time.

  crowdgrad host job.toml                      as the job file says
  crowdgrad host model:job                     a cg.Job in model.py
  crowdgrad host job.toml --matchmaker URL     let volunteers find it
  crowdgrad host job.toml --continue RUN       go on where an earlier run ended
  crowdgrad host job.toml --host 0.0.0.0 --port 8701
                          let others join: crowdgrad work HOST:8701

A job file:
  title = "Handwritten digits"
  task = "model:task"        # a cg.Task in model.py beside this file
  data = "mnist"             # from the catalogue, or an .npz file
  [recipe]
  name = "async_sgd"
  lr = 0.1
  [stop]
  epochs = 10
"""
PLAIN_EVERY_S = 2.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "host",
        help="train your model with whoever comes to help",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="JOB", help="a job file, or module:object")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (this machine)")
    parser.add_argument("--port", type=int, default=0, help="port for volunteers (any free one)")
    parser.add_argument("--advertise", metavar="HOST", help="address to tell others (the same)")
    parser.add_argument("--http-port", type=int, default=0, help="port of the HTTP API")
    parser.add_argument("--matchmaker", metavar="URL", help="publish the job there")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where results go (runs)")
    parser.add_argument(
        "--continue", metavar="RUN", dest="earlier",
        help="start from this run's parameters, with its splits: its folder or id",
    )  # fmt: skip
    parser.add_argument(
        "--helpers", type=whole, default=0, help="further local volunteers to start"
    )
    parser.add_argument(
        "--yes", action="store_true", help="every volunteer may read and keep the data: ask nobody"
    )
    parser.add_argument("--plain", action="store_true", help="lines for a log, no live display")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.add_argument(
        "--announce", metavar="FILE", help="write address, API and folder as JSON once it runs"
    )
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from crowdgrad.host.job import prepare
    from crowdgrad.process import run_async
    from crowdgrad.settings import load

    settings = load({"home": args.home})
    console = Console(file=sys.stderr if args.json == "-" else None)
    with console.status("Reading the job"):
        plan = _plan(args, settings.home / "data")
    _agree_to_publish(args, plan.data, settings.home, console)
    with console.status("Looking at the model") as spinner:
        prepared = prepare(plan, lambda text: spinner.update(text[:1].upper() + text[1:]))
    _introduce(console, prepared)
    outcome = run_async(_serve(args, prepared, settings, console))
    _finish(args, outcome, console)
    return 0 if outcome.state == "finished" else 1


def _plan(args: argparse.Namespace, cache: Path) -> JobPlan:
    from crowdgrad.host.earlier import find_run

    if args.earlier is None:
        return read_plan(args.job, cache)
    earlier = find_run(args.earlier, Path(args.runs))  # before anything slow
    return dataclasses.replace(read_plan(args.job, cache), continue_from=earlier, weights=None)


def read_plan(job: str, cache: Path) -> JobPlan:
    """The job that a file or `module:object` names."""
    from crowdgrad.capture.loading import load_object
    from crowdgrad.cli.data import shown_progress
    from crowdgrad.host.job import JobPlan
    from crowdgrad.host.jobfile import read

    if job.endswith(".toml") or ":" not in job:
        with shown_progress() as progress:
            return read(Path(job), cache=cache, progress=progress)
    return load_object(job, Path.cwd(), JobPlan)


def _agree_to_publish(
    args: argparse.Namespace, data: DataSet, home: Path, console: Console
) -> None:
    """Once for each data set that others can reach. Raises NotAgreed."""
    from crowdgrad.cli.ask import can_ask, yes_or_no
    from crowdgrad.errors import CrowdgradError, NotAgreed
    from crowdgrad.host.publishing import Published, name_of, open_to_others, warning

    if args.yes or not open_to_others(args.host, args.advertise, args.matchmaker):
        return
    published, name = Published(home), name_of(data)
    if name in published:
        return
    for line in warning(data):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not can_ask(console) or args.tied:
        raise NotAgreed(
            f"Nobody has agreed to publish “{data.title}” yet.",
            advice="Say --yes if every volunteer may read and keep this data.",
        )
    if not yes_or_no(console, "Publish it?"):
        raise NotAgreed(f"“{data.title}” is not published.", advice="Train here: leave out "
                        "--matchmaker, --host and --advertise.")  # fmt: skip
    try:
        published.add(name, data.title)
    except CrowdgradError as error:  # then the question comes again
        console.print(str(error), highlight=False, markup=False)


def _introduce(console: Console, prepared: Prepared) -> None:
    """What should be known before it starts."""
    if prepared.note:
        console.print(f"Data: {prepared.manifest.title} ({prepared.note})", highlight=False)
    if prepared.earlier is not None:
        console.print(f"Goes on from {prepared.earlier.id}", highlight=False)
    for note in prepared.notes:
        console.print(f"Note: {note}", highlight=False, markup=False)


async def _serve(
    args: argparse.Namespace, prepared: Prepared, settings: Settings, console: Console
) -> Outcome:
    from crowdgrad.host.serve import Options, Run
    from crowdgrad.process import stop_requests

    options = Options(
        runs=Path(args.runs),
        host=args.host,
        port=args.port,
        advertise=args.advertise,
        http_port=args.http_port,
        matchmaker=args.matchmaker,
        helpers=args.helpers,
    )

    def started(here: Here) -> None:
        _greet(console, here, args.matchmaker)
        if args.announce:
            write_json(args.announce, {"address": here.address, "url": here.url,
                                       "folder": str(here.folder), "code": here.code,
                                       "key": here.key})  # fmt: skip

    with stop_requests() as stop:
        here = Run(prepared, options, settings)
        display, watch = _display(args, console)
        with display:
            return await here.to_the_end(stop, started=started, watch=watch)


def _greet(console: Console, here: Here, matchmaker: str | None) -> None:
    console.print("Others can join with:")
    console.print(f"  [bold]crowdgrad work {here.address}[/]", highlight=False)
    if here.code:
        console.print(
            f"  [bold]crowdgrad work {here.code}[/] --matchmaker {matchmaker}", highlight=False
        )
    console.print(f"They are shown your key's fingerprint: {here.key}", highlight=False)
    console.print(f"Status: {here.url}/status", soft_wrap=True)
    console.print(f"Results: {here.folder}", soft_wrap=True)


def _display(
    args: argparse.Namespace, console: Console
) -> tuple[AbstractContextManager[object], Callable[[Status], None]]:
    if args.plain or not console.is_terminal:
        return nullcontext(), _lines(console)
    from rich.live import Live

    from crowdgrad.cli.display import View

    view = View()
    live = Live(console=console, refresh_per_second=5, transient=True)
    return live, lambda status: live.update(view.render(status))


def _lines(console: Console) -> Callable[[Status], None]:
    from crowdgrad.cli.display import plain

    loop, last = asyncio.get_running_loop(), -PLAIN_EVERY_S

    def watch(status: Status) -> None:
        nonlocal last
        if loop.time() - last >= PLAIN_EVERY_S:
            last = loop.time()
            print(plain(status), file=console.file, flush=True)

    return watch


def _finish(args: argparse.Namespace, outcome: Outcome, console: Console) -> None:
    from crowdgrad.cli.display import summary
    from crowdgrad.host.status import as_json

    summary(console, outcome.status, str(outcome.folder))
    write_json(args.json, {**json.loads(as_json(outcome.status)), "run": str(outcome.folder)})
    sys.stdout.flush()
