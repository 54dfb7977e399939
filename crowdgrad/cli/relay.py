"""`crowdgrad relay`: pass bytes on between hosts that nobody can dial and their volunteers."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING

from crowdgrad.cli.output import add_common, add_listening, whole, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import AsyncIterator

    from rich.console import Console

    from crowdgrad.planner.relaying import Limits
    from crowdgrad.relay.serve import Door, Relay

HELP = "pass bytes on for hosts that nobody can dial"
TEXT = """\
Run a relay. A host behind a router that lets nobody in dials it, and so do the
host's volunteers; the relay joins them and passes their bytes on. It cannot
read them: they are encrypted from end to end. It remembers nothing when it
ends, and hosts that lose one use another.

  crowdgrad relay                           for this machine only, on port 8702
  crowdgrad relay --host 0.0.0.0 --name relay.example.org
  crowdgrad host job.toml --relay relay.example.org:8702

What each key may have is limited: see the options. docs/relay.md is for
whoever runs one. End it with Ctrl-C.
"""
LEAST_FINGERPRINT = 16
LOOK_S = 1.0
QUIET_S = 60.0
"""How often figures are told where there is no terminal, and something has changed."""


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "relay",
        help=HELP,
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_listening(parser, 8702)
    parser.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="what it is dialled as, NAME or NAME:PORT; what was signed for other relays is "
        "refused then; may be given again",
    )
    parser.add_argument(
        "--allow",
        metavar="KEY",
        action="append",
        default=[],
        type=fingerprint,
        help="serve only hosts with these fingerprints; may be given again",
    )
    parser.add_argument(
        "--behind-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="where a proxy's connections come from, or its network; may be given again",
    )
    _add_limits(parser)
    parser.add_argument(
        "--metrics-port", metavar="PORT", type=int, help="tell Prometheus figures there; 0: any"
    )
    parser.add_argument(
        "--metrics-host", metavar="HOST", default="127.0.0.1", help="… on that address (127.0.0.1)"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write address and pid as JSON once it listens ('-': standard output)",
    )
    add_common(parser)
    parser.set_defaults(run=run)


def _add_limits(parser: ArgumentParser) -> None:
    for option, kind, text in (
        ("--max-hosts", whole, "hosts at once (4096)"),
        ("--max-pairs", whole, "pairs of a host and a volunteer at once (4096)"),
        ("--pairs-per-host", whole, "… of one host (1000)"),
        ("--pairs-per-key", whole, "… of one volunteer's key (16)"),
        ("--pairs-per-address", whole, "… of volunteers from one address (256)"),
        ("--hosts-per-address", whole, "hosts from one address (16)"),
        ("--arrivals-per-s", float, "connections a second from one address (200)"),
        ("--mbit", float, "megabits a second, of everybody; 0: no limit (0)"),
        ("--key-mbit", float, "megabits a second of one key; 0: no limit (100)"),
        ("--key-gb-per-day", float, "gigabytes a day of one key; 0: no limit (100)"),
        ("--measure-mb", float, "megabytes each way for who measures its link; 0: none (8)"),
        ("--idle-s", float, "seconds without a byte after which a pair is over (120)"),
    ):
        parser.add_argument(option, metavar="N", type=kind, help=text)


def fingerprint(text: str) -> str:
    """The beginning of one: 16 to 64 hexadecimal digits."""
    found = text.lower()
    if not LEAST_FINGERPRINT <= len(found) <= 64 or set(found) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text[:70]!r} is no fingerprint of 16 to 64 digits")
    return found


def run(args: Namespace) -> int:
    import logging

    from rich.console import Console

    from crowdgrad.process import run_async

    door = _door(args)
    logging.getLogger("crowdgrad.relay").setLevel(logging.INFO)  # who runs it wants to know
    # With `--json -` standard output belongs to the JSON.
    console = Console(stderr=args.json == "-", highlight=False, markup=False)
    run_async(_serve(args, door, console))
    print("Stopped.", file=sys.stderr)
    return 0


async def _serve(args: Namespace, door: Door, console: Console) -> None:
    from crowdgrad.process import stop_requests
    from crowdgrad.relay.serve import serve

    shown: list[asyncio.Task[None]] = []

    def started(relay: Relay, figures: str) -> None:
        console.print(f"The relay listens on {relay.address}", soft_wrap=True)
        if figures:
            console.print(f"Its figures are at http://{figures}/metrics", soft_wrap=True)
        write_json(
            args.json,
            {"address": relay.address, "metrics": figures or None, "pid": os.getpid()},
        )
        shown.append(asyncio.create_task(_show(relay, console)))

    with stop_requests() as stop:
        try:
            await serve(door, stop=stop, started=started)
        finally:
            for task in shown:
                task.cancel()
            await asyncio.gather(*shown, return_exceptions=True)


async def _show(relay: Relay, console: Console) -> None:
    """A line at the foot of a terminal; elsewhere one now and then."""
    from rich.status import Status

    if console.is_terminal:
        with Status(line(relay, 0.0), console=console, spinner="dots") as status:
            async for speed in _speeds(relay, LOOK_S):
                status.update(line(relay, speed))
    else:
        before = line(relay, 0.0)
        async for speed in _speeds(relay, QUIET_S):
            if line(relay, speed) != before:
                before = line(relay, speed)
                console.print(before, soft_wrap=True)


async def _speeds(relay: Relay, every_s: float) -> AsyncIterator[float]:
    """Bytes a second, again and again."""
    from crowdgrad.relay.metrics import passed

    loop = asyncio.get_running_loop()
    before, at = sum(passed(relay.board)), loop.time()
    while True:
        await asyncio.sleep(every_s)
        count, now = sum(passed(relay.board)), loop.time()
        yield (count - before) / max(now - at, 1e-9)
        before, at = count, now


def line(relay: Relay, bytes_per_s: float) -> str:
    board = relay.board
    refused = board.events.refusals.total()
    return (
        f"{_many(len(board.hosts), 'host')}, {_many(len(board.pairs), 'pair')}, "
        f"{bytes_per_s / 1e6:.1f} MB/s" + (f", {_many(refused, 'refusal')}" if refused else "")
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _door(args: Namespace) -> Door:
    """Raises SettingError."""
    from crowdgrad.net.addresses import Proxies
    from crowdgrad.relay.serve import Door
    from crowdgrad.relay.switchboard import Rules

    return Door(
        host=args.host,
        port=args.port,
        metrics_host=args.metrics_host,
        metrics_port=args.metrics_port,
        rules=Rules(
            limits=_limits(args),
            allowed=tuple(args.allow),
            names=tuple(args.name),
            proxies=Proxies(args.behind_proxy),
        ),
    )


def _limits(args: Namespace) -> Limits:
    from crowdgrad.errors import SettingError
    from crowdgrad.planner.relaying import Limits

    given = {
        "hosts": args.max_hosts,
        "pairs": args.max_pairs,
        "pairs_per_host": args.pairs_per_host,
        "pairs_per_caller": args.pairs_per_key,
        "pairs_per_address": args.pairs_per_address,
        "hosts_per_address": args.hosts_per_address,
        "arrivals_per_s": args.arrivals_per_s,
        "bytes_per_s": _times(args.mbit, 125_000),
        "key_bytes_per_s": _times(args.key_mbit, 125_000),
        "key_bytes_per_day": _times(args.key_gb_per_day, 1_000_000_000),
        "measure_bytes": _times(args.measure_mb, 1_000_000),
        "idle_s": args.idle_s,
    }
    try:
        return Limits(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise SettingError(f"A limit makes no sense: {error}.", advice="See --help.") from None


def _times(value: float | None, unit: int) -> int | None:
    """Raises SettingError."""
    from crowdgrad.errors import SettingError

    if value is None:
        return None
    if not 0 <= value < 1e9:
        raise SettingError(f"A limit makes no sense: {value}.", advice="See --help.")
    return int(value * unit)
