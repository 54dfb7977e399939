"""The errand `data`: fetch or prepare a data set, and say what is in it, with a few records.

A name of the catalogue is fetched; a prepared folder or an .npz file is taken as it is; anything
else (tables, pictures, texts, arrays) is prepared below the home folder, once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from crowdgrad.data.preview import brightness, cell, is_picture, shown_shape, white_of
from crowdgrad.data.progress import Unit
from crowdgrad.data.sharding import card
from crowdgrad.domain.data import Card, Field
from crowdgrad.errors import DataMissing
from crowdgrad.files import disk_errors, private_folder
from crowdgrad.host import preparing
from crowdgrad.panel.results import DataField, DataFound, DataSample, Kind, Splits
from crowdgrad.panel.uploads import is_set

SAMPLES = 24
FEW_CLASSES = 100
Array = NDArray[Any]
Tell = Callable[..., None]


def run(wish: dict[str, Any], tell: Tell) -> DataFound:
    """`wish`: sources (a name, or paths), contents (of what was uploaded), home, target, skip_bad.

    Raises CrowdgradError.
    """
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
    asked: dict[str, Any] = {}
    if wish.get("target") is not None:
        asked["target"] = [wish["target"]]
    if wish.get("skip_bad"):
        asked["bad"] = "skip"
    contents = str(wish.get("contents", ""))
    return _of_folder(_prepared(sources, home, asked, progress, contents))


def _prepared(
    sources: list[str], home: Path, asked: dict[str, Any], progress: _Told, contents: str
) -> DataFolder:
    """Once for a place on this machine; once for what was uploaded, however often it was."""
    places = [Path(source).expanduser().absolute() for source in sources]
    wishes = preparing.asked_for(None, asked)
    what = contents or [str(place) for place in places]
    digest = hashlib.sha256(json.dumps([what, asked]).encode()).hexdigest()[:12]
    name = "upload" if is_set(places[0].name) else places[0].stem[:40] or "data"
    with disk_errors(home / "prepared"):
        private_folder(home / "prepared")
    out = home / "prepared" / f"{name}-{digest}{preparing.ENDING}"
    return preparing.prepare_here(
        [str(place) for place in places],
        out,
        wishes,
        progress=progress,
        home=home,
        contents=contents,
    ).folder


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


def _of_arrays(name: str, data: DataSet) -> DataFound:
    splits = Splits(
        train=data.records("train"),
        validation=data.records("validation"),
        test=data.records("test"),
    )
    some = [column[:SAMPLES] for column in data.splits["train"]]
    labels = data.splits["train"][-1]
    return _told(name, data.title, data.fields, splits, card(data), some, labels)


def _of_folder(folder: DataFolder) -> DataFound:
    manifest, record = folder.manifest, read_record(folder.path)
    splits = Splits(
        train=manifest.records("train"),
        validation=manifest.records("validation"),
        test=manifest.records("test"),
    )
    some = list(folder.some("train", SAMPLES))
    name, fields = str(folder.path), manifest.fields
    told = _told(name, manifest.title, fields, splits, manifest.card, some, None)
    if record is None:
        return told
    bad = (
        f"{n:,} {'record' if n == 1 else 'records'} left out: {kind}"
        for kind, n in record.bad_counts.items()
    )
    return replace(told, fields=_columns(record), problems=tuple(bad))


def _columns(record: Record) -> tuple[DataField, ...]:
    return tuple(
        DataField(name=plan.name, kind=plan.kind, role=plan.role, sentence=plan.reason)
        for plan in record.schema.columns
    )


def _told(
    name: str,
    title: str,
    fields: Sequence[Field],
    splits: Splits,
    about: Card,
    some: Sequence[Array],
    labels: Array | None,
) -> DataFound:
    kind, shape = _kind(fields[0], about)
    records = splits.train + splits.validation + splits.test
    return DataFound(
        data=name,
        title=title,
        records=records,
        kind=kind,
        shape=shape,
        classes=_classes(fields, about, labels),
        fields=tuple(map(_field, fields)),
        splits=splits,
        notes=tuple(about.notes),
        problems=(),
        bytes=sum(field.bytes for field in fields) * records,
        fits={ready.kind: ready.fits(fields) for ready in KINDS},
        samples=tuple(_sample(kind, fields, some, about, row) for row in range(len(some[0]))),
    )


def _field(field: Field) -> DataField:
    size = "×".join(map(str, field.shape)) or "one number"
    return DataField(name=field.name, kind=field.dtype, role="", sentence=f"{size}, {field.dtype}")


def _kind(field: Field, about: Card) -> tuple[Kind, tuple[int, ...]]:
    """What the inputs are, and the shape that is shown: height, width, and channels last."""
    if is_picture(field):
        return "image", shown_shape(field.shape)
    if len(field.shape) == 1 and field.dtype.startswith(("int", "uint")) and about.vocabulary:
        return "text", field.shape
    if len(field.shape) <= 1:
        return "table", field.shape
    return "other", field.shape


def _classes(fields: Sequence[Field], about: Card, labels: Array | None) -> tuple[str, ...] | None:
    if about.classes:
        return tuple(about.classes)
    whole = (
        len(fields) > 1 and fields[-1].shape == () and fields[-1].dtype.startswith(("int", "uint"))
    )
    if not whole or labels is None:
        return None
    values = np.unique(labels)
    return tuple(str(int(value)) for value in values) if len(values) <= FEW_CLASSES else None


def _sample(
    kind: Kind, fields: Sequence[Field], some: Sequence[Array], about: Card, row: int
) -> DataSample:
    label = None
    if len(fields) > 1:
        label = cell(fields[-1], some[-1][row], about, target=True)
    inputs = fields[:-1] or fields
    if kind == "image":
        told = brightness(some[0][row], white_of(some[0]))
        return DataSample(input=tuple(told), label=label)
    words = [
        (field.name, cell(field, some[number][row], about, target=False))
        for number, field in enumerate(inputs)
    ]
    text = words[0][1] if len(words) == 1 else "; ".join(f"{name}: {w}" for name, w in words)
    return DataSample(input=text, label=label)
