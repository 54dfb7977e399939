"""`crowdgrad server`: hold parameters for a host on another machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.output import add_common, add_listening, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

HELP = "hold a part of a host's parameters on this machine"
TEXT = """\
Run a parameter server: it holds a part of a host's parameters, or a copy of
all of them, and volunteers push to it and pull from it. That pays where the
host's network link or memory is the bottleneck, and not on a single machine
with one fast link. The host must be told of every server, and all must be
given the same secret; the server keeps nothing when it ends.

  openssl rand -hex 32 > secret        once; copy it to every machine
  crowdgrad server --host 0.0.0.0 --port 8710 --secret-file secret
  crowdgrad host job.toml --host 0.0.0.0 --secret-file secret \\
      --server 10.0.0.2:8710 --server 10.0.0.3:8710

For servers on the host's own machine: crowdgrad host job.toml --servers 2.
End it with Ctrl-C.
"""


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "server",
        help=HELP,
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_listening(parser, 8710)
    parser.add_argument(
        "--secret-file", metavar="FILE", help="the secret shared with the host, in a file"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write address and pid as JSON once it listens ('-': standard output)",
    )
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from crowdgrad.host.servers.server import serve
    from crowdgrad.process import run_async, stop_requests
    from crowdgrad.settings import load

    secret = _secret(args.secret_file or load({"home": args.home}).secret_file)

    def started(host: str, port: int) -> None:
        # With `--json -` standard output belongs to the JSON.
        out = sys.stderr if args.json == "-" else sys.stdout
        print(f"The parameter server listens on {host}:{port}", file=out, flush=True)
        write_json(args.json, {"address": f"{host}:{port}", "pid": os.getpid()})

    async def main() -> None:
        with stop_requests() as stop:
            await serve(host=args.host, port=args.port, secret=secret, stop=stop, started=started)

    run_async(main())
    print("Stopped.", file=sys.stderr)
    return 0


def _secret(file: str) -> bytes:
    """Raises SettingError."""
    from crowdgrad.errors import SettingError
    from crowdgrad.host.servers.proofs import checked, read_secret
    from crowdgrad.settings import SERVER_SECRET_VARIABLE, server_secret

    given = server_secret()
    if given:
        return checked(given.encode(), SERVER_SECRET_VARIABLE)
    if file:
        return read_secret(Path(file))
    raise SettingError(
        "Whom is this server to obey?",
        advice="Give it the same --secret-file as the host: `openssl rand -hex 32 > secret`.",
    )
