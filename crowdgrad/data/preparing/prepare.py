"""From whatever people have to a data folder: find, look, read, divide, sort, cut, seal.

The work lies in `.work` inside the folder until all is done; a second try with the same source and
options goes on from what is there, and one with nothing to do says so in a moment. What comes out
depends on the records, the options and the seed: not on cores, interruptions or the time of day.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, cast

import msgspec

from crowdgrad.data import folder as data_folder
from crowdgrad.data.folder import (
    DataFolder,
    altered_since,
    is_folder,
    missing_chunks,
    open_folder,
)
from crowdgrad.data.preparing.bringing import (
    Remote,
    fetch,
    is_address,
    remote_files,
    unpacked,
)
from crowdgrad.data.preparing.finding import Found, find
from crowdgrad.data.preparing.fitting import Fitted, fit, listed, spelled
from crowdgrad.data.preparing.moments import Moments, joined, mean_and_std
from crowdgrad.data.preparing.objects import Objects, objects
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Format, Known, Look, Part
from crowdgrad.data.preparing.placing import buckets, divide
from crowdgrad.data.preparing.pool import Pool, cores
from crowdgrad.data.preparing.reading import reader_of
from crowdgrad.data.preparing.record import Record, read_record, record_path, write_record
from crowdgrad.data.preparing.schema import Schema, infer
from crowdgrad.data.preparing.stages import Layout, Plan, RunTold, Work
from crowdgrad.data.preparing.tallies import Tally, together
from crowdgrad.data.progress import Progress, Silent, Unit
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import (
    MAX_CARD_WORDS,
    MAX_DATA_TITLE,
    Card,
    Field,
    Manifest,
    Shard,
    Split,
)
from crowdgrad.domain.program import DType
from crowdgrad.errors import BadRecords, DataError, DataMalformed, missing_module, one_line
from crowdgrad.files import disk_errors
from crowdgrad.net.identity import Identity

FORMAT = 1
"""Counts up whenever the same source would come out differently."""
WORK = ".work"
OURS = (data_folder.MANIFEST, data_folder.SEALS, data_folder.CHUNKS, data_folder.GROWING, WORK,
        "prepared.json", "report.html")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    folder: DataFolder
    record: Record
    reused: bool
    """Nothing had changed: it was there already."""


def prepare(
    source: Any,
    out: Path,
    options: Options,
    key: Identity,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """`source`: a path or address, several of them, or an object that holds records.

    `jobs`: processes at work, by default one a core. Raises DataError, MachineError.
    """
    progress = progress or Silent()
    try:
        return _Preparation(out, options, key, jobs or cores(), progress).run(source)
    except ModuleNotFoundError as error:
        raise missing_module(error) or error from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What would be made of a source."""

    format: Format
    schema: Schema
    notes: tuple[str, ...]
    sample: Mapping[str, Sequence[Any]]


def look(source: Any, options: Options) -> Seen:
    """Only looks: nothing is written but what must be fetched or unpacked, and that is removed.

    Raises DataError, MachineError.
    """
    with tempfile.TemporaryDirectory(prefix="crowdgrad-") as scratch:
        return _Preparation(Path(scratch), options, None, 1, Silent()).look(source)


class _Preparation:
    def __init__(
        self, out: Path, options: Options, key: Identity | None, jobs: int, progress: Progress
    ) -> None:
        self._out = out
        self._options = options
        self._key = key
        self._jobs = jobs
        self._progress = progress
        self._work = Work(out / WORK, out)
        self._notes: list[str] = []
        self._sizes: dict[str, int] = {}
        self._licence = options.licence
        self._class_names: tuple[str, ...] = ()

    def run(self, source: Any) -> Result:
        self._check_place()
        paths = _paths(source)
        if paths is None:
            return self._from_objects(objects(source))
        return self._from_files(paths)

    def look(self, source: Any) -> Seen:
        paths = _paths(source)
        if paths is None:
            held = objects(source)
            format, found = held.format, held.look(self._options)
        else:
            remote, local, there = self._found(paths)
            brought = self._brought(remote, local, there)
            files = unpacked(brought.files, self._work.folder / "unpacked", self._progress)
            format = brought.format
            found = reader_of(format).look(files, self._options)
        schema, _ = self._decided(found)
        return Seen(format=format, schema=schema, notes=tuple(self._notes), sample=found.sample)

    def _check_place(self) -> None:
        """Nothing of anybody else's may lie where we write and remove."""
        if self._out.exists() and not self._out.is_dir():
            raise DataMalformed(f"{self._out} is a file.", advice="Choose a folder with --out.")
        strangers = (
            [path.name for path in self._out.iterdir() if path.name not in OURS]
            if self._out.is_dir()
            else []
        )
        if strangers and not is_folder(self._out):
            raise DataMalformed(
                f"{self._out} holds other things: {', '.join(sorted(strangers)[:5])}.",
                advice="Choose an empty folder, or a new one, with --out.",
            )

    # -- files --------------------------------------------------------------------------------

    def _from_files(self, sources: Sequence[str]) -> Result:
        remote, local, found = self._found(sources)
        name = _digest(FORMAT, self._options, remote, found.files if found else (),
                       _vocabulary_stamp(self._options))  # fmt: skip
        done = self._done_before(name)
        if done is not None:
            return done
        self._begin(name)
        found = self._brought(remote, local, found)
        if found.left_out:
            self._notes.append(f"{found.left_out} files of other kinds were left out")
        self._sizes = {file.name: file.bytes for file in found.files}
        files = unpacked(found.files, self._work.folder / "unpacked", self._progress)
        reader = reader_of(found.format)
        look = reader.look(files, self._options)
        schema, known = self._decided(look)
        plan = Plan(found.format, schema, known, tuple(reader.parts(files, known)))
        self._write_plan(plan)
        with Pool(self._work, self._jobs) as pool:
            tallies = self._read(pool, plan)
            return self._finish(pool, plan, tallies, name, _called(sources))

    def _found(self, sources: Sequence[str]) -> tuple[list[Remote], list[Path], Found | None]:
        """What lies elsewhere, and what lies here."""
        remote = [file for source in sources if is_address(source) for file in remote_files(source)]
        local = [Path(source) for source in sources if not is_address(source)]
        return remote, local, find(local) if local else None

    def _brought(self, remote: list[Remote], local: list[Path], found: Found | None) -> Found:
        if not remote:
            assert found is not None
            return found
        fetched = fetch(remote, self._work.folder / "fetched", self._progress)
        return find([*local, fetched])

    def _done_before(self, name: str) -> Result | None:
        """What is there already, where it is of the same source by the same wishes, and whole."""
        record = read_record(self._out)
        if record is None or record.name != name or not is_folder(self._out):
            return None
        try:
            folder = open_folder(self._out)
        except DataError:  # somebody altered it
            return None
        assert self._key is not None
        shards = folder.manifest.shards
        if folder.seal.key != self._key.public or missing_chunks(self._out, shards):
            return None
        if altered_since(self._out, shards, record_path(self._out).stat().st_mtime_ns):
            return None
        return Result(folder=folder, record=record, reused=True)

    def _begin(self, name: str) -> None:
        """Take up what an earlier try left, if it is of the same source."""
        mark = self._work.folder / "name"
        with disk_errors(self._out):
            if mark.is_file() and mark.read_text() == name:
                return
            shutil.rmtree(self._work.folder, ignore_errors=True)
            self._work.folder.mkdir(parents=True)
            mark.write_text(name)

    def _decided(self, look: Look) -> tuple[Schema, Known]:
        self._notes += look.notes
        schema = look.schema
        if schema is None:
            schema = infer(look.sample, self._options, written=look.written)
        columns = []
        for plan in schema.columns:
            words = look.known.labels.get(plan.name)
            if words is not None and plan.name not in self._options.columns:
                plan = msgspec.structs.replace(
                    plan, kind="category", order=words, reason=f"{len(words)} classes with names"
                )
            columns.append(plan)
        return Schema(tuple(columns)), look.known

    def _write_plan(self, plan: Plan) -> None:
        if not plan.parts:
            raise DataMalformed("the source has no records.", advice="Give one that has some.")
        self._work.write_plan(plan)

    def _read(self, pool: Pool, plan: Plan) -> list[Tally]:
        tallies: list[Tally | None] = [self._work.has_read(n) for n in range(len(plan.parts))]
        sizes = [_size(part) for part in plan.parts]
        unit: Unit = "records" if plan.format in ("images", "arrow", "arrays") else "bytes"
        with _Shown(self._progress, "reading", sizes, unit) as shown:
            for number, tally in enumerate(tallies):
                if tally is not None:
                    shown.done(number)
            left = [number for number, tally in enumerate(tallies) if tally is None]
            for number, tally in pool.run("read", left):
                tallies[number] = tally
                shown.done(number)
        return cast(list[Tally], tallies)

    # -- objects ------------------------------------------------------------------------------

    def _from_objects(self, source: Objects) -> Result:
        """Nobody can tell whether an object has changed: it is read every time."""
        name = _digest(FORMAT, self._options, source.name)
        self._licence = self._licence or source.licence
        self._class_names = source.classes
        shutil.rmtree(self._work.folder, ignore_errors=True)
        self._begin(name)
        look = source.look(self._options)
        schema, known = self._decided(look)
        parts: list[Part] = []
        tallies: list[Tally] = []
        self._work.write_plan(Plan(source.format, schema, known, ()))
        self._progress.start(source.records, "reading", "records")
        try:
            for split, block in source.blocks(schema, known):
                number = len(parts)
                parts.append(Part(number, "", source.name, 0, block.records, split=split))
                tallies.append(self._work.keep(number, block))
                self._progress.advance(block.records)
        finally:
            self._progress.done()
        plan = Plan(source.format, schema, known, tuple(parts))
        self._write_plan(plan)
        with Pool(self._work, self._jobs) as pool:
            return self._finish(pool, plan, tallies, name, source.name)

    # -- what is the same for all -------------------------------------------------------------

    def _finish(
        self, pool: Pool, plan: Plan, tallies: list[Tally], name: str, called: str
    ) -> Result:
        whole = together(tallies)
        self._judge(whole)
        fitted = fit(plan.format, plan.schema, plan.known, whole, self._options)
        layout = self._layout(plan, tallies, fitted)
        self._work.write_layout(layout)
        layout = self._divided(pool, layout)
        runs = self._sorted(pool, layout)
        shards = self._cut(pool, layout)
        manifest = self._manifest(plan, whole, fitted, runs, shards, called)
        assert self._key is not None
        data_folder.write_manifest(self._out, manifest, seal(manifest, self._key))
        record = Record(
            name=name,
            format=plan.format,
            options=self._options,
            schema=plan.schema,
            known=plan.known,
            fitted=fitted,
            bad=tuple(whole.bad),
            bad_counts=whole.bad_counts,
            notes=tuple(self._notes),
            sizes=self._sizes,
        )
        write_record(self._out, record)
        pool.close()
        self._tidy(manifest)
        return Result(folder=open_folder(self._out), record=record, reused=False)

    def _judge(self, whole: Tally) -> None:
        """Raises BadRecords where more are bad than may be."""
        count = sum(whole.bad_counts.values())
        limit = {"skip": count, "stop": 0}.get(str(self._options.bad), self._options.bad)
        if count > int(limit):
            raise _too_many(whole, count)
        if not whole.records:
            raise DataMalformed(
                "there is no record left.", advice="Look at what was left out above."
            )
        if count:
            self._notes.append(f"{count:,} bad records were left out")

    def _layout(self, plan: Plan, tallies: list[Tally], fitted: Fitted) -> Layout:
        records = [tally.records for tally in tallies]
        tokens: tuple[int, ...] = ()
        if fitted.length:
            tokens = tuple(accumulate(records, initial=0))
            records = _windows(plan.parts, tokens, fitted.length)
            if not sum(records):
                raise DataMalformed(
                    f"{tokens[-1]} tokens do not fill a window of {fitted.length} and one more.",
                    advice="Give more text, or a shorter --length.",
                )
        given: dict[Split, int] = {}
        for part, count in zip(plan.parts, records, strict=True):
            if part.split is not None:
                given[part.split] = given.get(part.split, 0) + count
        divided = [
            part.split is None or (part.split == "train" and self._takes_from_train(given))
            for part in plan.parts
        ]
        numbers = [count if yes else 0 for count, yes in zip(records, divided, strict=True)]
        kept = {split: n for split, n in given.items() if split != "train" or not any(divided)}
        classes = self._classes(fitted, tallies, divided)
        alike = [sum(counts) for counts in zip(*classes, strict=True)] if classes else None
        division = divide(self._options, kept, sum(numbers), alike, in_order=bool(fitted.length))
        return Layout(
            fitted=fitted,
            division=division,
            seed=self._options.seed,
            records=tuple(records),
            first=tuple(accumulate(numbers, initial=0))[:-1],
            divided=tuple(divided),
            class_first=_before(classes) if classes else (),
            token_first=tokens,
            chunk_bytes=self._options.chunk_bytes,
        )

    def _takes_from_train(self, given: dict[Split, int]) -> bool:
        """Whether a source that has its own training records lacks a split we are to make."""
        validation = not given.get("validation") and self._options.validation != 0
        test = not given.get("test") and bool(self._options.test)
        return validation or test

    def _classes(
        self, fitted: Fitted, tallies: list[Tally], divided: list[bool]
    ) -> list[list[int]] | None:
        """How many records of each class every part has, where classes are to be kept alike."""
        if not self._options.stratify:
            return None
        if not fitted.target or fitted.length:
            raise DataMalformed(
                "there are no classes to divide alike.",
                advice="Leave out --stratify, or name a target of classes with --target.",
            )
        return [
            [tally.columns[fitted.target].names.get(name, 0) if yes and tally.records else 0
             for name in fitted.classes]
            for tally, yes in zip(tallies, divided, strict=True)
        ]  # fmt: skip

    def _divided(self, pool: Pool, layout: Layout) -> Layout:
        counts: list[list[int]] = [[] for _ in layout.records]
        for number, found in pool.run("divide", range(len(layout.records))):
            counts[number] = found
        totals = tuple(map(sum, zip(*counts, strict=True)))
        cut = buckets(totals, layout.fitted.record_bytes, self._options.shard_records)
        layout = msgspec.structs.replace(
            layout, before=_before(counts), totals=totals, buckets=tuple(cut)
        )
        self._work.write_layout(layout)
        return layout

    def _sorted(self, pool: Pool, layout: Layout) -> list[RunTold]:
        found = [self._work.has_sorted(number) for number in range(len(layout.records))]
        sizes = [count * layout.fitted.record_bytes for count in layout.records]
        with _Shown(self._progress, "sorting", sizes) as shown:
            for number, told in enumerate(found):
                if told is not None:
                    shown.done(number)
            left = [number for number, told in enumerate(found) if told is None]
            for number, told in pool.run("sort", left):
                found[number] = told
                shown.done(number)
        return cast(list[RunTold], found)

    def _cut(self, pool: Pool, layout: Layout) -> list[Shard]:
        found = [self._work.has_cut(number) for number in range(len(layout.buckets))]
        sizes = [(b.stop - b.first) * layout.fitted.record_bytes for b in layout.buckets]
        with _Shown(self._progress, "writing chunks", sizes) as shown:
            for number, shards in enumerate(found):
                if shards is not None:
                    shown.done(number)
            left = [number for number, shards in enumerate(found) if shards is None]
            for number, shards in pool.run("cut", left):
                found[number] = shards
                shown.done(number)
        return [shard for shards in found for shard in shards or ()]

    def _manifest(
        self, plan: Plan, whole: Tally, fitted: Fitted, runs: list[RunTold],
        shards: list[Shard], called: str,
    ) -> Manifest:  # fmt: skip
        fields = []
        for number, one in enumerate(fitted.fields):
            moments: Moments = joined(run.moments[number] for run in runs)
            mean, std = mean_and_std(moments, one)
            dtype = cast(DType, one.dtype)
            try:
                field = Field(name=one.name, dtype=dtype, shape=one.shape, mean=mean, std=std)
            except ValueError as error:
                raise DataMalformed(
                    f"the data cannot travel: {error}.",
                    advice="Mend it, or ask for normalise = false.",
                ) from None
            fields.append(field)
        cut = sum(run.cut for run in runs)
        if cut:
            self._notes.append(f"{cut:,} sequences were longer than their field and were cut")
        self._notes += [f"{one.name} holds {spelled(one)}" for one in fitted.fields
                        if one.make == "stack"]  # fmt: skip
        classes = listed(tuple(one_line(name) for name in self._named(fitted)))
        title = one_line(self._options.title or called)[:MAX_DATA_TITLE]
        try:
            return Manifest(
                title=title,
                fields=tuple(fields),
                shards=tuple(shards),
                card=Card(
                    source=one_line(called),
                    licence=one_line(self._licence),
                    classes=classes,
                    counts=fitted.counts if classes else (),
                    vocabulary=fitted.vocabulary,
                    left_out=sum(whole.bad_counts.values()),
                    notes=tuple(one_line(note)[:MAX_CARD_WORDS] for note in self._notes),
                ),
            )
        except ValueError as error:
            raise DataMalformed(f"the data cannot travel: {error}.", advice="Mend that.") from None

    def _named(self, fitted: Fitted) -> tuple[str, ...]:
        """The classes, by the names the source has for their numbers."""
        if self._class_names and all(name.isdigit() for name in fitted.classes):
            numbers = list(map(int, fitted.classes))
            if numbers == list(range(len(self._class_names))):
                return self._class_names
        return fitted.classes

    def _tidy(self, manifest: Manifest) -> None:
        """Remove the work, and chunks of what was here before."""
        shutil.rmtree(self._work.folder, ignore_errors=True)
        kept = {chunk.hash for shard in manifest.shards for chunk in shard.chunks}
        for path in (self._out / data_folder.CHUNKS).glob("??/*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _too_many(whole: Tally, count: int) -> BadRecords:
    kinds = ", ".join(
        f"{times:,} {kind}" for kind, times in sorted(whole.bad_counts.items(), key=lambda k: -k[1])
    )
    first = whole.bad[0]
    return BadRecords(
        f"{count:,} of {whole.records + count:,} records are bad: {kinds}. The first: "
        f"{first.where}: {first.kind}: {first.detail}.",
        advice="Mend them, or leave them out with --bad skip (or --bad N for at most N).",
        counts=whole.bad_counts,
        shown=[(bad.file, bad.line, bad.kind, bad.detail) for bad in whole.bad],
    )


class _Shown:
    """Progress over numbered pieces of known sizes."""

    def __init__(
        self, progress: Progress, what: str, sizes: Sequence[int], unit: Unit = "bytes"
    ) -> None:
        self._progress = progress
        self._sizes = sizes
        progress.start(sum(sizes), what, unit)

    def done(self, number: int) -> None:
        self._progress.advance(self._sizes[number])

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.done()


def _paths(source: Any) -> list[str] | None:
    """Paths and addresses; None for anything else."""
    if isinstance(source, str | Path):
        return [str(source)]
    several = isinstance(source, list | tuple) and bool(source)
    if several and all(isinstance(one, str | Path) for one in source):
        return list(map(str, source))
    return None


def _called(sources: Sequence[str]) -> str:
    """Names without paths: where a file lies on somebody's machine is nobody's business."""
    names = [source.rstrip("/").rsplit("/", 1)[-1].split("?")[0] for source in sources]
    return ", ".join(names)[:MAX_DATA_TITLE]


def _size(part: Part) -> int:
    return len(part.files) or part.stop - part.start


def _windows(parts: Sequence[Part], tokens: Sequence[int], length: int) -> list[int]:
    """How many windows begin in each part. `tokens`: before each part, and all there are.

    Parts of one split follow each other, and no window leads from one split into another: the last
    token of each is only ever a `next`.
    """
    found = []
    for _, group in groupby(range(len(parts)), key=lambda number: parts[number].split):
        numbers = list(group)
        firsts = [tokens[number] - tokens[numbers[0]] for number in (*numbers, numbers[-1] + 1)]
        total = max(0, firsts[-1] - 1) // length
        begun = [min(total, -(-first // length)) for first in firsts[:-1]] + [total]
        found += [after - before for before, after in pairwise(begun)]
    return found


def _before(counts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """For each part, the sums over all parts before it."""
    sums = [0] * len(counts[0])
    found = []
    for row in counts:
        found.append(tuple(sums))
        sums = [a + b for a, b in zip(sums, row, strict=True)]
    return tuple(found)


def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def _vocabulary_stamp(options: Options) -> str:
    if options.text.tokens in ("char", "byte"):
        return ""
    try:
        stat = Path(options.text.tokens).stat()
    except OSError:
        return ""
    return f"{stat.st_size}-{stat.st_mtime_ns}"
