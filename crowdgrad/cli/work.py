"""`crowdgrad work`: lend this machine."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, add_common, write_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from crowdgrad.settings import Settings
    from crowdgrad.volunteer.agent import Outcome
    from crowdgrad.volunteer.events import Event, Watch
    from crowdgrad.volunteer.talk import Trusted

TEXT = """\
Lend this machine to a job. Nothing the host wrote is run here: a job is a
checked arithmetic graph, computed at low priority by a process of its own. You
are asked before the first unit of a new host. Stop with Ctrl-C whenever you
like; what you were working on is given to somebody else. `crowdgrad log` says
what was done, `crowdgrad hosts` whom you trust.

  crowdgrad work                  help a host on your network, or wait at the
                                  matchmaker for whoever needs help
  crowdgrad work K7Q-2MP          help the job with this code
  crowdgrad work K7Q2-MPX4-9RTM   help the host with this code, on your network
  crowdgrad work LINK             help the job with this link
  crowdgrad work 192.0.2.7:8701   help the host at this address
  crowdgrad work --cause climate  help such jobs before others
  crowdgrad work --hours 22:00-07:00   at night only
  crowdgrad work --upload 2 --download 20   Mbit/s, and no more
  crowdgrad work --yes            help whoever it is, without a question

Where you have the job's model yourself and trust it, PyTorch can compute with
it, on a GPU too:

  crowdgrad work K7Q-2MP --trusted model:task --device cuda --bf16

It is imported from this machine's disk (the current folder first), never from
the network, and must compute what the published program computes before it is
used.
"""

LONGEST_PACE_MS = 60_000
MOST_MBPS = 1e9


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "work",
        help="lend this machine to a job",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", metavar="CODE | LINK | HOST:PORT", help="which job")
    parser.add_argument("--matchmaker", metavar="URL", help="where to look for jobs")
    _add_wishes(parser)
    _add_network(parser)
    parser.add_argument("--name", help="the name others see")
    parser.add_argument("--yes", action="store_true", help="help any host without a question")
    parser.add_argument("--once", action="store_true", help="end after one job")
    parser.add_argument("--guest", action="store_true", help="use a key for this session only")
    parser.add_argument(
        "--pace", metavar="MS", type=milliseconds, default=0.0,
        help="pause so long after every batch, to try out a slow machine",
    )  # fmt: skip
    _add_trusted(parser)
    parser.add_argument("--plain", action="store_true", help="lines for a log, no live display")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    add_common(parser)
    parser.set_defaults(run=run)


def _add_wishes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cause", action="append", metavar="NAME",
        help="help jobs for this before others; once for each, the most liked first",
    )  # fmt: skip
    parser.add_argument("--only-causes", action="store_true", help="help no other causes")
    parser.add_argument(
        "--host-key", action="append", metavar="FINGERPRINT",
        help="help only the host with this key; once for each",
    )  # fmt: skip
    parser.add_argument(
        "--trusted-only", action="store_true", help="help only hosts that you trust"
    )
    parser.add_argument("--hours", metavar="FROM-TO", help="when to help, e.g. 22:00-07:00 or 22-7")


def _add_network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share", choices=("no", "dial", "listen"),
        help="exchange data with other volunteers: not at all, with those that can be dialled, "
        "or also with those that dial here (they learn this machine's address)",
    )  # fmt: skip
    parser.add_argument(
        "--upload", metavar="MBPS", type=mbps, help="send at most so many Mbit/s; 0: no cap"
    )
    parser.add_argument(
        "--download", metavar="MBPS", type=mbps, help="fetch at most so many Mbit/s; 0: no cap"
    )


def _add_trusted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trusted", metavar="MODULE:OBJECT",
        help="compute with this task of your own, by PyTorch",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto",
        help="where PyTorch computes (default: a GPU if there is one)",
    )  # fmt: skip
    parser.add_argument("--bf16", action="store_true", help="let PyTorch compute in bfloat16")
    parser.add_argument("--compile", action="store_true", help="let PyTorch compile the model")


def milliseconds(text: str) -> float:
    """An argument that says how long, up to a minute."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LONGEST_PACE_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {LONGEST_PACE_MS}")
    return value


def mbps(text: str) -> float:
    """An argument that says how much, in Mbit/s."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < MOST_MBPS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of Mbit/s, from 0 on")
    return value


def run(args: argparse.Namespace) -> int:
    from crowdgrad.process import run_async
    from crowdgrad.settings import hours_of_day, load

    said = {name: getattr(args, name) for name in ("home", "name", "matchmaker", "hours", "share")}
    caps = {"most_upload_mbps": args.upload, "most_download_mbps": args.download}
    flags = {name: getattr(args, name) or None for name in ("only_causes", "trusted_only")}
    if args.hours is not None:
        hours_of_day(args.hours, called="--hours")
    settings = load({**said, **caps, **flags})
    outcomes = run_async(_work(args, settings))
    write_json(args.json, {"jobs": [dataclasses.asdict(outcome) for outcome in outcomes]})
    return 0


async def _work(args: argparse.Namespace, settings: Settings) -> list[Outcome]:
    from rich.console import Console
    from rich.markup import escape

    from crowdgrad.cli.ask import can_ask, whether_to_help
    from crowdgrad.process import stop_requests
    from crowdgrad.settings import worker_seed, worker_token
    from crowdgrad.volunteer.serve import Options, work

    options = Options(
        target=args.target,
        guest=args.guest,
        once=args.once,
        token=worker_token() or "",
        seed=worker_seed() or "",
        pace_s=args.pace / 1000,
        yes=args.yes,
        trusted=_trusted(args),
        causes=tuple(args.cause or ()),
        hosts=tuple(args.host_key or ()),
    )
    console = Console(stderr=args.json == "-")
    outcomes: list[Outcome] = []
    asked = can_ask(console) and not args.tied
    with stop_requests() as stop:
        if args.plain or not console.is_terminal:
            ask = whether_to_help(console, ExitStack) if asked else None
            await work(options, settings, stop, _lines(args.json == "-"), outcomes, ask=ask)
        else:
            with _Spinner(console) as spinner:
                show = _spoken(lambda text: spinner.show(escape(text)), spinner.keep)
                ask = whether_to_help(console, spinner.paused) if asked else None
                await work(options, settings, stop, show, outcomes, ask=ask)
    for outcome in outcomes:
        reason = outcome.reason[:1].upper() + outcome.reason[1:]
        thanks = f"{reason}. You gave {outcome.samples:,} samples. Thank you."
        console.print(thanks, highlight=False, markup=False)
    return outcomes


class _Spinner(ExitStack):
    """What we are doing, at the foot of the screen."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._text = "Starting"
        self._status = self._new()
        self.callback(lambda: self._status.stop())

    def show(self, text: str) -> None:
        self._text = text
        self._status.update(text)

    def keep(self, text: str) -> None:
        """A line above it that stays."""
        self._console.print(text, highlight=False, markup=False)

    def paused(self) -> ExitStack:
        """Off the screen, until the stack is closed."""
        self._status.stop()
        stack = ExitStack()
        stack.callback(self._resume)
        return stack

    def _resume(self) -> None:
        self._status = self._new()

    def _new(self) -> Status:
        # A new one each time: one that is started again writes over what came in between.
        status = self._console.status(self._text)
        status.start()
        return status


def _trusted(args: argparse.Namespace) -> Trusted | None:
    """The owner's own model, as far as it can be judged without importing it."""
    from importlib.util import find_spec
    from pathlib import Path

    from crowdgrad.capture.loading import check_target
    from crowdgrad.errors import SettingError, missing_module
    from crowdgrad.volunteer.talk import Trusted

    if args.trusted is None:
        if args.bf16 or args.compile or args.device != "auto":
            raise SettingError(
                "--device, --bf16 and --compile say how a model of your own is computed.",
                advice="Name it with --trusted MODULE:OBJECT, or leave them out.",
            )
        return None
    check_target(args.trusted)
    if find_spec("torch") is None:
        missing = missing_module(ModuleNotFoundError(name="torch"))
        assert missing is not None
        raise missing
    return Trusted(
        target=args.trusted,
        folder=str(Path.cwd()),
        device=args.device,
        bf16=args.bf16,
        compile=args.compile,
    )


def _spoken(show: Callable[[str], None], keep: Callable[[str], None]) -> Watch:
    """What we are doing and what has come of it, in two lines that change in place.

    `keep`: for what is to stay on the screen.
    """
    doing = ""

    def watch(event: Event) -> None:
        nonlocal doing
        if event.kind == "unit":
            given = event.data
            show(
                f"{doing}\n  {given['samples']:,} samples in {given['accepted']:,} updates, "
                f"loss {given['loss']:.4f}. Ctrl-C stops."
            )
        elif event.stays:
            keep(event.text)
        else:
            doing = event.text if event.kind == "state" else doing
            show(event.text)

    return watch


def _lines(to_stderr: bool) -> Watch:
    """Every change of state as a line; single units would only fill a log."""

    def watch(event: Event) -> None:
        if event.kind in ("state", "trouble"):
            print(event.text, file=sys.stderr if to_stderr else sys.stdout, flush=True)

    return watch
