"""`crowdgrad runs`: what became of each run, and wishes to those that go on."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdgrad.cli.output import JSON_HELP, fitted, write_json

if TYPE_CHECKING:
    from crowdgrad.host.remote.control import Wish
    from crowdgrad.host.remote.runs import Seen

TEXT = """\
The runs in ./runs: which go on, how the others ended. A run that goes on can be
paused, resumed, finished or stopped from any terminal of the same machine;
saying it twice does no harm.

  crowdgrad runs                 list them, the newest first
  crowdgrad runs show [RUN]      one of them, and what can be done next
  crowdgrad runs pause [RUN]     give no further units; take what is under way
  crowdgrad runs resume [RUN]    give units again
  crowdgrad runs finish [RUN]    train no further: validate, test, write results
  crowdgrad runs stop [RUN]      end now, keep the best so far, as Ctrl-C does

RUN is an id, a folder, or `last`; without it the only run that goes on. A run
whose host is gone goes on with `crowdgrad host --resume RUN`.
"""
RUN_HELP = "an id, a folder, or last (the only run that goes on)"
ACTIONS: dict[Wish, str] = {
    "pause": "give no further units; take what is under way",
    "resume": "give units again",
    "finish": "train no further: validate, test, write results",
    "stop": "end now; the best so far is kept",
}
DEFAULT_RUNS = "runs"
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "runs",
        help="list runs; pause, resume, finish or stop one",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", metavar="DIR", default=DEFAULT_RUNS, help="where they are (runs)")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run_list)
    commands = parser.add_subparsers(
        title="commands", metavar="show | pause | resume | finish | stop"
    )
    show = commands.add_parser("show", help="one run, and what can be done next")
    show.set_defaults(run=run_show)
    every = [show]
    for name, help in ACTIONS.items():
        command = commands.add_parser(name, help=help)
        command.set_defaults(run=run_wish, wish=name)
        every.append(command)
    for command in every:
        command.add_argument("name", metavar="RUN", nargs="?", help=RUN_HELP)
        # Without a default: what was said before the verb holds.
        command.add_argument(
            "--runs", metavar="DIR", default=argparse.SUPPRESS, help="where ids are looked for"
        )
        command.add_argument("--json", metavar="FILE", default=argparse.SUPPRESS, help=JSON_HELP)


def run_list(args: argparse.Namespace) -> int:
    from crowdgrad.errors import DataError
    from crowdgrad.host.remote.runs import look, run_folders

    seen, unreadable = [], []
    for folder in run_folders(Path(args.runs)):
        try:
            seen.append(look(folder))
        except DataError as error:
            unreadable.append(str(error))
    now = time.time()
    write_json(args.json, {"runs": [_as_json(one, now) for one in seen], "unreadable": unreadable})
    if args.json == "-":
        return 0
    if not seen:
        print(f"There are no runs in {args.runs}: `crowdgrad host` makes one.")
    for one in seen:
        print(f"{one.id}  {one.state}")
        print(fitted(f"  {_details(one, now)}", sys.stdout, "  "))
        if one.trouble:
            print(fitted(f"  {one.trouble}", sys.stdout, "  "))
    for line in unreadable:
        print(fitted(line, sys.stdout, "  "))
    return 0


def run_show(args: argparse.Namespace) -> int:
    from crowdgrad.host.earlier import find_run
    from crowdgrad.host.remote.runs import look

    runs = Path(args.runs)
    name = args.name or _one_alive(runs) or "last"
    seen, now = look(find_run(name, runs)), time.time()
    write_json(args.json, _as_json(seen, now))
    if args.json != "-":
        for label, value in _rows(seen, now).items():
            print(fitted(f"{label:16}{value}", sys.stdout, " " * 16))
        print("What can be done:")
        for command, what in next_steps(seen):
            print(f"  {command}")
            print(fitted(f"      {what}", sys.stdout, " " * 6))
    return 0


def run_wish(args: argparse.Namespace) -> int:
    from crowdgrad.errors import TargetError
    from crowdgrad.host.earlier import find_run
    from crowdgrad.host.remote.runs import id_in, look
    from crowdgrad.host.remote.steering import steer

    runs = Path(args.runs)
    name = args.name or _one_alive(runs)
    if name is None:
        raise TargetError(
            f"No run in {runs} goes on.", advice="`crowdgrad runs` lists how they ended."
        )
    folder = find_run(name, runs)
    seen = look(folder)
    answer = steer(folder, id_in(folder), args.wish)
    if answer is None:
        return _nobody_there(args, look(folder))
    write_json(args.json, {"run": str(folder), **dataclasses.asdict(answer)})
    if args.json != "-":
        print(fitted(f"{seen.id} is {answer.state}: {answer.reason}.", sys.stdout, "  "))
    return 0 if answer.holds else 1


def _nobody_there(args: argparse.Namespace, seen: Seen) -> int:
    """A run that no host answers for: it may be as wished all the same. Raises Unreachable."""
    from crowdgrad.errors import Unreachable
    from crowdgrad.host.remote.control import HOLDS

    ending = seen.state == "ending" and args.wish in ("stop", "finish")
    holds = ending or (seen.state in HOLDS[args.wish] and not seen.alive)
    (command, what), *_ = next_steps(seen)
    write_json(args.json, {"run": str(seen.folder), "state": seen.state, "changed": False,
                           "holds": holds, "reason": seen.reason})  # fmt: skip
    if holds:
        if args.json != "-":
            reason = f" ({seen.reason})" if seen.reason else ""
            print(fitted(f"{seen.id} is {seen.state} already{reason}.", sys.stdout, "  "))
        return 0
    if seen.alive:
        raise Unreachable(f"{seen.id} cannot {args.wish}: {seen.reason}.", advice="Try again.")
    raise Unreachable(
        f"{seen.id} is not running: it {_past(seen.state)}.", advice=f"`{command}` {what}."
    )


def _one_alive(runs: Path) -> str | None:
    """The folder of the only run that goes on; None if none does. Raises TargetError."""
    from crowdgrad.errors import DataError, TargetError
    from crowdgrad.host.remote.runs import look, run_folders

    alive = []
    for folder in run_folders(runs):
        try:
            if look(folder).alive:
                alive.append(folder)
        except DataError:
            continue  # `crowdgrad runs` names it
    if len(alive) > 1:
        names = ", ".join(folder.name for folder in alive)
        raise TargetError(f"Several runs go on: {names}.", advice="Say which.")
    return str(alive[0]) if alive else None


def next_steps(seen: Seen) -> list[tuple[str, str]]:
    """Commands that make sense now, each with what it does; never none."""
    name = seen.id if seen.folder == Path(DEFAULT_RUNS) / seen.id else str(seen.folder)
    steer = {wish: (f"crowdgrad runs {wish} {name}", what) for wish, what in ACTIONS.items()}
    if seen.alive and not seen.answers:
        return [(f"crowdgrad runs show {name}", "looks again")]
    if seen.alive:
        if seen.state == "finishing":
            return [steer["stop"]]
        first: Wish = "resume" if seen.state == "paused" else "pause"
        return [steer[first], steer["finish"], steer["stop"]]
    again = ("crowdgrad host JOB", "starts again: it left no checkpoint")
    if seen.resumable and seen.checkpoint_at is not None:
        more = " --epochs N" if seen.state == "finished" else ""
        does = "trains it further" if more else "goes on from its last checkpoint"
        again = (f"crowdgrad host --resume {name}{more}", does)
    predict = (f"crowdgrad predict {name} FILE", "asks its model")
    return [again, predict] if (seen.folder / "model.onnx").is_file() else [again]


def _past(state: str) -> str:
    return {"finished": "has finished", "stopped": "was stopped"}.get(state, f"has {state}")


def _details(seen: Seen, now: float) -> str:
    parts = [f"“{seen.title}”", _epochs(seen)]
    parts += [f"best {seen.watched} {seen.best}"] if seen.best != "–" else []
    parts += [f"{spell_age(now - seen.started_at)} old", spell_bytes(seen.bytes)]
    return ", ".join(filter(None, parts))


def _epochs(seen: Seen) -> str:
    done = "–" if seen.epochs_done is None else f"{seen.epochs_done:.1f}"
    return f"epoch {done} of {seen.epochs}" if seen.epochs else ""


def _rows(seen: Seen, now: float) -> dict[str, str]:
    reason = f": {seen.reason}" if seen.reason else ""
    checkpoint = ""
    if seen.checkpoint_at is not None:
        checkpoint = f"{spell_age(now - seen.checkpoint_at)} ago"
    here = "" if seen.members is None else f"{seen.members}, this machine's own worker included"
    rows = {
        "Run": seen.id,
        "Title": seen.title,
        "State": f"{seen.state}{reason}",
        "Progress": _epochs(seen),
        f"Best {seen.watched}"[:15]: seen.best,
        f"Test {seen.watched}"[:15]: "" if seen.test == "–" else seen.test,
        "Volunteers": here,
        "Begun": f"{spell_age(now - seen.started_at)} ago",
        "Last checkpoint": checkpoint or "none",
        "Trouble": seen.trouble,
        "Folder": f"{seen.folder} ({spell_bytes(seen.bytes)})",
    }
    return {label: value for label, value in rows.items() if value}


def _as_json(seen: Seen, now: float) -> dict[str, Any]:
    return {
        **dataclasses.asdict(seen),
        "folder": str(seen.folder),
        "age_s": now - seen.started_at,
        "next": [command for command, _ in next_steps(seen)],
    }


def spell_age(seconds: float) -> str:
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def spell_bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"
