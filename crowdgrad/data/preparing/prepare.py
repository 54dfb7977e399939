"""From whatever people have to a data folder: find, look, read, divide, sort, cut, seal.

The work lies in `.work` inside the folder until all is done; a second try with the same source and
options goes on from what is there, and one with nothing to do says so in a moment. What comes out
depends on the records, the options and the seed: not on cores, interruptions or the time of day.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

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
from crowdgrad.data.preparing.describing import Origin, manifest_of, notes_on
from crowdgrad.data.preparing.finding import Found, find
from crowdgrad.data.preparing.fitting import fit
from crowdgrad.data.preparing.layouts import judge, laid_out, lay_out
from crowdgrad.data.preparing.objects import Objects, objects
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Format, Known, Look, Part
from crowdgrad.data.preparing.pool import Pool, usual_jobs
from crowdgrad.data.preparing.reading import reader_of
from crowdgrad.data.preparing.record import Record, read_record, record_path, write_record
from crowdgrad.data.preparing.schema import Schema, infer
from crowdgrad.data.preparing.stages import Plan, Work
from crowdgrad.data.preparing.tallies import Tally, together
from crowdgrad.data.progress import Progress, Silent, Unit
from crowdgrad.data.sealing import seal
from crowdgrad.domain.data import MAX_DATA_TITLE, Manifest
from crowdgrad.errors import DataError, DataMalformed, missing_module
from crowdgrad.files import disk_errors
from crowdgrad.net.identity import Identity

T = TypeVar("T")
LARGE_BYTES = 16 << 20
"""Of sources that are not read without further processes."""
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
    contents: str = "",
) -> Result:
    """`source`: a path or address, several of them, or an object that holds records.

    `jobs`: processes at work, by default one a core where memory allows. `contents`: what the files
    hold, as a digest that somebody has; by default they are the same as long as they lie at the
    same place and nobody writes to them. Raises DataError, MachineError.
    """
    progress = progress or Silent()
    try:
        making = _Preparation(out, options, key, jobs or usual_jobs(), progress, contents)
        return making.run(source)
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
        self,
        out: Path,
        options: Options,
        key: Identity | None,
        jobs: int,
        progress: Progress,
        contents: str = "",
    ) -> None:
        self._out = out
        self._options = options
        self._key = key
        self._jobs = jobs
        self._progress = progress
        self._contents = contents
        self._work = Work(out / WORK, out)
        self._notes: list[str] = []
        self._sizes: dict[str, int] = {}

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
        here = self._contents or (found.files if found else ())
        name = _digest(FORMAT, self._options, remote, here,
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
        with Pool(self._work, self._jobs) as pool:
            if sum(file.bytes for file in files) >= LARGE_BYTES:
                pool.start()  # while we look
            look = reader.look(files, self._options)
            schema, known = self._decided(look)
            plan = Plan(found.format, schema, known, tuple(reader.parts(files, known)))
            self._write_plan(plan)
            tallies = self._read(pool, plan)
            return self._finish(pool, plan, tallies, name, self._origin(_called(sources)))

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
        unit: Unit = "records" if plan.format in ("images", "arrow", "arrays") else "bytes"
        return self._take(
            pool, "read", "reading", self._work.has_read, list(map(_size, plan.parts)), unit
        )

    def _take(
        self,
        pool: Pool,
        step: str,
        words: str,
        before: Callable[[int], T | None],
        sizes: Sequence[int],
        unit: Unit = "bytes",
    ) -> list[T]:
        """A step for every number, but for what an earlier try has left. `sizes`: for the bar."""
        found = [before(number) for number in range(len(sizes))]
        self._progress.start(sum(sizes), words, unit)
        try:
            left = [number for number, there in enumerate(found) if there is None]
            if len(left) < len(found):
                self._progress.advance(sum(sizes) - sum(sizes[number] for number in left))
            for number, result in pool.run(step, left):
                found[number] = result
                self._progress.advance(sizes[number])
        finally:
            self._progress.done()
        return cast(list[T], found)

    # -- objects ------------------------------------------------------------------------------

    def _from_objects(self, source: Objects) -> Result:
        """Nobody can tell whether an object has changed: it is read every time."""
        name = _digest(FORMAT, self._options, source.name)
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
            origin = self._origin(source.name, source.licence, source.classes)
            return self._finish(pool, plan, tallies, name, origin)

    def _origin(self, name: str, licence: str = "", classes: tuple[str, ...] = ()) -> Origin:
        options = self._options
        return Origin(options.title or name, name, options.licence or licence, classes)

    # -- what is the same for all -------------------------------------------------------------

    def _finish(
        self, pool: Pool, plan: Plan, tallies: list[Tally], name: str, origin: Origin
    ) -> Result:
        options, whole = self._options, together(tallies)
        left_out = judge(whole, options)
        if left_out:
            self._notes.append(f"{left_out:,} bad records were left out")
        fitted = fit(plan.format, plan.schema, plan.known, whole, options)
        layout = lay_out(plan.parts, tallies, fitted, options)
        self._work.write_layout(layout)
        counts = dict(pool.run("divide", range(len(plan.parts))))
        layout = laid_out(layout, [counts[number] for number in sorted(counts)], options)
        self._work.write_layout(layout)
        size = fitted.record_bytes
        runs = self._take(
            pool, "sort", "sorting", self._work.has_sorted, [n * size for n in layout.records]
        )
        room = [(bucket.stop - bucket.first) * size for bucket in layout.buckets]
        cuts = self._take(pool, "cut", "writing chunks", self._work.has_cut, room)
        shards = [shard for shards in cuts for shard in shards]
        self._notes += notes_on(fitted, runs)
        manifest = manifest_of(origin, fitted, runs, shards, left_out=left_out, notes=self._notes)
        record = Record(
            name=name,
            format=plan.format,
            options=options,
            schema=plan.schema,
            known=plan.known,
            fitted=fitted,
            bad=tuple(whole.bad),
            bad_counts=whole.bad_counts,
            notes=tuple(self._notes),
            sizes=self._sizes,
        )
        pool.close()
        return self._publish(manifest, record)

    def _publish(self, manifest: Manifest, record: Record) -> Result:
        """Name the chunks that are there, and lasting."""
        assert self._key is not None
        data_folder.write_manifest(self._out, manifest, seal(manifest, self._key))
        write_record(self._out, record)
        shutil.rmtree(self._work.folder, ignore_errors=True)
        kept = {chunk.hash for shard in manifest.shards for chunk in shard.chunks}
        for path in (self._out / data_folder.CHUNKS).glob("??/*"):
            if path.name not in kept:  # of what was here before
                path.unlink(missing_ok=True)
        return Result(folder=open_folder(self._out), record=record, reused=False)


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
    whole = [source if is_address(source) else str(Path(source).absolute()) for source in sources]
    names = [source.rstrip("/").rsplit("/", 1)[-1].split("?")[0] for source in whole]
    return ", ".join(names)[:MAX_DATA_TITLE]


def _size(part: Part) -> int:
    return len(part.files) or part.stop - part.start


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
