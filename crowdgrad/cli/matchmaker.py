"""`crowdgrad matchmaker`: run the service where hosts and volunteers find each other."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from crowdgrad.cli.output import add_listening, add_tied, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

HELP = "run the service where hosts and volunteers find each other"
TEXT = """\
Run a matchmaker. Hosts publish their jobs here and volunteers wait here for
one; it introduces them, first come, first served, and then gets out of the
way. A job that is running does not need it: it may be stopped and started
again at any time.

  crowdgrad matchmaker                      for this machine only, on port 8700
  crowdgrad matchmaker --host 0.0.0.0       for everyone who can reach it
  crowdgrad host job.toml --matchmaker http://127.0.0.1:8700
  crowdgrad work --matchmaker http://127.0.0.1:8700

What it can be asked is described at http://127.0.0.1:8700/openapi.json. End it
with Ctrl-C.
"""


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "matchmaker",
        help=HELP,
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_listening(parser, 8700)
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write address, url and pid as JSON once it listens ('-': standard output)",
    )
    add_tied(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from crowdgrad.matchmaker.serve import serve
    from crowdgrad.process import run_async

    def started(address: str) -> None:
        # With `--json -` standard output belongs to the JSON.
        out = sys.stderr if args.json == "-" else sys.stdout
        print(f"The matchmaker listens on http://{address}", file=out, flush=True)
        write_json(args.json, {"address": address, "url": f"http://{address}", "pid": os.getpid()})

    run_async(serve(host=args.host, port=args.port, started=started))
    print("Stopped.", file=sys.stderr)
    return 0
