"""What `crowdgrad host` can be told, and what that means for the host."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.events import EVENTS_HELP
from crowdgrad.cli.output import JSON_HELP, whole

if TYPE_CHECKING:
    from crowdgrad.host.keeping.resume import Serving
    from crowdgrad.host.options import Options
    from crowdgrad.host.servers.hiring import Wanted

LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def options_of(args: argparse.Namespace, before: Serving | None) -> Options:
    """What the command line says; else as the run was hosted before."""
    from crowdgrad.host.keeping.resume import Serving
    from crowdgrad.host.options import Options

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
        page=_page(args.page, before.page),
        any_page_port=args.page is None or args.page[1] == 0,
    )


def _page(asked: tuple[str, int] | None, before: tuple[str, int] | None) -> tuple[str, int] | None:
    """Who names no port of its own, goes on where it was."""
    return before if before and asked in (None, (before[0], 0)) else asked


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
