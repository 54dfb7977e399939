"""The errand `data`: fetch or prepare a data set, and say what is in it, with a few records.

A name of the catalogue is fetched; a prepared folder or an .npz file is taken as it is; anything
else (tables, pictures, texts, arrays) is prepared below the home folder, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.capture.ready import KINDS
from crowdgrad.data import catalogue
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.folder import DataFolder, is_folder, open_folder
from crowdgrad.data.formats.npz import read_npz
from crowdgrad.data.preparing.record import Record, read_record
from crowdgrad.data.preview import cell, is_picture
from crowdgrad.data.progress import Unit
from crowdgrad.data.sharding import card
from crowdgrad.domain.data import Card, Field
from crowdgrad.errors import DataMissing
from crowdgrad.host import preparing

SAMPLES = 24
LARGEST_SIDE = 64
"""Of a picture that is shown: larger ones are thinned out."""
FEW_CLASSES = 100
SPLITS = ("train", "validation", "test")
Array = NDArray[Any]
Tell = Callable[..., None]


def run(wish: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """`wish`: sources (a name, or paths), home, target. Raises CrowdgradError."""
    sources, home = [str(source) for source in wish["sources"]], Path(wish["home"])
    progress = _Told(tell)
    only = Path(sources[0]).expanduser()
    if len(sources) == 1 and not only.exists():
        if sources[0] not in catalogue.ENTRIES:
            raise DataMissing(
                f"There is no file {sources[0]}, and no data set of that name.",
                advice=f"Give a path, or one of {', '.join(catalogue.ENTRIES)}.",
            )
        found = catalogue.load(sources[0], cache=home / "data", progress=progress)
        return _of_arrays(sources[0], found)
    if len(sources) == 1 and is_folder(only):
        return _of_folder(open_folder(only.absolute()))
    if len(sources) == 1 and only.suffix == ".npz":
        return _of_arrays(str(only.absolute()), read_npz(only))
    return _of_folder(_prepared(sources, home, wish.get("target"), progress))


def _prepared(sources: list[str], home: Path, target: str | None, progress: _Told) -> DataFolder:
    places = [str(Path(source).expanduser().absolute()) for source in sources]
    wishes = preparing.asked_for(None, {} if target is None else {"target": [target]})
    name = hashlib.sha256("\n".join((*places, target or "")).encode()).hexdigest()[:12]
    out = home / "prepared" / f"{Path(places[0]).stem[:40] or 'data'}-{name}{preparing.ENDING}"
    return preparing.prepare_here(places, out, wishes, progress=progress, home=home).folder


class _Told:
    """How far it has come, for whoever asked."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._total: int | None = None
        self._done, self._shown, self._what = 0, -1.0, ""

    def start(self, total: int | None, what: str, unit: Unit = "bytes") -> None:
        self._total, self._done, self._shown, self._what = total, 0, -1.0, what
        self._say()

    def advance(self, n: int) -> None:
        self._done += n
        self._say()

    def done(self) -> None:
        self._tell(progress=None, doing=self._what)

    def _say(self) -> None:
        share = min(1.0, self._done / self._total) if self._total else None
        if share is None or share - self._shown >= 0.01:
            self._shown = share if share is not None else self._shown
            self._tell(progress=share, doing=self._what)


def _of_arrays(name: str, data: DataSet) -> dict[str, Any]:
    counts = {split: data.records(split) for split in SPLITS}  # type: ignore[arg-type]
    some = [column[:SAMPLES] for column in data.splits["train"]]
    labels = data.splits["train"][-1]
    return {"data": name, **_told(data.title, data.fields, counts, card(data), some, labels)}


def _of_folder(folder: DataFolder) -> dict[str, Any]:
    manifest, record = folder.manifest, read_record(folder.path)
    counts = {split: manifest.records(split) for split in SPLITS}  # type: ignore[arg-type]
    some = list(folder.some("train", SAMPLES))
    told = _told(manifest.title, manifest.fields, counts, manifest.card, some, None)
    if record is not None:
        told["fields"] = _columns(record)
        told["problems"] += [
            f"{n:,} records left out: {kind}" for kind, n in record.bad_counts.items()
        ]
    return {"data": str(folder.path), **told}


def _columns(record: Record) -> list[dict[str, str]]:
    return [
        {"name": plan.name, "kind": plan.kind, "role": plan.role, "sentence": plan.reason}
        for plan in record.schema.columns
    ]


def _told(
    title: str,
    fields: Sequence[Field],
    counts: dict[str, int],
    about: Card,
    some: Sequence[Array],
    labels: Array | None,
) -> dict[str, Any]:
    kind, shape = _kind(fields[0], about)
    return {
        "title": title,
        "records": sum(counts.values()),
        "kind": kind,
        "shape": shape,
        "classes": _classes(fields, about, labels),
        "fields": [_field(field) for field in fields],
        "splits": counts,
        "problems": list(about.notes),
        "bytes": sum(field.bytes for field in fields) * sum(counts.values()),
        "fits": {ready.kind: ready.fits(fields) for ready in KINDS},
        "samples": [_sample(kind, fields, some, about, row) for row in range(len(some[0]))],
    }


def _field(field: Field) -> dict[str, str]:
    size = "×".join(map(str, field.shape)) or "one number"
    return {
        "name": field.name,
        "kind": field.dtype,
        "role": "",
        "sentence": f"{size}, {field.dtype}",
    }


def _kind(field: Field, about: Card) -> tuple[str, list[int]]:
    """What the inputs are, and the shape that is shown: height, width, and channels last."""
    if is_picture(field):
        return "image", _shown_shape(field.shape)
    if len(field.shape) == 1 and field.dtype.startswith(("int", "uint")) and about.vocabulary:
        return "text", list(field.shape)
    if len(field.shape) <= 1:
        return "table", list(field.shape)
    return "other", list(field.shape)


def _shown_shape(shape: tuple[int, ...]) -> list[int]:
    height, width = (-(-side // _step(shape)) for side in shape[-2:])
    return [height, width, 3] if shape[:-2] == (3,) else [height, width]


def _step(shape: tuple[int, ...]) -> int:
    return -(-max(shape[-2:]) // LARGEST_SIDE)


def _classes(fields: Sequence[Field], about: Card, labels: Array | None) -> list[str] | None:
    if about.classes:
        return list(about.classes)
    whole = (
        len(fields) > 1 and fields[-1].shape == () and fields[-1].dtype.startswith(("int", "uint"))
    )
    if not whole or labels is None:
        return None
    values = np.unique(labels)
    return [str(int(value)) for value in values] if len(values) <= FEW_CLASSES else None


def _sample(
    kind: str, fields: Sequence[Field], some: Sequence[Array], about: Card, row: int
) -> dict[str, Any]:
    label = None
    if len(fields) > 1:
        label = cell(fields[-1], some[-1][row], about, target=True)
    inputs = fields[:-1] or fields
    if kind == "image":
        return {"input": _pixels(some[0][row], int(some[0].max(initial=0))), "label": label}
    words = [
        (field.name, cell(field, some[number][row], about, target=False))
        for number, field in enumerate(inputs)
    ]
    text = words[0][1] if len(words) == 1 else "; ".join(f"{name}: {w}" for name, w in words)
    return {"input": text, "label": label}


def _pixels(value: Array, most: int) -> list[float]:
    """From 0 to 1, row by row, channels last. The digits' pixels go from 0 to 16."""
    step = _step(value.shape)
    pixels = value[..., ::step, ::step].astype(np.float64) / (255 if most >= 32 else max(1, most))
    if pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    return [round(float(number), 3) for number in pixels.reshape(-1)]
