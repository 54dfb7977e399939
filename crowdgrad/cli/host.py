"""`crowdgrad host`: train your model with whoever comes to help."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.events import Lines, check_stdout
from crowdgrad.cli.host_arguments import add_arguments, options_of
from crowdgrad.cli.host_display import announce, display, greet, introduce
from crowdgrad.cli.host_publishing import agree_to_publish, is_open, note_agreement
from crowdgrad.cli.output import add_common, write_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status as Spinner

    from crowdgrad.host.job import JobPlan, Prepared
    from crowdgrad.host.keeping.resume import GoingOn
    from crowdgrad.host.options import Here, Options, Outcome
    from crowdgrad.settings import Settings

TEXT = """\
Host a job: capture the model, listen for volunteers, train, and leave the
result in runs/<id>/. This machine's own worker is the first volunteer, so a
job trains even when nobody comes. Volunteers can read and keep the data they
train on: you are asked before it is published for the first time.

  crowdgrad host job.toml                      with whoever is on your network
  crowdgrad host job.toml --host 127.0.0.1     on this machine only
  crowdgrad host model:job                     a cg.Job in model.py
  crowdgrad host job.toml --matchmaker URL     let volunteers find it
  crowdgrad host job.toml --continue RUN       start from that run's result
  crowdgrad host --resume RUN                  go on with a run whose host died
  crowdgrad host --resume RUN --epochs 20      train a finished run for longer
  crowdgrad host job.toml --relay HOST:PORT    be called through a relay

Behind a router: it finds out how others can dial it, asks the router for a
port, or uses a relay, and says so. What leaves this machine is encrypted.

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
OPENING = "Finding out how others can reach this machine"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "host",
        help="train your model with whoever comes to help",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from crowdgrad.process import can_supervise, supervise

    _check(args)
    if args.no_supervise or not args.as_program or not can_supervise():
        return _host(args)
    return supervise(lambda say, last: _host(args, say, last))


def _check(args: argparse.Namespace) -> None:
    from crowdgrad.errors import TargetError

    check_stdout(args.events, args.json)
    if (args.job is None) == (args.resume is None):
        raise TargetError(
            "What is to be trained?", advice="Give a job file, or --resume RUN, and not both."
        )
    if args.resume is None and args.epochs is not None:
        raise TargetError(
            "--epochs is for --resume.", advice="Write epochs into [stop] of the job file."
        )


def _host(
    args: argparse.Namespace, say: Callable[[str], None] = lambda run: None, last: str = ""
) -> int:
    """`last`: the run of a host before us that was killed; `say` hears of ours."""
    from rich.console import Console

    from crowdgrad.host.publishing import Material
    from crowdgrad.process import run_async
    from crowdgrad.settings import load

    settings = load({"home": args.home})
    console = Console(file=sys.stderr if args.json == "-" or args.events else None)
    if last and _is_finished(last):
        console.print(f"It had just finished: {last}", highlight=False, markup=False)
        return 0
    going_on = _going_on(args, last, console)
    options = options_of(args, going_on.serving if going_on else None)
    if going_on is None:
        prepared, options = _prepare(args, options, settings, console)
    else:
        say(str(going_on.folder))
        prepared = going_on.prepared
        if not last:  # a host before us, started with the same words, was agreed to
            material = Material.of_job(prepared)
            options = agree_to_publish(args, options, material, settings.home, console)
    if is_open(options):
        note_agreement(Material.of_job(prepared), settings.home, console)
    introduce(console, prepared)
    outcome = run_async(
        _serve(args, options, prepared, settings, console, going_on=going_on, say=say)
    )
    _finish(args, outcome, console)
    return 0 if outcome.state == "finished" else 1


def _is_finished(run: str) -> bool:
    from crowdgrad.host.keeping.resume import state_of

    return state_of(Path(run)) == "finished"


def _prepare(
    args: argparse.Namespace, options: Options, settings: Settings, console: Console
) -> tuple[Prepared, Options]:
    from crowdgrad.host.door import chosen
    from crowdgrad.host.job import prepare
    from crowdgrad.host.listing import look_for
    from crowdgrad.host.publishing import Material
    from crowdgrad.process import stops_held

    if options.matchmaker is not None:
        with console.status("Looking for the matchmaker"):
            look_for(options.matchmaker)
    with console.status("Reading the job") as spinner:
        plan = _plan(args, settings.home / "data", spinner)
    chosen(options.admit or plan.admit, options.matchmaker)  # before anything slow
    if is_open(options) and not args.yes:
        material = Material.of_data(plan.data)
        options = agree_to_publish(args, options, material, settings.home, console)
    with console.status("Looking at the model") as spinner, stops_held() as stop_if_asked:

        def progress(text: str) -> None:
            stop_if_asked()
            spinner.update(text[:1].upper() + text[1:])

        return prepare(plan, progress), options


def _going_on(args: argparse.Namespace, last: str, console: Console) -> GoingOn | None:
    """The run to go on with; None: begin a new one, also where the last died too soon."""
    from crowdgrad.errors import DataMissing
    from crowdgrad.host.earlier import find_run
    from crowdgrad.host.keeping.resume import find

    if not last and args.resume is None:
        return None
    try:
        with console.status("Reading the last checkpoint"):
            found = find(find_run(last or args.resume, Path(args.runs)), args.epochs)
    except DataMissing:
        if args.resume is not None:
            raise
        return None
    for skipped in found.skipped:
        console.print(f"A checkpoint cannot be used: {skipped}", highlight=False, markup=False)
    version, epochs = found.version, found.prepared.job.stop.epochs
    console.print(
        f"Goes on with {found.folder.name} from version {version}, until epoch {epochs}",
        highlight=False,
    )
    return found


def _plan(args: argparse.Namespace, cache: Path, spinner: Spinner | None = None) -> JobPlan:
    from crowdgrad.host.earlier import find_run

    if args.earlier is None:
        return read_plan(args.job, cache, spinner)
    earlier = find_run(args.earlier, Path(args.runs))  # before anything slow
    plan = read_plan(args.job, cache, spinner)
    return dataclasses.replace(plan, continue_from=earlier, weights=None)


def read_plan(job: str, cache: Path, spinner: Spinner | None = None) -> JobPlan:
    """The job that a file or `module:object` names. `spinner` rests while data is fetched."""
    from crowdgrad.capture.loading import load_object
    from crowdgrad.cli.data import shown_progress
    from crowdgrad.host.job import JobPlan
    from crowdgrad.host.jobfile import read

    if job.endswith(".toml") or ":" not in job:
        with shown_progress(beside=spinner) as progress:
            return read(Path(job), cache=cache, progress=progress)
    return load_object(job, Path.cwd(), JobPlan)


def _set_apart() -> None:
    """Let what there is by now be left out when Python looks for objects to throw away.

    A full look is put off until a quarter as many are new as there are old ones. Capturing leaves
    more than a million: what volunteers leave would pile up for days. And nobody is served while
    it looks.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # this one counts how many are left


async def _serve(
    args: argparse.Namespace,
    options: Options,
    prepared: Prepared,
    settings: Settings,
    console: Console,
    *,
    going_on: GoingOn | None,
    say: Callable[[str], None],
) -> Outcome:
    from crowdgrad.host.serve import Run
    from crowdgrad.process import stop_requests

    opening, shown = console.status(OPENING), ExitStack()

    def started(here: Here) -> None:
        _set_apart()  # now the API is there, too
        say(str(here.folder))
        opening.stop()
        greet(console, here, options.matchmaker, qr=args.qr)
        if args.announce:
            announce(args.announce, here)
        if args.events:
            Lines().write("started", {"address": here.address, "url": here.url,
                                      "code": here.code, "link": here.link, "key": here.key,
                                      "folder": str(here.folder)})  # fmt: skip
        shown.enter_context(shown_as)

    with stop_requests() as stop, shown:
        here = Run(prepared, options, settings, going_on)
        _set_apart()
        shown_as, watch = display(args, console)
        with opening:
            return await here.to_the_end(stop, started=started, watch=watch)


def _finish(args: argparse.Namespace, outcome: Outcome, console: Console) -> None:
    from crowdgrad.cli.display import summary
    from crowdgrad.host.telling.status import as_json

    summary(console, outcome.status, str(outcome.folder))
    told = {"run": str(outcome.folder), "link": outcome.link}
    write_json(args.json, {**json.loads(as_json(outcome.status)), **told})
    sys.stdout.flush()
