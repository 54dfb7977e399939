"""Records that come later: a source that grows becomes new shards at the end of a data folder.

What the columns are was decided when the folder was made; what does not fit any more (a new word, a
number too large for its type) is a bad record. New records wait until a shard is full, or until the
first of them has waited long enough; then they are shuffled among themselves and cut.

How far the source has been read is written down before the manifest that has the records, together
with how many shards that manifest has. So whoever is killed in between knows by the number of
shards whether the records are in: none is added twice, and none is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crowdgrad.data.dataset import shuffled
from crowdgrad.data.folder import GROWING, DataFolder, open_folder, write_chunk, write_manifest
from crowdgrad.data.preparing import fitting
from crowdgrad.data.preparing.columns import Array, Bad, Block, Coded, Column, Dense, Ragged
from crowdgrad.data.preparing.finding import find
from crowdgrad.data.preparing.fitting import FieldPlan, Fitted
from crowdgrad.data.preparing.objects import as_row, block_of
from crowdgrad.data.preparing.parts import Part, SourceFile
from crowdgrad.data.preparing.placing import SHARD_BYTES, SHARD_RECORDS
from crowdgrad.data.preparing.reading import reader_of
from crowdgrad.data.preparing.reading.ranges import appended_ranges
from crowdgrad.data.preparing.record import Record, read_record, write_record
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import Card, Chunk, Manifest, Shard
from crowdgrad.errors import BadRecords, DataMalformed, DataMissing
from crowdgrad.net.identity import Identity

PATIENCE_S = 10.0
"""How long the first record of an unfinished shard waits."""
FEWEST = 32
"""Records of a shard that is cut before it is full: fewer wait on."""
SETTLED_S = 1.0
"""A file that is read as a whole has not changed for so long."""
GROWING_LINES = ("table", "lines")
"""Formats to whose files lines may be appended; of the others, only new files are read."""
Clock = Callable[[], float]


def when_to_cut(
    records: int, waited_s: float, *, full: int, patience_s: float, ending: bool
) -> tuple[bool, str]:
    """Whether the waiting records become shards now, and why."""
    if records >= full:
        return True, f"{records} records fill a shard of {full}"
    if records and ending:
        return True, "the source has ended"
    if records >= FEWEST and waited_s >= patience_s:
        return True, f"the first of {records} has waited {waited_s:.0f} s"
    return False, f"{records} of {full} are here"


class Adder:
    """Adds records to one data folder; nobody else does at the same time.

    What waits goes in as a whole: how far a file has been read is one number.
    """

    def __init__(
        self,
        folder: Path,
        key: Identity,
        *,
        clock: Clock = time.monotonic,
        patience_s: float = PATIENCE_S,
        heard: Callable[[str], None] = lambda words: None,
    ) -> None:
        """`heard` is told of every new shard. Raises DataMissing, DataMalformed."""
        record = read_record(folder)
        if record is None:
            raise DataMissing(
                f"{folder} was not made by `crowdgrad data prepare`, or by another version.",
                advice="Prepare the data first.",
            )
        if record.fitted.length:
            raise DataMalformed(
                "plain text cannot grow: its windows run on.",
                advice='Write JSON lines, {"text": "…"} each.',
            )
        self._folder = folder
        self._key = key
        self._clock = clock
        self._patience_s = patience_s
        self._heard = heard
        self._data: DataFolder = open_folder(folder)
        self._record = _settled(record, len(self._data.manifest.shards))
        self._waiting: list[list[Array]] = []
        self._waiting_since: float | None = None
        self._labels: dict[str, int] = {}
        self.read_to: dict[str, int] = dict(self._record.added)
        """How far each file has been read, waiting records included."""
        self.bad = sum(self._record.bad_counts.values())
        (folder / GROWING).touch()

    @property
    def record(self) -> Record:
        return self._record

    @property
    def manifest(self) -> Manifest:
        return self._data.manifest

    @property
    def waiting(self) -> int:
        return sum(len(arrays[0]) for arrays in self._waiting)

    def add(self, block: Block) -> int:
        """Takes a block's good records; how many. Raises BadRecords."""
        columns, misfits = _fitting(block, self._record.fitted)
        found = [*block.bad, *misfits]
        count = sum(block.bad_counts.values()) + len(misfits)
        if count:
            self._judge(found, count, block.bad_counts, misfits)
        records = block.records - len(misfits)
        if records:
            if self._waiting_since is None:
                self._waiting_since = self._clock()
            self._waiting.append(fitting.encode(columns, self._record.fitted))
            self._count_classes(columns)
        return records

    def _judge(
        self, found: Sequence[Bad], count: int, counts: Mapping[str, int], misfits: Sequence[Bad]
    ) -> None:
        kinds = dict(self._record.bad_counts)
        for kind, times in counts.items():
            kinds[kind] = kinds.get(kind, 0) + times
        for bad in misfits:
            kinds[bad.kind] = kinds.get(bad.kind, 0) + 1
        limit = self._record.options.bad
        self.bad += count
        if limit == "stop" or (isinstance(limit, int) and self.bad > limit):
            raise BadRecords(
                f"{count} new records are bad. The first: {found[0].where}: {found[0].kind}: "
                f"{found[0].detail}.",
                advice="Mend them, or prepare with --bad skip.",
                counts=kinds,
                shown=[(bad.file, bad.line, bad.kind, bad.detail) for bad in found],
            )
        self._record = msgspec.structs.replace(
            self._record, bad_counts=kinds, bad=(*self._record.bad, *found)[-200:]
        )

    def _count_classes(self, columns: Mapping[str, Column]) -> None:
        target, classes = self._record.fitted.target, self._record.fitted.classes
        if not target:
            return
        column = columns[target]
        names: Sequence[str]
        if isinstance(column, Coded):
            names = [column.names[code] for code in column.codes.tolist()]
        else:
            assert isinstance(column, Dense)
            names = [str(int(value)) for value in column.values.tolist()]
        for name in names:
            if name in classes:
                self._labels[name] = self._labels.get(name, 0) + 1

    def cut(self, *, ending: bool = False) -> tuple[int, str]:
        """Makes shards of waiting records where it is time; how many shards, and why."""
        now = self._clock()
        waited = now - self._waiting_since if self._waiting_since is not None else 0.0
        count, full = self.waiting, self._full
        yes, reason = when_to_cut(
            count, waited, full=full, patience_s=self._patience_s, ending=ending
        )
        if not yes:
            return 0, reason
        fields = self._record.fitted.fields
        arrays = [np.concatenate(parts) for parts in zip(*self._waiting, strict=True)]
        manifest = self._data.manifest
        order = shuffled(count, self._record.options.seed, len(manifest.shards))
        pieces = max(1, round(count / full))
        shards = [
            self._shard([array[rows] for array in arrays], fields)
            for rows in np.array_split(order, pieces)
        ]
        self._publish(replace(manifest, shards=(*manifest.shards, *shards), card=self._card()))
        self._waiting, self._waiting_since, self._labels = [], None, {}
        records = self._data.manifest.records("train")
        self._heard(f"{len(shards)} new shards ({reason}): {records:,} records to train on")
        return len(shards), reason

    @property
    def _full(self) -> int:
        size = self._record.fitted.record_bytes
        return self._record.options.shard_records or max(SHARD_RECORDS, SHARD_BYTES // size)

    def _shard(self, arrays: Sequence[Array], fields: Sequence[FieldPlan]) -> Shard:
        data = b"".join(
            array.astype(np.dtype(field.dtype).newbyteorder("<"), copy=False).tobytes()
            for array, field in zip(arrays, fields, strict=True)
        )
        size = self._record.options.chunk_bytes
        chunks = []
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            name = write_chunk(self._folder, piece, sync=True)
            chunks.append(Chunk(hash=name, bytes=len(piece)))
        return Shard(split="train", records=len(arrays[0]), chunks=tuple(chunks))

    def _card(self) -> Card:
        card = self._data.manifest.card
        counts = tuple(
            count + self._labels.get(name, 0)
            for name, count in zip(card.classes, card.counts, strict=True)
        ) if card.counts else ()  # fmt: skip
        return replace(card, counts=counts, left_out=self.bad)

    def _publish(self, manifest: Manifest) -> None:
        coming = msgspec.structs.replace(
            self._record, coming=(len(manifest.shards), dict(self.read_to))
        )
        write_record(self._folder, coming)
        write_manifest(self._folder, manifest, seal(manifest, self._key))
        self._record = _settled(coming, len(manifest.shards))
        write_record(self._folder, self._record)
        self._data = open_folder(self._folder)

    def close(self) -> None:
        """What waits is cut; the folder is no longer growing."""
        try:
            self.cut(ending=True)
        finally:
            (self._folder / GROWING).unlink(missing_ok=True)


def _settled(record: Record, shards: int) -> Record:
    """What was coming has come where there are as many shards as it said, or it never will."""
    if record.coming is None:
        return record
    wanted, added = record.coming
    return msgspec.structs.replace(
        record, added=added if shards >= wanted else record.added, coming=None
    )


# -- what does not fit ------------------------------------------------------------------------


def _fitting(block: Block, fitted: Fitted) -> tuple[dict[str, Column], list[Bad]]:
    """The records that fit the fields as they are, and the others."""
    wrong = np.zeros(block.records, bool)
    found: list[Bad] = []
    for field in fitted.fields:
        for source in field.sources:
            column = block.columns[source.column]
            for row, detail in _misfits(column, field, source):
                if not wrong[row]:
                    wrong[row] = True
                    line = block.lines[row] if block.lines else 0
                    found.append(Bad("does not fit", block.file, line, detail))
    columns = dict(block.columns)
    if wrong.any():
        kept = np.flatnonzero(~wrong)
        columns = {name: column.take(kept) for name, column in columns.items()}
    return columns, found


def _misfits(column: Column, field: FieldPlan, source: fitting.Source) -> Iterator[tuple[int, str]]:
    if isinstance(column, Coded):
        for row in np.flatnonzero(fitting.codes(column, source.names) < 0).tolist():
            name = column.names[int(column.codes[row])]
            yield row, f"{source.column} is {name!r}, which it never was before"
        return
    values = column.values
    if isinstance(column, Ragged):
        if field.make != "padded":
            return
        outside = _outside(values, field)
        owners = np.searchsorted(column.ends, np.flatnonzero(outside), side="right")
        for row in np.unique(owners).tolist():
            yield row, f"{source.column} has a value that its type cannot hold"
        return
    if values.shape[1:] != (field.shape if field.make == "dense" else ()):
        yield from ((row, f"{source.column} has another shape") for row in range(len(column)))
        return
    wrong = _outside(values, field).any(axis=tuple(range(1, values.ndim)))
    for row in np.flatnonzero(wrong).tolist():
        yield row, f"{source.column} is {values[row]!s}, which {field.dtype} cannot hold"


def _outside(values: Array, field: FieldPlan) -> Array:
    """Which values the field's type does not hold as they are."""
    if field.points:
        return ~np.isin(values, field.points)
    dtype = np.dtype(field.dtype)
    if dtype.kind == "f" or values.dtype == dtype:
        return np.zeros(values.shape, bool)
    limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    least, most = (limit - field.shift for limit in limits)
    return np.asarray((values < least) | (values > most) | (values != np.floor(values)))


# -- where records come from ------------------------------------------------------------------


class Watch:
    """Files that grow, or a folder to which files come."""

    def __init__(self, sources: Sequence[Path], adder: Adder, wall: Clock = time.time) -> None:
        self._sources = sources
        self._adder = adder
        self._wall = wall
        if not adder.read_to:  # all that was there when the folder was made is in it
            adder.read_to.update(adder.record.sizes)

    def look(self) -> int:
        """Reads what has come; how many records. Raises DataError."""
        record, count = self._adder.record, 0
        found = find(self._sources)
        if found.format != record.format:
            raise DataMalformed(
                f"the source holds {found.format} now; it was {record.format}.",
                advice="Prepare other data in another folder.",
            )
        for file in found.files:
            before = self._adder.read_to.get(file.name)
            if record.format in GROWING_LINES:
                count += self._appended(file, before)
            elif before is None and self._wall() - Path(file.path).stat().st_mtime >= SETTLED_S:
                count += self._whole(file)
        return count

    def _appended(self, file: SourceFile, before: int | None) -> int:
        """The whole lines behind what was read."""
        record = self._adder.record
        start = before or 0
        if file.bytes < start:
            raise DataMalformed(
                f"{file.name} is shorter than it was ({file.bytes:,} bytes, {start:,} were read).",
                advice="Lines may only be appended; prepare it anew.",
            )
        count = 0
        heading = record.format == "table" and record.known.header
        for first, stop, line in appended_ranges(file.path, start, heading=heading):
            part = Part(0, file.path, file.name, first, stop, line)
            block = reader_of(record.format).read(part, record.schema, record.known)
            count += self._adder.add(block)
            self._adder.read_to[file.name] = stop
            self._adder.cut()
        return count

    def _whole(self, file: SourceFile) -> int:
        record, count = self._adder.record, 0
        reader = reader_of(record.format)
        for part in reader.parts([file], record.known):
            count += self._adder.add(reader.read(part, record.schema, record.known))
        self._adder.read_to[file.name] = file.bytes
        self._adder.cut()
        return count


def add_rows(rows: Sequence[Any], adder: Adder, name: str, start: int) -> int:
    """Records from Python; `start`: the number of the first, from 1. Raises BadRecords."""
    record = adder.record
    block = block_of(list(map(as_row, rows)), record.schema, record.known, name, start)
    return adder.add(block)
