"""`crowdgrad data`: verified data sets on this machine, and your own made ready.

The catalogue (numpy) and the bar (rich) are loaded when a command runs, so that help stays instant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli import data_prepare, data_show
from crowdgrad.cli.output import JSON_HELP, write_json

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.status import Status

    from crowdgrad.data.catalogue import Entry
    from crowdgrad.data.fetching import Fetched
    from crowdgrad.data.progress import Progress, Unit

EXAMPLES = """examples:
  crowdgrad data list                       what there is, and what is here
  crowdgrad data get mnist                  fetch it once, for every later run
  crowdgrad data get mnist --data-dir DIR   take the files in DIR (.gz too),
                                            or put them there
  crowdgrad data get mnist --offline        only look at what is here already
  crowdgrad data get mnist --json -         the same as JSON, with sha256 hashes
  crowdgrad data show mnist                 fields, classes, some records
  crowdgrad data prepare FOLDER             make your own data ready
  crowdgrad data verify FOLDER.prepared     compare every byte with its hash
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "data",
        help="fetch verified data sets, or prepare your own",
        description="Data sets by name. Every file is checked against a hash that is part of\n"
        "crowdgrad, whenever it is fetched and whenever it is read.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="prepare | list | get | show | verify"
    )
    data_prepare.add_parser(commands)
    data_show.add_parsers(commands)
    get = commands.add_parser("get", help="fetch a data set, unless it is here already")
    get.add_argument("name", metavar="NAME", help="which one: see `crowdgrad data list`")
    get.add_argument("--offline", action="store_true", help="never use the network")
    get.set_defaults(run=run_get)
    every = commands.add_parser("list", help="the data sets we know by name")
    every.set_defaults(run=run_list)
    for command in (get, every):
        command.add_argument(
            "--data-dir",
            metavar="DIR",
            type=Path,
            help="look here and keep the files here (otherwise: the folder `data` of the home "
            "folder that `crowdgrad settings` names)",
        )
        command.add_argument("--json", metavar="FILE", help=JSON_HELP)


def run_get(args: argparse.Namespace) -> int:
    from crowdgrad.data import catalogue

    entry = catalogue.find(args.name)
    with shown_progress() as progress:
        fetched = catalogue.fetch(
            args.name,
            cache=cache_of(args.data_dir),
            local=args.data_dir,
            offline=args.offline,
            progress=progress,
        )
    report = _report(entry, fetched)
    write_json(args.json, report)
    if args.json != "-":
        print(_summary(report))
    return 0


def run_list(args: argparse.Namespace) -> int:
    from crowdgrad.data.catalogue import ENTRIES

    cache = cache_of(args.data_dir)
    rows = [
        {
            "name": entry.name,
            "title": entry.title,
            "summary": entry.summary,
            "here": all((cache / entry.name / file.name).is_file() for file in entry.files),
        }
        for entry in ENTRIES.values()
    ]
    write_json(args.json, {"datasets": rows, "folder": str(cache)})
    if args.json != "-":
        for row in rows:
            print(f"{row['name']:16}{row['summary']}{'' if row['here'] else ' (not here yet)'}")
    return 0


def cache_of(data_dir: Path | None) -> Path:
    if data_dir is not None:
        return data_dir
    from crowdgrad.settings import load

    return load().home / "data"


def _report(entry: Entry, fetched: Fetched) -> dict[str, object]:
    dataset = entry.build(fetched.contents)
    return {
        "name": entry.name,
        "title": dataset.title,
        "records": {split: dataset.records(split) for split in dataset.splits},
        "bytes": dataset.bytes,
        "source": fetched.source,
        "files": [
            {"name": file.name, "bytes": file.size_bytes, "sha256": file.sha256}
            for file in entry.files
        ],
        "note": " ".join((f"{dataset.note}.", *fetched.notes)),
    }


def _summary(report: dict[str, object]) -> str:
    records = report["records"]
    assert isinstance(records, dict)
    counts = ", ".join(f"{count:,} {split}" for split, count in records.items())
    lines = (
        f"{report['title']}: {counts} records, {report['bytes']:,} bytes, from {report['source']}",
        f"{report['note']}",
    )
    return "\n".join(lines)


@contextmanager
def shown_progress(doing: str = "", *, beside: Status | None = None) -> Iterator[Progress]:
    """A bar where a person watches standard error, else silence. `doing`: what is said before.
    `beside`: what turns meanwhile, and rests as long as there is a bar: two that move at once
    write over each other."""
    if not sys.stderr.isatty():
        from crowdgrad.data.progress import Silent

        yield Silent()
        return
    from rich import progress
    from rich.console import Console

    display = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[amount]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar = _Bar(display, doing, beside)
    try:
        yield bar
    finally:
        bar.done()


class _Bar:
    def __init__(self, display: Display, doing: str, beside: Status | None) -> None:
        self._display = display
        self._doing = doing
        self._beside = beside
        self._task = display.add_task("", amount="")
        self._done = 0
        self._total: int | None = None
        self._unit: Unit = "bytes"

    def start(self, total: int | None, what: str, unit: Unit = "bytes") -> None:
        words = f"{self._doing} {what}".strip()
        self._done, self._total, self._unit = 0, total, unit
        self._display.reset(self._task, total=total, description=words, amount=self._amount())
        if self._beside is not None:
            self._beside.stop()
        self._display.start()

    def advance(self, n: int) -> None:
        self._done += n
        self._display.update(self._task, advance=n, amount=self._amount())

    def _amount(self) -> str:
        scale, unit = (1e6, " MB") if self._unit == "bytes" else (1, "")
        digits = 1 if self._unit == "bytes" else 0
        done = f"{self._done / scale:,.{digits}f}"
        of = "" if self._total is None else f" of {self._total / scale:,.{digits}f}"
        return f"{done}{of}{unit}"

    def done(self) -> None:
        self._display.stop()
        if self._beside is not None:
            self._beside.start()
