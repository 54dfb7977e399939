"""`crowdgrad work`: lend this machine."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.events import EVENTS_HELP, Lines, check_stdout
from crowdgrad.cli.output import JSON_HELP, add_common, write_json
from crowdgrad.domain.manners import LEAST_SHARE

if TYPE_CHECKING:
    from crowdgrad.domain.manners import Limits
    from crowdgrad.settings import Settings
    from crowdgrad.volunteer.events import Event, Watch
    from crowdgrad.volunteer.outcome import Outcome
    from crowdgrad.volunteer.remote.desk import Desk
    from crowdgrad.volunteer.remote.status import WorkStatus
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
  crowdgrad work --cpu 30%        of the time while you use this machine
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
    _add_manners(parser)
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
    _add_steering(parser)
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


def _add_manners(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cpu", metavar="SHARE", type=percent,
        help="of the time, while somebody uses this machine: 50%% or 0.5",
    )  # fmt: skip
    parser.add_argument(
        "--cpu-idle", metavar="SHARE", type=percent, help="of the time, while nobody does"
    )
    parser.add_argument("--threads", metavar="N", type=int, help="how many cores a batch may use")
    parser.add_argument(
        "--only-when-idle", action="store_true", help="rest while somebody uses this machine"
    )
    parser.add_argument("--on-battery", action="store_true", help="work on battery, too")
    parser.add_argument(
        "--limits", metavar="FILE",
        help="how hard to work, all of it, as `limits` of the HTTP API's status tells it",
    )  # fmt: skip


def percent(text: str) -> int:
    """An argument that says how much of the time: 50%, 50 or 0.5."""
    try:
        value = float(text.rstrip("% "))
    except ValueError:
        value = -1.0
    value = value if "%" in text or value > 1 else 100 * value
    if not 100 * LEAST_SHARE <= value <= 100:
        least = f"{LEAST_SHARE:.0%}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a share of {least} to 100%")
    return round(value)


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


def _add_steering(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", action="store_true", help=EVENTS_HELP)
    parser.add_argument(
        "--announce", metavar="FILE",
        help="serve the HTTP API on this machine, and write there where it is and its token; "
        "questions then wait for an answer there, too",
    )  # fmt: skip
    parser.add_argument(
        "--http-port", metavar="PORT", type=int, default=0,
        help="with --announce: port of the HTTP API (any free one)",
    )  # fmt: skip


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
    from crowdgrad.volunteer.governor import read_limits, settings_of

    check_stdout(args.events, args.json)
    said = {name: getattr(args, name) for name in ("home", "name", "matchmaker", "hours", "share")}
    caps = {"most_upload_mbps": args.upload, "most_download_mbps": args.download}
    manners = {name: getattr(args, name) for name in ("cpu", "cpu_idle", "threads")}
    kinds = ("only_causes", "trusted_only", "only_when_idle", "on_battery")
    flags = {name: getattr(args, name) or None for name in kinds}
    if args.hours is not None:
        hours_of_day(args.hours, called="--hours")
    limits = read_limits(Path(args.limits)) if args.limits else None
    kept = settings_of(limits) if limits is not None else {}
    settings = load({**said, **caps, **manners, **flags, **kept})
    outcomes = run_async(_work(args, settings, limits))
    write_json(args.json, {"jobs": [dataclasses.asdict(outcome) for outcome in outcomes]})
    return 0


async def _work(
    args: argparse.Namespace, settings: Settings, limits: Limits | None = None
) -> list[Outcome]:
    from rich.console import Console

    from crowdgrad.cli.ask import can_ask, whether_to_help
    from crowdgrad.process import stop_requests
    from crowdgrad.settings import worker_seed, worker_token
    from crowdgrad.volunteer.options import Options
    from crowdgrad.volunteer.serve import work

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
        announce=Path(args.announce) if args.announce else None,
        http_port=args.http_port,
        limits=limits,
        hosted=worker_seed() is not None,
    )
    to_stderr = args.json == "-" or args.events
    console = Console(stderr=to_stderr)
    outcomes: list[Outcome] = []
    asked = can_ask(console) and not args.tied
    with stop_requests() as stop:
        if args.events:
            ask = whether_to_help(console, ExitStack) if asked else None
            told = _Told(Lines())
            try:
                await work(
                    options, settings, stop, told.watch, outcomes, ask=ask, opened=told.opened
                )
            finally:
                told.finish()
        elif args.plain or not console.is_terminal:
            ask = whether_to_help(console, ExitStack) if asked else None
            await work(options, settings, stop, _lines(to_stderr), outcomes, ask=ask)
        else:
            from crowdgrad.cli.work_display import Screen

            async with Screen(console) as screen:
                ask = whether_to_help(console, screen.paused) if asked else None
                await work(
                    options, settings, stop, _staying(screen.keep), outcomes, ask=ask,
                    opened=lambda desk: screen.show(desk.status),
                )  # fmt: skip
    for outcome in outcomes:
        reason = outcome.reason[:1].upper() + outcome.reason[1:]
        part = f", {100 * outcome.share:.1f} % of all" if outcome.share is not None else ""
        thanks = f"{reason}. You gave {outcome.samples:,} samples{part}. Thank you."
        console.print(thanks, highlight=False, markup=False)
    return outcomes


class _Told:
    """What is written with --events: all that is said, and the status when it becomes another."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._say = lines.watch()
        self._desk: Desk | None = None
        self._last: tuple[object, ...] = ()

    def opened(self, desk: Desk) -> None:
        self._desk = desk
        desk.hear(self._look)
        self._look()

    def watch(self, event: Event) -> None:
        self._say(event)
        self._look()

    def finish(self) -> None:
        """The last status of all."""
        self._last = ()
        self._look()

    def _look(self) -> None:
        if self._desk is None:
            return
        status = self._desk.status()
        job = status.job.id if status.job is not None else ""
        question = status.question.id if status.question is not None else ""
        now = (status.state, status.effort, status.limits, job, question, len(status.jobs))
        if now != self._last:
            self._last = now
            self._lines.write("status", {"status": _as_table(status)})


def _as_table(status: WorkStatus) -> dict[str, object]:
    """Without the log: its lines were written as they came."""
    table = dataclasses.asdict(status)
    del table["log"]
    return table


def _trusted(args: argparse.Namespace) -> Trusted | None:
    """The owner's own model, as far as it can be judged without importing it."""
    from importlib.util import find_spec

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


def _staying(keep: Callable[[str], None]) -> Watch:
    """What is to stay on the screen; the panel shows the rest."""

    def watch(event: Event) -> None:
        if event.stays:
            keep(event.text)

    return watch


def _lines(to_stderr: bool) -> Watch:
    """Every change of state or effort as a line; single units would only fill a log."""

    def watch(event: Event) -> None:
        if event.kind in ("state", "effort", "trouble"):
            print(event.text, file=sys.stderr if to_stderr else sys.stdout, flush=True)

    return watch
