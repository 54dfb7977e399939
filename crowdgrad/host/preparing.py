"""Data prepared on this machine, under its owner's key: `cg.data.prepare`, `cg.data.follow`."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from crowdgrad import settings as settings_table
from crowdgrad.data.folder import DataFolder, is_folder, open_folder
from crowdgrad.data.preparing import options as wishes
from crowdgrad.data.preparing.adding import PATIENCE_S, Adder, Watch, add_rows
from crowdgrad.data.preparing.prepare import Result, prepare
from crowdgrad.data.preparing.record import read_record
from crowdgrad.data.progress import Progress
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.host.telling.data_report import render
from crowdgrad.net.identity import load_or_make

REPORT = "report.html"
ENDING = ".prepared"
FIRST_RECORDS = 1000
"""Of an iterator: what its columns are is guessed from these."""
LOOK_EVERY_S = 1.0
MANY_ROWS = 256
Heard = Callable[[str], None]


def prepare_data(
    source: Any,
    out: str | Path | None = None,
    *,
    config: str | Path | None = None,
    jobs: int | None = None,
    **asked: Any,
) -> DataFolder:
    """Make any data ready to spread and train; `cg.train` and job files take what is returned.

    `source`: a path, an address, several of them, arrays (a `cg.DataSet`), a `Dataset` of
    PyTorch's or Hugging Face's, or an iterator of records. `out`: the folder, by default the
    source's name with `.prepared`. `config`: a TOML file; all its keys can be given here as well:
    `target="price", test=0.2, text={"tokens": "byte"}, columns={"id": {"kind": "drop"}}`.
    Raises DataError, MachineError.
    """
    options = asked_for(config, asked)
    return prepare_here(source, place_for(source, out), options, jobs=jobs).folder


def prepare_here(
    source: Any,
    out: Path,
    options: wishes.Options,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    home: Path | None = None,
    contents: str = "",
) -> Result:
    """With this machine's key, and with a page for people."""
    key = load_or_make(home or settings_table.load().home)
    result = prepare(source, out, options, key, jobs=jobs, progress=progress, contents=contents)
    page = out / REPORT
    if not result.reused or not page.is_file():
        with disk_errors(page):
            write_whole(page, render(result.folder, result.record).encode())
    return result


def asked_for(config: str | Path | None, asked: dict[str, Any]) -> wishes.Options:
    """What a file says, and on top of it what is said here. Raises DataMalformed."""
    table = wishes.read_file(Path(config)) if config is not None else {}
    for name, value in asked.items():
        known = table.get(name)
        both = isinstance(value, dict) and isinstance(known, dict)
        table[name] = {**known, **value} if both else value  # type: ignore[dict-item]
    return wishes.from_table(table, str(config) if config is not None else "these options")


def place_for(source: Any, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(source, Sequence) and not isinstance(source, str) and source:
        source = source[0]
    name = "data"
    if isinstance(source, str | Path):
        name = str(source).rstrip("/").rsplit("/", 1)[-1].split("?")[0].split(".")[0] or name
    return Path(f"{name}{ENDING}")


# -- sources that grow ------------------------------------------------------------------------


def follow_data(
    source: Any,
    out: str | Path | None = None,
    *,
    config: str | Path | None = None,
    patience_s: float = PATIENCE_S,
    first: int = FIRST_RECORDS,
    heard: Heard = lambda words: None,
    **asked: Any,
) -> Following:
    """Prepare what is there, then add what comes, in a thread, until `stop` or the source's end.

        with cg.data.follow(stream(), "live.prepared", target="y") as live:
            cg.train(task, live.folder, minutes=5)

    `source`: a file to which lines are appended (CSV, JSON lines), a folder to which files come, or
    an iterator of records, whose first `first` must come before this returns. A new shard is cut
    when it is full or its first record has waited `patience_s`. Raises DataError, MachineError.
    """
    options = asked_for(config, {**asked, "growing": True})
    place = place_for(source, out)
    rows: Iterator[Any] | None = None
    if isinstance(source, Iterator):
        rows = source
        source = list(itertools.islice(source, first))
    if rows is not None or not goes_on(place, options):
        prepare_here(source, place, options)
    return Following(place, source, rows, patience_s=patience_s, heard=heard)


def goes_on(place: Path, options: wishes.Options) -> bool:
    """Whether the folder was made by the same wishes: what it holds stays what it is."""
    record = read_record(place) if is_folder(place) else None
    return record is not None and record.options == options


class Following:
    """Adds to a data folder in the background."""

    def __init__(
        self,
        place: Path,
        source: Any,
        rows: Iterator[Any] | None,
        *,
        patience_s: float = PATIENCE_S,
        heard: Heard = lambda words: None,
        home: Path | None = None,
    ) -> None:
        """`heard` is told, from another thread, of every shard that was added."""
        key = load_or_make(home or settings_table.load().home)
        self._adder = Adder(place, key, patience_s=patience_s, heard=heard)
        self.folder = open_folder(place)
        """As it is at the beginning; whoever trains on it hears of what comes."""
        self._stop = threading.Event()
        self._trouble: BaseException | None = None
        work = self._watch if rows is None else self._drain
        self._thread = threading.Thread(target=self._run, args=(work, rows or source), daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Add what waits, and end. Raises what went wrong meanwhile."""
        self._stop.set()
        self.wait()

    def wait(self, timeout_s: float | None = None) -> None:
        """Until the source has ended. Raises what went wrong."""
        self._thread.join(timeout_s)
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._stop.set()
            self._thread.join()

    def _run(self, work: Callable[[Any], None], source: Any) -> None:
        try:
            try:
                work(source)
            finally:
                self._adder.close()
        except BaseException as error:
            self._trouble = error

    def _watch(self, source: Any) -> None:
        sources = [source] if isinstance(source, str | Path) else list(source)
        watch = Watch([Path(one) for one in sources], self._adder)
        while True:
            ending = self._stop.is_set()
            watch.look()
            self._adder.cut()
            if ending:
                return
            self._stop.wait(LOOK_EVERY_S)

    def _drain(self, rows: Iterator[Any]) -> None:
        """An iterator may wait for ever for its next record: it is asked in a thread of its own."""
        come: queue.Queue[list[Any]] = queue.Queue(MANY_ROWS)
        threading.Thread(target=self._ask, args=(rows, come), daemon=True).start()
        start, ended = 1, False
        held: list[Any] = []
        while not self._stop.is_set() and not ended:
            try:
                some = come.get(timeout=LOOK_EVERY_S)
                held += some
                ended = not some
            except queue.Empty:
                some = []
            if held and (len(held) >= MANY_ROWS or not some):
                add_rows(held, self._adder, "the iterator", start)
                start += len(held)
                held = []
            self._adder.cut()
        if held:
            add_rows(held, self._adder, "the iterator", start)

    def _ask(self, rows: Iterator[Any], come: queue.Queue[list[Any]]) -> None:
        """One record at a time; an empty list is the end."""
        try:
            for row in rows:
                come.put([row])
                if self._stop.is_set():
                    return
        except BaseException as error:
            self._trouble = error
        come.put([])
