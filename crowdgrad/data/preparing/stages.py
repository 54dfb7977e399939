"""The four steps from a source to chunks; each leaves files that the next one, or a second try,
finds.

    read     a part of the source → columns                     parts/N
    divide   how many of its records go to which split
    sort     its records, encoded, in the order they go out     runs/N
    cut      shards from all runs → chunks in the data folder   cuts/N

Every step is a function of files: any process can take any of them, in any order within a step.
What is left of a killed one is whole or not there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crowdgrad.data.dataset import SPLITS
from crowdgrad.data.folder import missing_chunks, write_chunk
from crowdgrad.data.preparing import arrays_file, fitting
from crowdgrad.data.preparing.arrays_file import ArraysFile
from crowdgrad.data.preparing.columns import Array, Block, Coded, Column, Dense, Ragged
from crowdgrad.data.preparing.fitting import Fitted
from crowdgrad.data.preparing.moments import Moments, moments
from crowdgrad.data.preparing.parts import Format, Known, Part
from crowdgrad.data.preparing.placing import Bucket, Division, place
from crowdgrad.data.preparing.reading import reader_of
from crowdgrad.data.preparing.schema import Schema
from crowdgrad.data.preparing.tallies import Tally, tally
from crowdgrad.domain.data import Chunk, Shard
from crowdgrad.files import disk_errors, write_whole

RUNS_OPEN = 200
"""Files a process keeps open."""


class Plan(msgspec.Struct, frozen=True):
    """What reading needs to know."""

    format: Format
    schema: Schema
    known: Known
    parts: tuple[Part, ...]


class Layout(msgspec.Struct, frozen=True):
    """What everything after reading needs to know."""

    fitted: Fitted
    division: Division
    seed: int
    records: tuple[int, ...]
    """Of each part."""
    first: tuple[int, ...]
    """The number of each part's first record, among those that are to be divided."""
    divided: tuple[bool, ...]
    """Whether a part's records are divided; else they stay where their source says."""
    class_first: tuple[tuple[int, ...], ...] = ()
    """Where classes are kept alike: for each part, how many of each class came before."""
    token_first: tuple[int, ...] = ()
    """Of a text: the number of each part's first token, and how many there are."""
    before: tuple[tuple[int, ...], ...] = ()
    """For each part: how many records of each split came before. Known after `divide`."""
    totals: tuple[int, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    chunk_bytes: int = 1 << 20


class RunTold(msgspec.Struct):
    """What a run says of itself."""

    moments: list[Moments]
    cut: int = 0
    """Sequences that were longer than their field."""


class Work:
    """The files of one preparation, and the steps on them."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder = folder
        self.out = out
        self._open: OrderedDict[int, ArraysFile] = OrderedDict()
        self._layout: Layout | None = None

    @cached_property
    def plan(self) -> Plan:
        found: Plan = _load(self.folder / "plan", Plan)
        return found

    @property
    def layout(self) -> Layout:
        """As far as it is known: what `divide` finds out is in it afterwards."""
        if self._layout is None or not self._layout.totals:
            found: Layout = _load(self.folder / "layout", Layout)
            self._layout = found
        return self._layout

    def write_plan(self, plan: Plan) -> None:
        self._write("plan", plan)
        self.__dict__["plan"] = plan

    def write_layout(self, layout: Layout) -> None:
        self._write("layout", layout)
        self._layout = layout

    def _write(self, name: str, what: object) -> None:
        with disk_errors(self.folder):
            write_whole(self.folder / name, msgspec.msgpack.encode(what), sync=False)

    def part_file(self, number: int) -> Path:
        return self.folder / "parts" / f"{number:06d}"

    def run_file(self, number: int) -> Path:
        return self.folder / "runs" / f"{number:06d}"

    def cut_file(self, number: int) -> Path:
        return self.folder / "cuts" / f"{number:06d}"

    # -- read ---------------------------------------------------------------------------------

    def read(self, number: int) -> Tally:
        plan = self.plan
        block = reader_of(plan.format).read(plan.parts[number], plan.schema, plan.known)
        return self.keep(number, block)

    def keep(self, number: int, block: Block) -> Tally:
        """A block that was read, on disk."""
        told = tally(block, self.plan.schema, self.plan.known)
        arrays: dict[str, Array] = {}
        names: dict[str, tuple[str, ...]] = {}
        for name, column in block.columns.items():
            if isinstance(column, Coded):
                arrays[f"codes:{name}"], names[name] = column.codes, column.names
            elif isinstance(column, Ragged):
                arrays[f"values:{name}"], arrays[f"ends:{name}"] = column.values, column.ends
            else:
                arrays[f"dense:{name}"] = column.values
        arrays_file.write(self.part_file(number), (told, names), arrays)
        return told

    def has_read(self, number: int) -> Tally | None:
        found = arrays_file.told_in(
            self.part_file(number), tuple[Tally, dict[str, tuple[str, ...]]]
        )
        return found[0] if found is not None else None

    def _columns(self, number: int, only: str | None = None) -> dict[str, Column]:
        with ArraysFile(self.part_file(number)) as file:
            _, names = file.told(tuple[Any, dict[str, tuple[str, ...]]])
            columns: dict[str, Column] = {}
            for plan in self.plan.schema.used:
                name = plan.name
                if only is not None and name != only:
                    continue
                if f"codes:{name}" in file:
                    columns[name] = Coded(file.read(f"codes:{name}"), tuple(names[name]))
                elif f"ends:{name}" in file:
                    columns[name] = Ragged(file.read(f"values:{name}"), file.read(f"ends:{name}"))
                elif f"dense:{name}" in file:
                    columns[name] = Dense(file.read(f"dense:{name}"))
            return columns

    # -- divide -------------------------------------------------------------------------------

    def divide(self, number: int) -> list[int]:
        """How many of a part's records go to each split."""
        counts: list[int] = np.bincount(self._splits(number), minlength=len(SPLITS)).tolist()
        return counts

    def _splits(self, number: int) -> Any:
        layout = self.layout
        records = layout.records[number]
        if not layout.divided[number]:
            split = self.plan.parts[number].split
            assert split is not None
            return np.full(records, SPLITS.index(split), np.uint8)
        if not layout.division.by_class:
            return layout.division.split_of(layout.first[number] + np.arange(records))
        classes = self._classes(number)
        numbers = np.zeros(records, np.int64)
        for code, before in enumerate(layout.class_first[number]):
            mine = np.flatnonzero(classes == code)
            numbers[mine] = before + np.arange(len(mine))
        return layout.division.split_of(numbers, classes)

    def _classes(self, number: int) -> Array:
        fitted = self.layout.fitted
        column = self._columns(number, only=fitted.target)[fitted.target]
        if isinstance(column, Coded):
            return fitting.codes(column, fitted.classes)
        assert isinstance(column, Dense)
        values = np.array([int(name) for name in fitted.classes])
        return np.searchsorted(values, column.values)

    # -- sort ---------------------------------------------------------------------------------

    def sort(self, number: int) -> RunTold:
        layout, fitted = self.layout, self.layout.fitted
        arrays, cut = self._records(number)
        splits = self._splits(number)
        train = splits == SPLITS.index("train")
        told = RunTold(
            [
                moments(array if train.all() else array[train], field)
                for array, field in zip(arrays, fitted.fields, strict=True)
            ],
            cut,
        )
        placed = place(splits, layout.before[number], layout.totals, layout.buckets, layout.seed)
        rows = np.empty((len(splits), fitted.record_bytes), np.uint8)
        at = 0
        for array, field in zip(arrays, fitted.fields, strict=True):
            little = array.astype(np.dtype(field.dtype).newbyteorder("<"), copy=False)
            flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
            rows[:, at : at + field.bytes] = flat.reshape(len(splits), field.bytes)
            at += field.bytes
        arrays_file.write(
            self.run_file(number),
            told,
            {"starts": placed.starts, "places": placed.places, "rows": rows[placed.order]},
        )
        return told

    def has_sorted(self, number: int) -> RunTold | None:
        found: RunTold | None = arrays_file.told_in(self.run_file(number), RunTold)
        return found

    def _records(self, number: int) -> tuple[list[Array], int]:
        """A part's records, an array for each field, and how many sequences were cut."""
        fitted = self.layout.fitted
        if fitted.length:
            return self._windows(number), 0
        columns = self._columns(number)
        longer = 0
        for field in fitted.fields:
            if field.make == "padded":
                column = columns[field.sources[0].column]
                assert isinstance(column, Ragged)
                longer += int((column.lengths > field.shape[0]).sum())
        return fitting.encode(columns, fitted), longer

    def _windows(self, number: int) -> list[Array]:
        """The windows that begin in this part; the last may end in another."""
        layout, length = self.layout, self.layout.fitted.length
        parts = self.plan.parts
        start = number  # of the parts of its split
        while start and parts[start - 1].split == parts[number].split:
            start -= 1
        before = sum(layout.records[start:number]) * length
        begin = layout.token_first[start] + before - layout.token_first[number]
        count = layout.records[number]
        if not count:
            return [np.zeros((0, length), field.dtype) for field in layout.fitted.fields]
        (name,) = (plan.name for plan in self.plan.schema.used)
        wanted = count * length + 1
        found: list[Array] = []
        for part in range(number, len(layout.records)):
            with ArraysFile(self.part_file(part)) as file:
                found.append(file.read(f"dense:{name}", begin, begin + wanted))
            wanted -= len(found[-1])
            begin = 0
            if wanted <= 0:
                break
        ids = fitting.tokens(np.concatenate(found), layout.fitted.fields[0])
        return [
            ids[:-1].reshape(count, length) if field.make == "window"
            else ids[1:].reshape(count, length)
            for field in layout.fitted.fields
        ]  # fmt: skip

    # -- cut ----------------------------------------------------------------------------------

    def cut(self, number: int) -> list[Shard]:
        layout = self.layout
        bucket = layout.buckets[number]
        rows = np.empty((bucket.stop - bucket.first, layout.fitted.record_bytes), np.uint8)
        for part in range(len(layout.records)):
            file = self._run(part)
            start, stop = file.read("starts", number, number + 2).tolist()
            if start < stop:
                rows[file.read("places", start, stop) - bucket.first] = file.read(
                    "rows", start, stop
                )
        shards = [
            self._shard(bucket, rows[first - bucket.first : stop - bucket.first])
            for first, stop in bucket.shards
        ]
        arrays_file.write(self.cut_file(number), shards, {})
        return shards

    def has_cut(self, number: int) -> list[Shard] | None:
        found: list[Shard] | None = arrays_file.told_in(self.cut_file(number), list[Shard])
        return found if found is not None and not missing_chunks(self.out, tuple(found)) else None

    def _shard(self, bucket: Bucket, rows: Array) -> Shard:
        pieces, at = [], 0
        for field in self.layout.fitted.fields:
            pieces.append(rows[:, at : at + field.bytes].tobytes())
            at += field.bytes
        data, size = b"".join(pieces), self.layout.chunk_bytes
        chunks = []
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            # It lasts before the manifest does that names it; other processes compute meanwhile.
            name = write_chunk(self.out, piece, sync=True)
            chunks.append(Chunk(hash=name, bytes=len(piece)))
        return Shard(split=SPLITS[bucket.split], records=len(rows), chunks=tuple(chunks))

    def _run(self, part: int) -> ArraysFile:
        file = self._open.get(part)
        if file is None:
            if len(self._open) >= RUNS_OPEN:
                self._open.popitem(last=False)[1].__exit__()
            file = self._open[part] = ArraysFile(self.run_file(part))
        else:
            self._open.move_to_end(part)
        return file

    def close(self) -> None:
        for file in self._open.values():
            file.__exit__()
        self._open.clear()

    def step(self, name: str) -> Callable[[int], Any]:
        return {"read": self.read, "divide": self.divide, "sort": self.sort, "cut": self.cut}[name]


RESULTS: dict[str, Any] = {
    "read": Tally, "divide": list[int], "sort": RunTold, "cut": list[Shard],
}  # fmt: skip


def _load(path: Path, kind: type[Any]) -> Any:
    return msgspec.msgpack.decode(path.read_bytes(), type=kind)
