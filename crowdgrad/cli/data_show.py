"""`crowdgrad data show` and `verify`: what a data set holds, and whether it is whole."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdgrad.cli.output import JSON_HELP, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from crowdgrad.data.folder import DataFolder
    from crowdgrad.data.preparing.record import Record
    from crowdgrad.data.preparing.schema import Schema
    from crowdgrad.domain.data import Card, Field

SHOWN = 5
CLASSES_SHOWN = 12


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    show = commands.add_parser("show", help="fields, splits, classes and some records")
    show.add_argument("--records", metavar="N", type=int, default=SHOWN, help=f"how many ({SHOWN})")
    show.add_argument(
        "--record",
        metavar="SHARD:ROW",
        action="append",
        default=[],
        help="only this one of a prepared folder, as reports name it; as often as you like",
    )
    show.set_defaults(run=run_show)
    verify = commands.add_parser("verify", help="read every byte and compare it with its hash")
    verify.set_defaults(run=run_verify)
    for command in (show, verify):
        command.add_argument("name", metavar="NAME|DIR", help="of the catalogue, or prepared")
        command.add_argument("--data-dir", metavar="DIR", type=Path, help="where the files are")
        command.add_argument("--json", metavar="FILE", help=JSON_HELP)


def run_show(args: argparse.Namespace) -> int:
    from crowdgrad.data.folder import is_folder, open_folder
    from crowdgrad.data.preparing.record import read_record

    if is_folder(Path(args.name)):
        folder = open_folder(Path(args.name))
        if args.record:
            return _show_records(folder, args.record, args.json)
        record = read_record(folder.path)
        write_json(args.json, report_of(folder, record))
        if args.json != "-":
            print_folder(folder, record, args.records)
        return 0
    return _show_known(args)


def _show_records(folder: DataFolder, places: Sequence[str], json: str | None) -> int:
    """The records that a report found worth a look. Raises UserError."""
    from crowdgrad.data.preview import in_words
    from crowdgrad.errors import UserError

    manifest, told = folder.manifest, []
    for place in places:
        shard, _, row = place.partition(":")
        inside = shard.isdigit() and row.isdigit() and int(shard) < len(manifest.shards)
        if not inside or int(row) >= manifest.shards[int(shard)].records:
            raise UserError(
                f"there is no record {place}.",
                advice=f"Write SHARD:ROW; there are {len(manifest.shards)} shards, from 0 on.",
            )
        columns = [column[int(row)][None] for column in folder.columns(int(shard))]
        (words,) = in_words(manifest.fields, columns, manifest.card)
        told.append(dict(zip((field.name for field in manifest.fields), words, strict=True)))
    write_json(json, {"records": told})
    if json != "-":
        for place, record in zip(places, told, strict=True):
            print(f"{place}  " + "; ".join(f"{name}: {text}" for name, text in record.items()))
    return 0


def _show_known(args: argparse.Namespace) -> int:
    """A data set of the catalogue, fetched if need be."""
    from crowdgrad.cli.data import cache_of, shown_progress
    from crowdgrad.data import catalogue
    from crowdgrad.data.sharding import card

    with shown_progress() as progress:
        data = catalogue.load(
            args.name, cache=cache_of(args.data_dir), local=args.data_dir, progress=progress
        )
    about = card(data)
    counts = {split: data.records(split) for split in data.splits}
    some = [column[: args.records] for column in data.splits["train"]]
    write_json(args.json, _report(data.title, data.fields, counts, data.bytes, about))
    if args.json != "-":
        print_data(data.title, data.fields, counts, data.bytes, about, some)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    from crowdgrad.data.folder import is_folder

    path = Path(args.name)
    report = _verify_folder(path) if is_folder(path) else _verify_known(args)
    write_json(args.json, report)
    if args.json != "-":
        print(f"{args.name} is whole: {report['files']:,} files, {report['bytes']:,} bytes.")
    return 0


def _verify_folder(path: Path) -> dict[str, object]:
    """Raises DataError for the first thing that is not as it should be."""
    from crowdgrad.cli.data import shown_progress
    from crowdgrad.data.folder import open_folder
    from crowdgrad.net.identity import digest_of

    folder = open_folder(path)
    sizes = {c.hash: c.bytes for shard in folder.manifest.shards for c in shard.chunks}
    with shown_progress("verifying") as progress:
        progress.start(sum(sizes.values()), str(path))
        for name in folder.chunks:
            progress.advance(len(folder.chunks[name]))
        progress.done()
    return {
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "root": folder.seal.root,
        "sealed_by": digest_of(folder.seal.key)[:16],
    }


def _verify_known(args: argparse.Namespace) -> dict[str, object]:
    from crowdgrad.cli.data import cache_of
    from crowdgrad.data import catalogue

    entry = catalogue.find(args.name)
    catalogue.verify(args.name, cache=cache_of(args.data_dir))
    return {"files": len(entry.files), "bytes": sum(file.size_bytes for file in entry.files)}


# -- what people see --------------------------------------------------------------------------


def print_folder(folder: DataFolder, record: Record | None, records: int = SHOWN) -> None:
    from rich.console import Console

    manifest = folder.manifest
    if record is not None:
        Console(soft_wrap=True).print(columns_table(record.schema, {}))
    counts = {split: manifest.records(split) for split in ("train", "validation", "test")}
    size = sum(shard.bytes for shard in manifest.shards)
    some = folder.some("train", records) if records > 0 else None
    print_data(manifest.title, manifest.fields, counts, size, manifest.card, some)
    if record is not None and record.bad_counts:
        for bad in record.bad[:SHOWN]:
            print(f"left out: {bad.where}: {bad.kind}: {bad.detail}")


def print_data(
    title: str,
    fields: Sequence[Field],
    counts: Mapping[Any, int],
    size: int,
    card: Card,
    some: Sequence[Any] | None,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from crowdgrad.data.preview import in_words
    from crowdgrad.host.telling.data_report import moment, stored

    console = Console(soft_wrap=True)
    records = ", ".join(f"{count:,} {split}" for split, count in counts.items() if count)
    print(f"{title}: {records} records, {size / 1e6:,.1f} MB")
    print(f"source: {card.source or '–'}; licence: {card.licence or 'unknown'}")
    if card.classes:
        named = [
            f"{name} ({count:,})" if card.counts else name
            for name, count in zip(card.classes, card.counts or card.classes, strict=True)
        ]
        more = f", … {len(named)} in all" if len(named) > CLASSES_SHOWN else ""
        print(f"classes: {', '.join(named[:CLASSES_SHOWN])}{more}")
    for note in card.notes:
        print(f"note: {note}")
    table = Table("field", "stored as", "mean", "deviation", box=None, pad_edge=False)
    for field in fields:
        table.add_row(field.name, stored(field), moment(field.mean), moment(field.std))
    console.print(table)
    if some is not None and len(some[0]):
        preview = Table(*(field.name for field in fields), box=None, pad_edge=False)
        for row in in_words(fields, some, card):
            preview.add_row(*(_plain(cell) for cell in row))
        console.print(preview)


def _plain(cell: str) -> str:
    from rich.markup import escape

    return escape(cell)


def columns_table(schema: Schema, sample: Mapping[str, Sequence[Any]]) -> Table:
    from rich.table import Table

    table = Table("column", "kind", "role", "why", box=None, pad_edge=False)
    if sample:
        table.add_column("for instance")
    for plan in schema.columns:
        cells = [plan.name, plan.kind, plan.role, plan.reason]
        if sample:
            cells.append(_instance(sample.get(plan.name, ())))
        table.add_row(*map(_plain, cells))
    return table


def _instance(values: Sequence[Any]) -> str:
    from crowdgrad.data.preparing.columns import excerpt

    held = [value for value in values if value is not None and str(value) != ""][:3]
    return excerpt(", ".join(str(value) for value in held))[:60]


def report_of(folder: DataFolder, record: Record | None) -> dict[str, object]:
    manifest = folder.manifest
    counts = {split: manifest.records(split) for split in ("train", "validation", "test")}
    size = sum(shard.bytes for shard in manifest.shards)
    told = _report(manifest.title, manifest.fields, counts, size, manifest.card)
    told |= {
        "folder": str(folder.path),
        "manifest": folder.name,
        "root": folder.seal.root,
        "shards": len(manifest.shards),
        "growing": folder.growing,
    }
    if record is not None:
        told |= {
            "columns": [
                {"name": p.name, "kind": p.kind, "role": p.role, "reason": p.reason}
                for p in record.schema.columns
            ],
            "bad": record.bad_counts,
        }
    return told


def _report(
    title: str, fields: Sequence[Field], counts: Mapping[Any, int], size: int, card: Card
) -> dict[str, object]:
    return {
        "title": title,
        "records": dict(counts),
        "bytes": size,
        "source": card.source,
        "licence": card.licence,
        "classes": list(card.classes),
        "counts": list(card.counts),
        "left_out": card.left_out,
        "notes": list(card.notes),
        "fields": [
            {
                "name": field.name,
                "dtype": field.dtype,
                "shape": list(field.shape),
                "mean": field.mean,
                "std": field.std,
            }
            for field in fields
        ],
    }
