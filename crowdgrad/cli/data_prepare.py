"""`crowdgrad data prepare`: anything people have, made ready to spread and train."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdgrad.cli.output import JSON_HELP, whole, write_json

if TYPE_CHECKING:
    from crowdgrad.data.preparing.options import Options
    from crowdgrad.errors import BadRecords

BAD_SHOWN = 10
EXAMPLES = """examples:
  crowdgrad data prepare iris.csv           guesses everything, and says what
  crowdgrad data prepare iris.csv --look    only say what would be made of it
  crowdgrad data prepare photos/ --size 64x64
                                            pictures, in a folder for each class
  crowdgrad data prepare reviews.jsonl --tokens byte --length 256 --stratify
  crowdgrad data prepare plays.txt --length 128
                                            windows for a language model
  crowdgrad data prepare x.npy y.npy --out sensors
                                            arrays, inputs first
  crowdgrad data prepare https://example.org/a.parquet --target price
  crowdgrad data prepare mine:dataset       a Dataset in mine.py
  crowdgrad data prepare log.jsonl --follow and add what is appended

then data = "iris.prepared" in a job file, or cg.train(task, "iris.prepared").
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "prepare",
        help="make your own data ready: files, folders, addresses, Python objects",
        description="Reads tables (CSV, TSV), Parquet, Arrow, JSON lines, NumPy and idx files,\n"
        "folders of pictures, plain text, addresses (http, s3, gs, hdfs), module:object.\n"
        "Guesses what the columns are, says so, and can be told otherwise.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source", nargs="+", metavar="SOURCE", help="a path, an address, or module:object"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="where it goes (default: SOURCE.prepared)"
    )
    parser.add_argument("--look", action="store_true", help="show what would be made, and stop")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="a TOML file with any of these (see the docs)"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=_jobs, help="processes at work (default: one a core)"
    )
    parser.add_argument(
        "--follow", action="store_true", help="stay, and add records that come, until Ctrl-C"
    )
    parser.add_argument("--home", metavar="DIR", type=Path, help="where your key is kept")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    _add_columns(parser.add_argument_group("what the columns are"))
    _add_splits(parser.add_argument_group("which records"))
    _add_forms(parser.add_argument_group("pictures, texts, tables"))
    parser.set_defaults(run=run)


def _add_columns(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target", metavar="NAME[,NAME]", help="what is to be learned; '' for nothing"
    )
    group.add_argument("--input", metavar="NAME[,NAME]", help="learn from these columns alone")
    group.add_argument(
        "--column",
        metavar="NAME=KIND[:ENCODE]",
        action="append",
        default=[],
        help="number, category (:code or :onehot), text, sequence, image or drop",
    )
    group.add_argument(
        "--fill",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="in place of missing values of that column",
    )
    group.add_argument(
        "--no-normalise", action="store_true", help="leave numbers as they are stored"
    )
    group.add_argument("--title", metavar="WORDS", help="what people see (default: the source)")
    group.add_argument("--licence", metavar="WORDS", help="under which the data may be used")


def _add_splits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--bad",
        metavar="stop|skip|N",
        help="bad records: refuse them all (default), leave them out, or at most N of them",
    )
    group.add_argument("--seed", metavar="N", type=whole, help="of split and order (0)")
    share = "a share below 1, or a number of records"
    group.add_argument("--validation", metavar="N", type=float, help=f"{share} (0.1, ≤ 5,000)")
    group.add_argument("--test", metavar="N", type=float, help=f"{share} (0.1, ≤ 10,000)")
    group.add_argument(
        "--stratify", action="store_true", help="every split has the same share of every class"
    )
    group.add_argument(
        "--shard-records", metavar="N", type=_jobs, help="records of a shard (1 MiB, ≥ 1,024)"
    )


def _add_forms(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--size", metavar="HxW", type=_size, help="pictures: height × width")
    group.add_argument("--colour", choices=("rgb", "grey"), help="pictures: channels")
    group.add_argument("--fit", choices=("crop", "pad", "stretch"), help="pictures: how to resize")
    group.add_argument(
        "--tokens", metavar="char|byte|FILE", help="texts: by character, byte, or a vocabulary"
    )
    group.add_argument("--length", metavar="N", type=_jobs, help="texts: tokens of a record")
    group.add_argument("--delimiter", metavar="C", help="tables: what separates cells (guessed)")
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="tables: whether the first line names the columns (guessed)",
    )
    group.add_argument("--encoding", metavar="NAME", help="tables: of the text (utf-8)")


def _jobs(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number ≥ 1")
    return int(text)


def _size(text: str) -> list[int]:
    found = re.fullmatch(r"(\d+)(?:[x×*](\d+))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 64x64")
    height, width = found.groups()
    return [int(height), int(width or height)]


def asked(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say, as a file would. Raises UserError."""
    columns: dict[str, dict[str, Any]] = {}
    for text in args.column:
        name, kind = _pair(text, "--column", "age=number")
        kind, _, encode = kind.partition(":")
        columns.setdefault(name, {})["kind"] = kind
        if encode:
            columns[name]["encode"] = encode
    for text in args.fill:
        name, value = _pair(text, "--fill", "age=0")
        columns.setdefault(name, {})["fill"] = _number(value)
    table: dict[str, Any] = {
        "title": args.title, "licence": args.licence, "seed": args.seed,
        "validation": args.validation, "test": args.test, "bad": _bad(args.bad),
        "shard_records": args.shard_records,
        "target": None if args.target is None else _names(args.target),
        "input": None if args.input is None else _names(args.input),
        "stratify": args.stratify or None,
        "growing": args.follow or None,
        "normalise": False if args.no_normalise else None,
        "columns": columns,
        "text": _given(tokens=args.tokens, length=args.length),
        "images": _given(size=args.size, colour=args.colour, fit=args.fit),
        "table": _given(delimiter=_delimiter(args.delimiter), header=args.header,
                        encoding=args.encoding),
    }  # fmt: skip
    return {name: value for name, value in table.items() if value not in (None, {})}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _delimiter(text: str | None) -> str | None:
    return {"\\t": "\t", "tab": "\t"}.get(text or "", text)


def _bad(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdigit() else text


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _pair(text: str, flag: str, example: str) -> tuple[str, str]:
    from crowdgrad.errors import UserError

    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise UserError(f"{flag} {text} says nothing.", advice=f"Write e.g. {flag} {example}.")
    return name, value


def run(args: argparse.Namespace) -> int:
    from crowdgrad.cli.data import shown_progress
    from crowdgrad.cli.data_follow import follow
    from crowdgrad.cli.data_show import print_folder, report_of
    from crowdgrad.errors import BadRecords
    from crowdgrad.host import preparing

    options = preparing.asked_for(args.config, asked(args))
    source: Any = _loaded(args.source)
    if args.look:
        return _look(source, options, args.json)
    out = preparing.place_for(args.source, args.out)
    if args.follow and preparing.goes_on(out, options):
        return follow(source, out, home=args.home, json=args.json)
    try:
        with shown_progress() as progress:
            result = preparing.prepare_here(
                source, out, options, jobs=args.jobs, progress=progress, home=args.home
            )
    except BadRecords as error:
        _say_bad(error)
        write_json(args.json, {"bad": error.counts, "shown": [list(row) for row in error.shown]})
        raise
    if args.follow:
        return follow(source, out, home=args.home, json=args.json)
    write_json(args.json, {**report_of(result.folder, result.record), "reused": result.reused})
    if args.json != "-":
        if result.reused:
            print(f"{out} is up to date: source and options are as they were.")
        print_folder(result.folder, result.record)
        print(f'Next: data = "{out}" in a job file. To look at: {out / preparing.REPORT}')
    return 0


def _loaded(sources: Sequence[str]) -> Any:
    """Paths and addresses as they are; module:object imported."""
    from crowdgrad.data.preparing.bringing import is_address

    for source in sources:
        if ":" in source and not is_address(source) and not Path(source).exists():
            from crowdgrad.capture.loading import load_object

            return load_object(source, Path(), object)
    if len(sources) == 1 and not Path(sources[0]).exists():
        from crowdgrad.cli.data import cache_of
        from crowdgrad.data import catalogue

        if sources[0] in catalogue.ENTRIES:
            return catalogue.load(sources[0], cache=cache_of(None))
    return list(sources)


def _look(source: Any, options: Options, json: str | None) -> int:
    from rich.console import Console

    from crowdgrad.cli.data_show import columns_table
    from crowdgrad.data.preparing.prepare import look

    found = look(source, options)
    write_json(
        json,
        {
            "format": found.format,
            "columns": [
                {"name": p.name, "kind": p.kind, "role": p.role, "reason": p.reason}
                for p in found.schema.columns
            ],
            "notes": list(found.notes),
        },
    )
    if json != "-":
        console = Console(soft_wrap=True)
        for note in found.notes:
            console.print(note, markup=False, highlight=False)
        console.print(columns_table(found.schema, found.sample))
        print("Nothing was written. Say otherwise with --column, --target, --input.")
    return 0


def _say_bad(error: BadRecords) -> None:
    for file, line, kind, words in error.shown[:BAD_SHOWN]:
        where = f"{file}:{line}" if line else file
        print(f"{where}: {kind}: {words}", file=sys.stderr)
    more = sum(error.counts.values()) - min(BAD_SHOWN, len(error.shown))
    if more > 0:
        print(f"… and {more:,} more", file=sys.stderr)
