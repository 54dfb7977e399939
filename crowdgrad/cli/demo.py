"""`crowdgrad demo`: everything on one machine, for real.

A matchmaker, a host with its own worker and three volunteers, each a process of its own, train a
network over real sockets. Midway one volunteer is killed and another joins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, write_json
from crowdgrad.errors import ChildDied
from crowdgrad.process import Child, end_all

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.cli.display import View
    from crowdgrad.host.telling.status import Status

TEXT = """\
See crowdgrad at work on this machine: a matchmaker, a host and three
volunteers, all processes of their own, train a network for about a minute. One
volunteer is killed midway, another joins.

  crowdgrad demo                  MNIST, about a minute
  crowdgrad demo --quick          the same in a few seconds
  crowdgrad demo --data digits    small images that need no download
"""
NAMES = ("ada", "blaise", "chien-shiung")
LATECOMER = "dorothy"
KILL_AT, JOIN_AT = 0.35, 0.55
START_S = 120.0
POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """What is trained, and for how long."""

    title: str
    task: str
    lr: float
    minutes: float
    quick_minutes: float
    epochs: int = 400


SHOWS = {
    "mnist": Show(title="MNIST", task="mnist_mlp", lr=0.1, minutes=1.0, quick_minutes=0.15),
    "digits": Show(
        title="Small digits",
        task="digits_mlp",
        lr=0.1,
        minutes=0.3,
        quick_minutes=0.1,
        epochs=2000,
    ),
    "spirals": Show(
        title="Spirals", task="spirals_mlp", lr=0.1, minutes=0.3, quick_minutes=0.1, epochs=2000
    ),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="see it all happen on this machine",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", choices=list(SHOWS), default="mnist", help="what to train on")
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute")
    parser.add_argument("--offline", action="store_true", help="never use the network")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where results go (runs)")
    parser.add_argument("--plain", action="store_true", help="lines for a log, no live display")
    parser.add_argument("--home", metavar="DIR", help="where data sets are kept")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    import_module("torch")  # the host will need it: better said before anything is fetched
    console = Console(stderr=args.json == "-")
    data = _choose_data(args, console)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-demo-") as folder:
        stage = Stage(args=args, folder=Path(folder), console=console)
        try:
            stage.start(SHOWS[data], data)
            stage.follow()
            stage.wait_for_host()
        except BaseException:
            console.print("Stopping everything.")
            end_all(stage.children)
            if (Path(stage.run_folder) / "model.safetensors").exists():
                console.print(f"What was trained is in {stage.run_folder}", soft_wrap=True)
            raise
        finally:
            end_all(stage.children)
    return _finish(args, console, stage.run_folder)


def _choose_data(args: argparse.Namespace, console: Console) -> str:
    from crowdgrad.cli.data import shown_progress
    from crowdgrad.data import catalogue
    from crowdgrad.settings import load

    with shown_progress() as progress:
        name, _, what = catalogue.load_or_fallback(
            args.data,
            cache=load({"home": args.home}).home / "data",
            offline=args.offline,
            progress=progress,
        )
    console.print(f"Data: {what}", highlight=False, soft_wrap=True)
    return name


@dataclass(slots=True, kw_only=True)
class Stage:
    """The processes of the demo and what has happened to them."""

    args: argparse.Namespace
    folder: Path
    console: Console
    children: list[Child] = field(default_factory=list)
    volunteers: dict[str, Child] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    run_folder: str = ""
    url: str = ""
    _matchmaker: str = ""

    def start(self, show: Show, data: str) -> None:
        job = self.folder / "job.toml"
        minutes = show.quick_minutes if self.args.quick else show.minutes
        job.write_text(
            f'title = "{show.title} by volunteers"\ncause = "demonstration"\n'
            f'task = "crowdgrad.capture.models:{show.task}"\ndata = "{data}"\n'
            f"[recipe]\nlr = {show.lr}\n[stop]\nepochs = {show.epochs}\nminutes = {minutes}\n"
        )
        with self.console.status("Starting the matchmaker") as spinner:
            matchmaker = self._child(
                ["matchmaker", "--port", "0", "--database", "memory:", "--json"], "matchmaker"
            )
            self._matchmaker = str(self._wait_for(matchmaker, "matchmaker")["url"])
            for name in NAMES:
                self._volunteer(name)
            spinner.update("Starting the host: it captures the model and compares its gradients")
            host = self._child(
                ["host", str(job), "--matchmaker", self._matchmaker, "--yes", "--plain",
                 *self._home(), "--runs", self.args.runs, "--announce"],
                "host",
            )  # fmt: skip
            here = self._wait_for(host, "host")
        self.url, self.run_folder = str(here["url"]), str(here["folder"])
        self._tell(f"{len(self.children)} processes started; the job's code is {here['code']}")

    def follow(self) -> None:
        """Show the job until it is over."""
        from crowdgrad.cli.display import View

        status: Status | None = None
        with self._screen(View()) as show:
            while status is None or status.phase != "over":
                status = self._status()
                if status is not None:
                    self._direct(status)
                    show(status)
                elif self.host.code is not None:
                    return
                time.sleep(POLL_S)

    @property
    def host(self) -> Child:
        return next(child for child in self.children if child.arguments[0] == "host")

    def wait_for_host(self) -> None:
        """The host writes its run folder last. Raises ChildDied."""
        with self.console.status("Writing the model and the report"):
            self.host.wait(START_S)
        if self.host.code != 0:
            raise ChildDied(
                f"The host ended with code {self.host.code}: {self.host.last_words()}",
                advice="Run `crowdgrad demo` again; if it stays, report it.",
            )

    def _direct(self, status: Status) -> None:
        """The play: one volunteer dies, another comes."""
        victim = self.volunteers.get(NAMES[1])
        if status.progress >= KILL_AT and victim is not None:
            del self.volunteers[NAMES[1]]
            victim.kill()
            self._tell(f"killed {NAMES[1]} (SIGKILL): its units go to the others")
        if status.progress >= JOIN_AT and LATECOMER not in self.volunteers:
            self._volunteer(LATECOMER)
            self._tell(f"{LATECOMER} joins the running job")

    def _tell(self, what: str) -> None:
        self.story.append(what)
        if self.args.plain or not self.console.is_terminal:
            self.console.print(what[:1].upper() + what[1:] + ".", highlight=False)

    def _volunteer(self, name: str) -> None:
        self.volunteers[name] = self._child(
            ["work", "--matchmaker", self._matchmaker, "--guest", "--once", "--yes", "--plain",
             "--name", name, *self._home()],
            name,
            announces=False,
        )  # fmt: skip

    def _home(self) -> list[str]:
        return ["--home", self.args.home] if self.args.home else []

    def _child(self, arguments: list[str], name: str, *, announces: bool = True) -> Child:
        if announces:
            arguments = [*arguments, str(self.folder / f"{name}.json")]
        child = Child(arguments, log=self.folder / f"{name}.log")
        self.children.append(child)
        return child

    def _wait_for(self, child: Child, name: str) -> dict[str, object]:
        file = self.folder / f"{name}.json"
        deadline = time.monotonic() + START_S
        while not file.exists():
            if child.code is not None or time.monotonic() > deadline:
                raise ChildDied(f"The {name} did not start: {child.last_words()}")
            time.sleep(0.05)
        found: dict[str, object] = json.loads(file.read_text())
        return found

    def _status(self) -> Status | None:
        import msgspec

        from crowdgrad.host.telling.status import Status

        try:
            with urllib.request.urlopen(f"{self.url}/status", timeout=5) as reply:  # noqa: S310
                return msgspec.json.decode(reply.read(), type=Status)
        except (urllib.error.URLError, OSError):
            return None

    @contextlib.contextmanager
    def _screen(self, view: View) -> Iterator[Callable[[Status], None]]:
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        from crowdgrad.cli.display import plain

        if self.args.plain or not self.console.is_terminal:
            yield lambda status: print(plain(status), file=self.console.file, flush=True)
            return
        with Live(console=self.console, refresh_per_second=5, transient=True) as live:

            def show(status: Status) -> None:
                lines = [Text(f"  {line}", style="dim") for line in self.story[-4:]]
                live.update(Group(view.render(status), *lines))

            yield show


def _finish(args: argparse.Namespace, console: Console, folder: str) -> int:
    import msgspec

    from crowdgrad.cli.display import summary
    from crowdgrad.host.telling.status import Status

    job = json.loads((Path(folder) / "job.json").read_text())
    outcome = job["outcome"]
    summary(console, msgspec.convert(outcome, Status), folder)
    accuracy = (outcome["test"] or outcome["best"] or {"metrics": {}})["metrics"].get("accuracy")
    write_json(
        args.json,
        {
            "accuracy": accuracy,
            "seconds": outcome["elapsed_s"],
            "volunteers": len(outcome["members"]),
            "updates": outcome["updates"],
            "samples": outcome["samples"],
            "data": job["data"]["title"],
            "state": job["state"],
            "run": folder,
        },
    )
    sys.stdout.flush()
    return 0
