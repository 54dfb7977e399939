"""`crowdgrad settings`: every setting, its value, and where that came from."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from crowdgrad.cli.output import JSON_HELP, write_json

TEXT = """\
Every setting with its value and its source. A value on the command line wins
over the environment (CROWDGRAD_<NAME>), that over settings.toml in the home
folder, that over the default.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "settings",
        help="show every setting and where it comes from",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--home", metavar="DIR", help="the home folder")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from crowdgrad.settings import sourced

    rows = sourced({"home": args.home})
    write_json(args.json, {row.name: asdict(row) for row in rows})
    if args.json == "-":
        return 0
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("setting", "value", "source", "what it is"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row.name, row.value, row.source, row.help)
    Console().print(table)
    return 0
