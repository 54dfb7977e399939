"""`report.html` of a data folder: what was found and what it became, in one file to look at."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from crowdgrad.data.dataset import SPLITS
from crowdgrad.data.folder import DataFolder
from crowdgrad.data.preparing.record import Record
from crowdgrad.data.preview import in_words, is_picture, thumbnail
from crowdgrad.domain.data import Card, Field, Moment
from crowdgrad.host.telling.report import STYLE

PREVIEWED = 10
PICTURES = 48
MOST_BARS = 30
MOST_MOMENTS = 8
EXTRA = """
.thumbs{display:grid;grid-template-columns:repeat(auto-fill,minmax(96px,1fr));gap:14px}
.thumbs figure{margin:0;text-align:center;color:var(--dim);font-size:12px;overflow-wrap:anywhere}
.thumbs img{width:96px;height:96px;object-fit:contain;border-radius:6px;background:var(--edge);
image-rendering:pixelated}
.bar.wide{width:100%;min-width:120px}
table+p.note{margin-top:12px}
td.w{white-space:normal;text-align:left;max-width:36em;overflow-wrap:anywhere}
"""


def render(folder: DataFolder, record: Record) -> str:
    manifest, card = folder.manifest, folder.manifest.card
    licence = card.licence or "licence unknown"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(manifest.title)} · crowdgrad data</title><style>{STYLE}{EXTRA}</style></head><body>
<main><h1>{escape(manifest.title)}</h1>
<p class="sub">{escape(f"Made of {card.source or 'arrays'}; {licence}.")}</p>
<div class="cards">{_cards(folder)}</div>
{_preview(folder)}
<div class="two">{_classes(card)}
<section><h2>What it became</h2>{_fields(manifest.fields)}</section></div>
<section><h2>What was found</h2>{_columns(record)}</section>
{_bad(record)}
<footer>Data <code>{folder.name[:16]}…</code>, root <code>{folder.seal.root[:16]}…</code>, sealed
by <code>{folder.seal.key.hex()[:16]}…</code>. Written by crowdgrad.</footer>
</main></body></html>
"""


def _cards(folder: DataFolder) -> str:
    manifest = folder.manifest
    cards = [(f"{manifest.records(split):,}", f"{split} records") for split in SPLITS]
    size = sum(shard.bytes for shard in manifest.shards)
    cards += [
        (_bytes(size), "to spread"),
        (_bytes(manifest.record_bytes), "a record"),
        (f"{len(manifest.shards):,}", "shards"),
        (f"{manifest.card.left_out:,}", "records left out"),
    ]
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in cards
    )


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _preview(folder: DataFolder) -> str:
    manifest = folder.manifest
    pictured = [n for n, field in enumerate(manifest.fields) if is_picture(field)]
    columns = folder.some("train", PICTURES if pictured else PREVIEWED)
    rows = in_words(manifest.fields, columns, manifest.card)
    if pictured:
        at, last = pictured[0], len(manifest.fields) - 1
        figures = "".join(
            f'<figure><img alt="" src="data:image/png;base64,{_png(columns[at][row])}">'
            f"<figcaption>{escape(cells[last] if last != at else '')}</figcaption></figure>"
            for row, cells in enumerate(rows)
        )
        return f'<section><h2>Some records</h2><div class="thumbs">{figures}</div></section>'
    head = "".join(f"<th class='l'>{escape(field.name)}</th>" for field in manifest.fields)
    body = "".join(
        "<tr>" + "".join(f'<td class="w">{escape(cell)}</td>' for cell in cells) + "</tr>"
        for cells in rows
    )
    return f"<section><h2>Some records</h2>{_table(head, body)}</section>"


def _png(pixels: object) -> str:
    return base64.b64encode(thumbnail(pixels)).decode()  # type: ignore[arg-type]


def _classes(card: Card) -> str:
    if not card.counts:
        return ""
    most = max(card.counts) or 1
    pairs = list(zip(card.classes, card.counts, strict=True))
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{count:,}</td><td class='l'><span class='bar wide'>"
        f"<i style='width:{100 * count / most:.1f}%'></i></span></td></tr>"
        for name, count in pairs[:MOST_BARS]
    )
    more = len(pairs) - MOST_BARS
    rest = f'<p class="note">and {more:,} more classes</p>' if more > 0 else ""
    head = "<th>Class</th><th>Records</th><th></th>"
    return f"<section><h2>Records of each class</h2>{_table(head, body)}{rest}</section>"


def _fields(fields: Sequence[Field]) -> str:
    head = (
        "<th>Field</th><th class='l'>Stored as</th><th class='l'>Mean</th>"
        "<th class='l'>Deviation</th>"
    )
    body = "".join(
        f"<tr><td>{escape(field.name)}</td><td class='l'>{escape(stored(field))}</td>"
        f"<td class='l'>{escape(moment(field.mean))}</td>"
        f"<td class='l'>{escape(moment(field.std))}</td></tr>"
        for field in fields
    )
    return _table(head, body) + (
        '<p class="note">Records keep the type they are stored in; subtracting the mean and '
        "dividing by the deviation of the training records is the program's first step.</p>"
    )


def stored(field: Field) -> str:
    return f"{field.dtype} {'×'.join(map(str, field.shape))}".strip()


def moment(value: Moment | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, tuple):
        return f"{value:.5g}"
    shown = ", ".join(f"{number:.4g}" for number in value[:MOST_MOMENTS])
    return shown + (", …" if len(value) > MOST_MOMENTS else "")


def _columns(record: Record) -> str:
    head = "<th>Column</th><th class='l'>Kind</th><th class='l'>Role</th><th class='l'>Why</th>"
    body = "".join(
        f"<tr><td>{escape(plan.name)}</td><td class='l'>{escape(plan.kind)}</td>"
        f"<td class='l'>{escape(plan.role)}</td><td class='l'>{escape(plan.reason)}</td></tr>"
        for plan in record.schema.columns
    )
    notes = "".join(f'<p class="note">{escape(note)}.</p>' for note in record.notes)
    return _table(head, body) + notes


def _bad(record: Record) -> str:
    if not record.bad_counts:
        return ""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in record.bad_counts.items())
    head = "<th>File</th><th>Line</th><th class='l'>What</th><th class='l'>Words</th>"
    body = "".join(
        f"<tr><td>{escape(bad.file)}</td><td>{bad.line or ''}</td>"
        f"<td class='l'>{escape(bad.kind)}</td><td class='l'>{escape(bad.detail)}</td></tr>"
        for bad in record.bad
    )
    return (
        f'<section><h2>Left out</h2><p class="note">{escape(kinds)}. The first:</p>'
        f"{_table(head, body)}</section>"
    )


def _table(head: str, body: str) -> str:
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
