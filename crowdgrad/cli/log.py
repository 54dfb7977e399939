"""`crowdgrad log`: what was done on this machine, for whom, and when."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, fitted, whole, write_json

if TYPE_CHECKING:
    from crowdgrad.volunteer.journal import Entry

TEXT = """\
Everything this machine has done for others, oldest first: when, for which host
(the fingerprint of its key, or its address where it has proven none), and
what. It is kept in journal.jsonl of the home folder and goes back as far as 8
MB reach.

  crowdgrad log                  the last 40 lines
  crowdgrad log --lines 1000     more of them
  crowdgrad log --follow         go on as things happen
"""
POLL_S = 0.5
INDENT = 8 * " "
"""Of what does not fit on an entry's first line."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "log",
        help="what was done on this machine, and for whom",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lines", metavar="N", type=whole, default=40, help="how many (40)")
    parser.add_argument("--home", metavar="DIR", help="the home folder")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    either.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from crowdgrad.settings import load
    from crowdgrad.volunteer.journal import NAME, Reader

    home = load({"home": args.home}).home
    reader = Reader(home)
    found = reader.all()[-args.lines :] if args.lines else []
    write_json(args.json, {"entries": [dataclasses.asdict(entry) for entry in found]})
    if args.json == "-":
        return 0
    if not found and not args.follow and args.lines:
        print(f"Nothing has been done here yet: there is no {home / NAME}.")
    _print(found)
    while args.follow:
        time.sleep(POLL_S)
        _print(reader.news())
    return 0


def _print(entries: list[Entry]) -> None:
    for entry in entries:
        print(fitted(line(entry), sys.stdout, INDENT), flush=True)


def line(entry: Entry) -> str:
    when = datetime.fromtimestamp(entry.time)
    return f"{when:%Y-%m-%d %H:%M:%S}  {entry.host or '-':16}  {entry.what:7}  {entry.words}"
