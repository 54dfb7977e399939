"""`crowdgrad hosts`: whom this machine helps without a question, and whom never."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, fitted, write_json

if TYPE_CHECKING:
    from crowdgrad.volunteer.hosts import Known, Refused

TEXT = """\
The hosts this machine knows, and the jobs it refuses because their trainer
failed three times here.

  crowdgrad hosts                  list them
  crowdgrad hosts trust KEY        help this host without a question
  crowdgrad hosts block KEY        never help it
  crowdgrad hosts forget KEY       ask again when it comes
  crowdgrad hosts forgive JOB      try a refused job again: its title, or the
                                   hash of its program

KEY is the fingerprint of a host's key, 16 hexadecimal digits: the question
whether to help it shows it, and so does `crowdgrad log`. Ask the person who
hosts for theirs.
"""
ACTIONS = {
    "trust": "help this host without a question",
    "block": "never help this host",
    "forget": "ask again when this host comes",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "hosts",
        help="whom this machine helps without a question",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(parser)
    parser.set_defaults(run=run_list)
    commands = parser.add_subparsers(title="commands", metavar="trust | block | forget | forgive")
    for name, help in ACTIONS.items():
        command = commands.add_parser(name, help=help)
        command.add_argument("key", metavar="KEY", help="fingerprint of the host's key")
        command.add_argument("--home", metavar="DIR", help="the home folder")
        command.set_defaults(run=run_host, action=name)
    forgive = commands.add_parser("forgive", help="try a refused job again")
    forgive.add_argument(
        "job", metavar="JOB", help="its program's hash (8 digits or more) or title"
    )
    forgive.add_argument("--home", metavar="DIR", help="the home folder")
    forgive.set_defaults(run=run_forgive)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", metavar="DIR", help="the home folder")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)


def run_list(args: argparse.Namespace) -> int:
    import msgspec

    from crowdgrad.settings import load
    from crowdgrad.volunteer.hosts import KnownHosts, Refusals, fingerprints

    settings = load({"home": args.home})
    listed = sorted(fingerprints(settings.trusted_hosts))
    hosts, refused = KnownHosts(settings.home).all(), Refusals(settings.home).all()
    write_json(args.json, {"hosts": msgspec.to_builtins(hosts), "trusted_hosts": listed,
                           "refused": msgspec.to_builtins(refused)})  # fmt: skip
    if args.json == "-":
        return 0
    for line in (*_host_lines(hosts), *_setting_lines(listed), *_refusal_lines(refused)):
        print(fitted(line, sys.stdout, "  "))
    return 0


def run_host(args: argparse.Namespace) -> int:
    from crowdgrad.errors import TargetError
    from crowdgrad.volunteer.hosts import KnownHosts, fingerprint

    hosts, key = KnownHosts(_home(args)), fingerprint(args.key)
    if args.action == "forget":
        if not hosts.forget(key):
            raise TargetError(f"{key} is on no list.", advice="`crowdgrad hosts` shows the lists.")
        print(f"{key} is forgotten: you will be asked when it comes.")
    elif args.action == "trust":
        hosts.set(key, "trusted", name="", now=time.time())
        print(f"{key} is trusted: it will be helped without a question.")
    else:
        hosts.set(key, "blocked", name="", now=time.time())
        print(f"{key} is blocked: it will never be helped.")
    return 0


def run_forgive(args: argparse.Namespace) -> int:
    from crowdgrad.errors import TargetError
    from crowdgrad.volunteer.hosts import Refusals

    forgiven = Refusals(_home(args)).forget(args.job)
    if not forgiven:
        raise TargetError(
            f"No refused job is called {args.job!r}.", advice="`crowdgrad hosts` lists them."
        )
    for job in forgiven:
        print(f"“{job.title}” ({job.program[:12]}) may be tried again.")
    return 0


def _home(args: argparse.Namespace) -> Path:
    from crowdgrad.settings import load

    return load({"home": args.home}).home


def _host_lines(hosts: list[Known]) -> list[str]:
    if not hosts:
        return ["No hosts are on the list: you are asked before anything is computed for one."]
    lines = ["key               status   since       last seen   name"]
    for host in sorted(hosts, key=lambda host: -host.last):
        dates = f"{_day(host.first)}  {_day(host.last)}"
        lines.append(f"{host.key}  {host.status:7}  {dates}  {host.name}".rstrip())
    return lines


def _setting_lines(listed: list[str]) -> list[str]:
    return ["", f"Trusted by the setting trusted_hosts: {', '.join(listed)}"] if listed else []


def _refusal_lines(refused: list[Refused]) -> list[str]:
    if not refused:
        return []
    return [
        "",
        "Jobs refused here (crowdgrad hosts forgive JOB tries one again):",
        *(f"{job.program[:12]}  {_day(job.at)}  “{job.title}”: {job.reason}" for job in refused),
    ]


def _day(when: float) -> str:
    return f"{datetime.fromtimestamp(when):%Y-%m-%d}"
