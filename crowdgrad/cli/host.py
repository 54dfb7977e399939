"""`crowdgrad host`: train your model with whoever comes to help."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.events import EVENTS_HELP, Lines, check_stdout
from crowdgrad.cli.output import JSON_HELP, add_common, whole, write_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status as Spinner

    from crowdgrad.host.job import JobPlan, Prepared
    from crowdgrad.host.keeping.resume import GoingOn, Serving
    from crowdgrad.host.publishing import Material
    from crowdgrad.host.serve import Here, Options, Outcome
    from crowdgrad.host.servers.hiring import Wanted
    from crowdgrad.host.telling.status import Status
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
PLAIN_EVERY_S = 2.0
EVENTS_EVERY_S = 1.0
LOOPBACK = "127.0.0.1"
OPENING = "Finding out how others can reach this machine"
ALONE = "Only this machine trains: nobody has agreed to publish the data."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "host",
        help="train your model with whoever comes to help",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="JOB", nargs="?", help="a job file, or module:object")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where results go (runs)")
    parser.add_argument("--helpers", type=whole, help="further local volunteers to start")
    parser.add_argument(
        "--yes", action="store_true", help="every volunteer may read and keep the data: ask nobody"
    )
    _add_reach(parser.add_argument_group("how volunteers reach it"))
    _add_going_on(parser.add_argument_group("going on"))
    _add_servers(parser.add_argument_group("parameter servers"))
    _add_telling(parser.add_argument_group("what is told"))
    add_common(parser)
    parser.set_defaults(run=run)


def _add_reach(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--host", help=f"address to listen on; {LOOPBACK}: this machine only (all its networks)"
    )
    group.add_argument("--port", type=int, help="port for volunteers (any free one)")
    group.add_argument(
        "--advertise", metavar="HOST", help="address to tell others (what is found out)"
    )
    group.add_argument("--matchmaker", metavar="URL", help="publish the job there")
    group.add_argument(
        "--relay", action="append", metavar="ROUTE", type=relay,
        help="be called through the relay at HOST:PORT or wss://NAME/PATH; once for each",
    )  # fmt: skip
    group.add_argument(
        "--no-router", action="store_true", help="do not ask the router to open a port"
    )
    group.add_argument(
        "--admit", choices=("anyone", "introduced"),
        help="let in anyone, or those the matchmaker introduces (where it is published, these)",
    )  # fmt: skip


def _add_going_on(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--continue", metavar="RUN", dest="earlier",
        help="start from this run's parameters, with its splits: its folder or id",
    )  # fmt: skip
    group.add_argument(
        "--resume", metavar="RUN",
        help="go on with this run, from its last checkpoint: its folder, its id, or last",
    )  # fmt: skip
    group.add_argument("--epochs", type=whole, help="with --resume: until so many are done")
    group.add_argument(
        "--no-supervise", action="store_true",
        help="do not go on by itself when the host is killed",
    )  # fmt: skip


def _add_servers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--servers", type=whole, metavar="N",
        help="let so many parameter servers on this machine hold the parameters (none)",
    )  # fmt: skip
    group.add_argument(
        "--server", action="append", metavar="HOST:PORT",
        help="let this parameter server hold a part of them; once for each (see crowdgrad server)",
    )  # fmt: skip
    group.add_argument(
        "--servers-hold", choices=("parts", "copies"),
        help="what each server has: its part, or a copy of everything (parts)",
    )  # fmt: skip
    group.add_argument(
        "--average-every", type=whole, metavar="UPDATES",
        help="with copies: updates from one averaging of them to the next (100)",
    )  # fmt: skip
    group.add_argument(
        "--secret-file", metavar="FILE", help="with --server: the secret shared with the servers"
    )


def _add_telling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--plain", action="store_true", help="lines for a log, no live display")
    group.add_argument("--qr", action="store_true", help="draw the job's link also into a log")
    group.add_argument("--json", metavar="FILE", help=JSON_HELP)
    group.add_argument("--events", action="store_true", help=EVENTS_HELP)
    group.add_argument("--http-port", type=int, help="port of the HTTP API (any free one)")
    group.add_argument(
        "--announce", metavar="FILE",
        help="write address, API, its token and the folder as JSON once it runs",
    )  # fmt: skip
    group.add_argument(
        "--page", metavar="[HOST:]PORT", type=page_place,
        help="serve the job's public page there, for reading only (all networks)",
    )  # fmt: skip


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
    options = _options(args, going_on.serving if going_on else None)
    if going_on is None:
        prepared, options = _prepare(args, options, settings, console)
    else:
        say(str(going_on.folder))
        prepared = going_on.prepared
        if not last:  # a host before us, started with the same words, was agreed to
            material = Material.of_job(prepared)
            options = _agree_to_publish(args, options, material, settings.home, console)
    if _is_open(options):
        _note_agreement(Material.of_job(prepared), settings.home, console)
    _introduce(console, prepared)
    outcome = run_async(
        _serve(args, options, prepared, settings, console, going_on=going_on, say=say)
    )
    _finish(args, outcome, console)
    return 0 if outcome.state == "finished" else 1


def relay(text: str) -> str:
    """An argument that names a relay, as the route through it."""
    from crowdgrad.domain.routes import relay_of

    try:
        return str(relay_of(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def page_place(text: str) -> tuple[str, int]:
    """An argument that says where a page is served."""
    from crowdgrad.net.ports import everywhere

    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT, with a port up to 65535")
    return host.strip("[]") or everywhere(), int(port)


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
    if _is_open(options) and not args.yes:
        material = Material.of_data(plan.data)
        options = _agree_to_publish(args, options, material, settings.home, console)
    with console.status("Looking at the model") as spinner, stops_held() as stop_if_asked:

        def progress(text: str) -> None:
            stop_if_asked()
            spinner.update(text[:1].upper() + text[1:])

        return prepare(plan, progress), options


def _is_open(options: Options) -> bool:
    from crowdgrad.host.publishing import open_to_others

    return open_to_others(options.host, options.advertise, options.matchmaker, options.relays)


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


def _agree_to_publish(
    args: argparse.Namespace, options: Options, material: Material, home: Path, console: Console
) -> Options:
    """Once for each data set that others can reach. Raises NotAgreed, where others were asked for;
    otherwise this machine trains alone."""
    from crowdgrad.cli.ask import can_ask, yes_or_no
    from crowdgrad.errors import NotAgreed
    from crowdgrad.host.publishing import Published, warning

    if args.yes or not _is_open(options) or material.name in Published(home):
        return options
    asked_for = args.host or options.advertise or options.matchmaker or options.relays
    if not asked_for and (not can_ask(console) or args.tied):
        console.print(f"{ALONE} With --yes those on your network can help.", highlight=False)
        return dataclasses.replace(options, host=LOOPBACK)
    for line in warning(material):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not can_ask(console) or args.tied:
        raise NotAgreed(
            f"Nobody has agreed to publish “{material.title}” yet.",
            advice="Say --yes if every volunteer may read and keep this data.",
        )
    if not yes_or_no(console, "Publish it?"):
        if not asked_for:
            console.print(ALONE, highlight=False)
            return dataclasses.replace(options, host=LOOPBACK)
        raise NotAgreed(f"“{material.title}” is not published.", advice="Train here: leave out "
                        "--matchmaker, --host, --advertise and --relay.")  # fmt: skip
    _note_agreement(material, home, console)
    return options


def _note_agreement(material: Material, home: Path, console: Console) -> None:
    from crowdgrad.errors import CrowdgradError
    from crowdgrad.host.publishing import Published

    try:
        Published(home).add(material.name, material.title)
    except CrowdgradError as error:  # then the question comes again
        console.print(str(error), highlight=False, markup=False)


def _introduce(console: Console, prepared: Prepared) -> None:
    """What should be known before it starts."""
    if prepared.note:
        console.print(f"Data: {prepared.manifest.title} ({prepared.note})", highlight=False)
    if prepared.earlier is not None:
        console.print(f"Starts from the result of {prepared.earlier.id}", highlight=False)
    for note in prepared.notes:
        console.print(f"Note: {note}", highlight=False, markup=False)


def _options(args: argparse.Namespace, before: Serving | None) -> Options:
    """What the command line says; else as the run was hosted before."""
    from crowdgrad.host.keeping.resume import Serving
    from crowdgrad.host.serve import Options

    before = before or Serving(host="", port=0)
    matchmaker = args.matchmaker or before.matchmaker
    same = args.matchmaker in (None, before.matchmaker)
    return Options(
        runs=Path(args.runs),
        host=args.host or before.host or _where_to_listen(matchmaker),
        port=before.port if args.port is None else args.port,
        any_port=args.port is None,
        advertise=args.advertise or before.advertise,
        http_port=before.http_port if args.http_port is None else args.http_port,
        matchmaker=matchmaker,
        relays=tuple(args.relay or before.relays),
        router=before.router and not args.no_router,
        helpers=before.helpers if args.helpers is None else args.helpers,
        matchmaker_key=bytes.fromhex(before.matchmaker_key) if same else b"",
        admit=args.admit or before.admit,
        servers=_servers(args, before),
        page=args.page or before.page,
    )


def _where_to_listen(matchmaker: str | None) -> str:
    """Everywhere; where the matchmaker is on this very machine, so is everybody else."""
    from crowdgrad.net.ports import everywhere
    from crowdgrad.net.web import is_loopback, normalise

    here = matchmaker is not None and is_loopback(normalise(matchmaker))
    return LOOPBACK if here else everywhere()


def _servers(args: argparse.Namespace, before: Serving) -> Wanted:
    from crowdgrad.host.servers.hiring import Wanted
    from crowdgrad.host.servers.proofs import read_secret
    from crowdgrad.settings import load

    said = args.servers is not None or args.server is not None
    elsewhere = tuple(args.server or ()) if said else before.servers
    file = args.secret_file or load({"home": args.home}).secret_file
    hold = args.servers_hold or before.servers_hold
    return Wanted(
        own=(args.servers or 0) if said else before.own_servers,
        elsewhere=elsewhere,
        hold="copies" if hold == "copies" else "parts",
        average_every=before.average_every if args.average_every is None else args.average_every,
        secret=read_secret(Path(file)) if elsewhere and file else b"",
    )


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
        _greet(console, here, options.matchmaker, qr=args.qr)
        if args.announce:
            _announce(args.announce, here)
        if args.events:
            Lines().write("started", {"address": here.address, "url": here.url,
                                      "code": here.code, "link": here.link, "key": here.key,
                                      "folder": str(here.folder)})  # fmt: skip
        shown.enter_context(display)

    with stop_requests() as stop, shown:
        here = Run(prepared, options, settings, going_on)
        _set_apart()
        display, watch = _display(args, console)
        with opening:
            return await here.to_the_end(stop, started=started, watch=watch)


def _announce(file: str, here: Here) -> None:
    """For its owner's eyes only: whoever reads it may steer the run."""
    names = ("address", "url", "code", "link", "key", "page", "token")
    told = {name: getattr(here, name) for name in names}
    about = {"run": here.folder.name, "folder": str(here.folder), "pid": os.getpid()}
    write_json(file, {**told, **about}, private=True)


def _greet(console: Console, here: Here, matchmaker: str | None, *, qr: bool) -> None:
    """`qr`: draw the link in any case, not only in a terminal."""
    from crowdgrad.cli.joining import Ways, show
    from crowdgrad.domain.routes import RELAY

    ways = Ways(
        code=here.code or "",
        matchmaker=matchmaker or "",
        local_code=here.local_code,
        addresses=tuple(way for way in here.routes if not way.startswith(RELAY))
        if here.admit == "anyone"
        else (),
        link=here.link,
        key=here.key,
    )
    show(console, ways, qr=qr)
    if here.words:
        said = here.words[:1].upper() + here.words[1:]
        console.print(f"{said}.", highlight=False, markup=False)
    console.print(f"Status: {here.url}/status", soft_wrap=True)
    if here.page:
        console.print(f"Page: {here.page}", soft_wrap=True)
    console.print(f"Results: {here.folder}", soft_wrap=True)


def _display(
    args: argparse.Namespace, console: Console
) -> tuple[AbstractContextManager[object], Callable[[Status], None]]:
    if args.events:
        return nullcontext(), _events(Lines())
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


def _events(lines: Lines) -> Callable[[Status], None]:
    """Every second, and whenever state, phase, members or scores become others."""
    from crowdgrad.host.telling.status import as_json

    loop, last = asyncio.get_running_loop(), -EVENTS_EVERY_S
    before: tuple[object, ...] = ()

    def watch(status: Status) -> None:
        nonlocal last, before
        now = (status.state, status.phase, status.paused, status.here, status.validation)
        if loop.time() - last >= EVENTS_EVERY_S or now != before:
            last, before = loop.time(), now
            lines.write("status", {"status": json.loads(as_json(status))})

    return watch


def _finish(args: argparse.Namespace, outcome: Outcome, console: Console) -> None:
    from crowdgrad.cli.display import summary
    from crowdgrad.host.telling.status import as_json

    summary(console, outcome.status, str(outcome.folder))
    told = {"run": str(outcome.folder), "link": outcome.link}
    write_json(args.json, {**json.loads(as_json(outcome.status)), **told})
    sys.stdout.flush()
