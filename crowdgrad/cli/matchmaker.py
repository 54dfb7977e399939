"""`crowdgrad matchmaker`: run the service where hosts and volunteers find each other."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, add_common, add_listening, whole, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Callable

    from crowdgrad.matchmaker.serve import Door
    from crowdgrad.store.backup import Counts, Progress

HELP = "run the service where hosts and volunteers find each other"
TEXT = """\
Run a matchmaker. Hosts publish their jobs here and volunteers wait here for
one; it introduces them and then gets out of the way. A job that is running does
not need it: it may be stopped and started again at any time.

  crowdgrad matchmaker                      for this machine only, on port 8700
  crowdgrad host job.toml --matchmaker http://127.0.0.1:8700
  crowdgrad work --matchmaker http://127.0.0.1:8700

For everyone, with a certificate, or behind a proxy that has one:

  crowdgrad matchmaker --host 0.0.0.0 --port 443 \\
      --public-url https://match.example.org --tls-cert F --tls-key F
  crowdgrad matchmaker --behind-proxy 127.0.0.1 \\
      --public-url https://match.example.org

What it remembers is in a database: a file in the home folder unless told
otherwise. docs/operate.md is for whoever runs it. End it with Ctrl-C.
"""
MAX_PEM_BYTES = 1 << 20
DATABASE_HELP = (
    "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME, or memory: to forget all at the end "
    "(setting `database`; a file in the home folder)"
)


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "matchmaker",
        help=HELP,
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_listening(parser, 8700)
    parser.add_argument("--database", metavar="URL", help=DATABASE_HELP)
    _add_door(parser)
    _add_limits(parser)
    parser.add_argument(
        "--log", choices=("text", "json"), help="tell what happens, line by line, on standard error"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write address, url and pid as JSON once it listens ('-': standard output)",
    )
    add_common(parser)
    parser.set_defaults(run=run)
    _add_commands(parser)


def _add_door(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--public-url", metavar="URL", default="", help="what people are told: https://NAME"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate, with its chain, in PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, without a password, in PEM")
    parser.add_argument(
        "--behind-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="where a proxy's connections come from, or its network; may be given again",
    )
    parser.add_argument(
        "--relay",
        metavar="ROUTE",
        action="append",
        default=[],
        help="tell people of a relay, HOST:PORT or wss://NAME/PATH; may be given again",
    )
    parser.add_argument(
        "--plain-http", action="store_true", help="without TLS for others, in a network you trust"
    )


def _add_limits(parser: ArgumentParser) -> None:
    for option, kind, text in (
        ("--max-connections", whole, "connections at once (20000)"),
        ("--per-address", whole, "connections of one address at once (500)"),
        ("--joins-per-s", float, "joins a second, of everybody (500)"),
        ("--address-joins-per-s", float, "joins a second of one address (20)"),
        ("--key-joins-per-s", float, "joins and other signed requests a second of one key (5)"),
        ("--most-entering", whole, "how many may be on the way in at once (256)"),
    ):
        parser.add_argument(option, metavar="N", type=kind, help=text)


def _add_commands(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="backup | restore | migrate")
    backup = commands.add_parser("backup", help="write everything it remembers into one file")
    backup.add_argument("file", metavar="FILE", type=Path, help="a new or old one")
    backup.set_defaults(run=run_backup)
    restore = commands.add_parser("restore", help="put a backup into a database")
    restore.add_argument("file", metavar="FILE", type=Path, help="what `backup` wrote")
    restore.add_argument(
        "--replace", action="store_true", help="in the place of everything that is there"
    )
    restore.set_defaults(run=run_restore)
    migrate = commands.add_parser("migrate", help="bring a database's tables up to date")
    migrate.set_defaults(run=run_migrate)
    for command in (backup, restore, migrate):
        # Left out, they are what was said before the command.
        command.add_argument(
            "--database", metavar="URL", default=argparse.SUPPRESS, help=DATABASE_HELP
        )
        command.add_argument(
            "--home", metavar="DIR", default=argparse.SUPPRESS, help="the home folder"
        )
        command.add_argument("--json", metavar="FILE", default=argparse.SUPPRESS, help=JSON_HELP)


def run(args: Namespace) -> int:
    from crowdgrad.matchmaker.logs import logging_as
    from crowdgrad.matchmaker.serve import serve
    from crowdgrad.process import run_async
    from crowdgrad.store.opening import open_store, place_of

    door, database = _door(args), _database(args)

    def started(address: str, public_url: str) -> None:
        url = f"{door.scheme}://{address}"
        _print(args, f"The matchmaker listens on {url}")
        if public_url != url:
            _print(args, f"People come to {public_url}")
        if sys.stderr.isatty():
            print(f"It remembers in {place_of(database)}. Ctrl-C ends it.", file=sys.stderr)
        said = {"address": address, "url": url, "public_url": public_url, "pid": os.getpid()}
        write_json(args.json, said)

    with logging_as(args.log):
        run_async(serve(door, open_store=lambda: open_store(database), started=started))
    print("Stopped.", file=sys.stderr)
    return 0


def _print(args: Namespace, line: str) -> None:
    """For people; with `--json -` standard output belongs to the JSON."""
    print(line, file=sys.stderr if args.json == "-" else sys.stdout, flush=True)


def _door(args: Namespace) -> Door:
    """Raises SettingError."""
    from crowdgrad.errors import SettingError
    from crowdgrad.matchmaker.doorkeeper import MOST_ENTERING
    from crowdgrad.matchmaker.limits import Rates
    from crowdgrad.matchmaker.serve import Door, relays_of
    from crowdgrad.net.addresses import Proxies
    from crowdgrad.net.http import HttpLimits, Tls

    if (args.tls_cert is None) != (args.tls_key is None):
        raise SettingError(
            "A certificate needs its key, and the key its certificate.",
            advice="Give both --tls-cert and --tls-key.",
        )
    tls = None
    if args.tls_cert:
        tls = Tls(certificate=Path(args.tls_cert), key=Path(args.tls_key))
        _check_pem(tls.certificate, "CERTIFICATE", "certificate")
        _check_pem(tls.key, "PRIVATE KEY", "key")
    limits = {"connections": args.max_connections, "per_address": args.per_address}
    rates = {name: getattr(args, name) for name in
             ("joins_per_s", "address_joins_per_s", "key_joins_per_s")}  # fmt: skip
    try:
        return Door(
            host=args.host,
            port=args.port,
            public_url=args.public_url,
            tls=tls,
            plain_http=args.plain_http,
            limits=HttpLimits(proxies=Proxies(args.behind_proxy), **_given(limits)),
            rates=Rates(**_given(rates)),
            most_entering=args.most_entering or MOST_ENTERING,
            relays=relays_of(args.relay),
        )
    except ValueError as error:
        raise SettingError(f"A limit makes no sense: {error}.", advice="See --help.") from None


def _check_pem(file: Path, label: str, what: str) -> None:
    """Of a file without any OpenSSL has little to say. Raises SettingError."""
    from crowdgrad.errors import SettingError

    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_PEM_BYTES)
    except OSError:  # said when it is loaded
        return
    if f"{label}-----".encode() not in text:
        raise SettingError(
            f"There is no {what} in {file}.",
            advice=f"A {what} in PEM begins with a line -----BEGIN {label}-----; were the files "
            "for --tls-cert and --tls-key mixed up?",
        )


def _given(options: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in options.items() if value is not None}


def _database(args: Namespace) -> str:
    """The URL of the database; a file of its own in the home folder unless told otherwise."""
    from crowdgrad.files import disk_errors
    from crowdgrad.settings import load

    settings = load({"home": args.home, "database": args.database})
    if settings.database:
        return settings.database
    with disk_errors(settings.home, "Choose another home with --home."):
        settings.home.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{settings.home.absolute() / 'matchmaker.db'}"


def run_backup(args: Namespace) -> int:
    from crowdgrad.store.opening import database_modules

    with database_modules():
        from crowdgrad.store.backup import backup
    database = _database(args)
    counts = _shown("Reading", lambda progress: backup(database, args.file, progress))
    _print(args, f"Wrote {args.file}: {_sum_up(counts)}.")
    _write_done(args, database, file=str(args.file), rows=counts)
    return 0


def run_restore(args: Namespace) -> int:
    from crowdgrad.store.opening import database_modules

    with database_modules():
        from crowdgrad.store.backup import restore
    database = _database(args)
    counts = _shown(
        "Writing",
        lambda progress: restore(args.file, database, replace=args.replace, progress=progress),
    )
    _print(args, f"Restored {args.file}: {_sum_up(counts)}.")
    _write_done(args, database, file=str(args.file), rows=counts)
    return 0


def run_migrate(args: Namespace) -> int:
    from crowdgrad.store.opening import database_modules

    with database_modules():
        from crowdgrad.store.migration import head, migrate
    database = _database(args)
    steps = migrate(database)
    for step in steps:
        _print(args, f"Done: {step}.")
    _print(args, "The tables are up to date." if steps else "The tables were up to date already.")
    _write_done(args, database, tables=head(), steps=steps)
    return 0


def _write_done(args: Namespace, database: str, **what: object) -> None:
    from crowdgrad.store.opening import place_of

    write_json(args.json, {"database": place_of(database), **what})


def _shown(doing: str, act: Callable[[Progress], Counts]) -> Counts:
    """What `act` returns; meanwhile a terminal shows how far it has come."""
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …") as status:
        return act(lambda table, rows: status.update(f"{doing} {table}: {rows}"))


def _sum_up(counts: Counts) -> str:
    return ", ".join(f"{rows} in {table}" for table, rows in counts.items()) or "nothing"
