"""The chain: the cache first, then one source after the other; the first that verifies wins.

What lies in the cache is verified every time it is read. A file that was altered there is said and
fetched again; only when no source has the right bytes is it an error, with what each of them said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.data.files import PinnedFile, sweep
from crowdgrad.data.progress import Progress
from crowdgrad.data.sources import Source
from crowdgrad.errors import DataAltered, DataError, DataMissing
from crowdgrad.files import disk_errors, write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    contents: dict[str, bytes]
    """Every file by name, verified."""
    source: str
    """Where it came from this time, in words."""
    notes: tuple[str, ...] = ()
    """What a person should hear: altered files, sources that failed."""


def fetch_files(
    title: str,
    files: tuple[PinnedFile, ...],
    *,
    folder: Path,
    sources: tuple[Source, ...],
    offline: bool,
    progress: Progress,
) -> Fetched:
    """Raises DataMissing, DataAltered, DiskFull, MachineError."""
    sweep(folder)
    contents: dict[str, bytes] = {}
    failures: list[DataError] = []
    for file in files:
        path = folder / file.name
        try:
            if path.exists():
                contents[file.name] = file.read(path, "the cache")
        except DataError as error:
            failures.append(error)
    notable = list(failures)  # that a local folder does not have a file is no news
    if len(contents) == len(files):
        return Fetched(contents=contents, source="the cache")
    missing = tuple(file for file in files if file.name not in contents)
    for source in sources:
        if offline and source.online:
            continue
        try:
            found = dict(_verified(source, missing, progress))
        except DataError as error:
            failures.append(error)
            if source.online or isinstance(error, DataAltered):
                notable.append(error)
            continue
        for name, data in found.items():
            with disk_errors(folder, "Choose another folder with --data-dir."):
                write_whole(folder / name, data)
        return Fetched(
            contents=contents | found, source=source.name, notes=_notes(notable, source.name)
        )
    if offline:
        failures.append(DataMissing(f"{folder} does not have it, and we are to stay offline."))
    raise _failure(title, failures)


def _notes(failures: list[DataError], source: str) -> tuple[str, ...]:
    if not failures:
        return ()
    reasons = " ".join(error.message for error in failures)
    return (f"{reasons} Fetched from {source} instead.",)


def _verified(
    source: Source, files: tuple[PinnedFile, ...], progress: Progress
) -> Iterator[tuple[str, bytes]]:
    found = source.bring(files, progress)
    for file in files:
        file.check(found[file.name], source.name)
        yield file.name, found[file.name]


def _failure(title: str, failures: list[DataError]) -> DataError:
    altered = any(isinstance(error, DataAltered) for error in failures)
    reasons = "; ".join(error.message.rstrip(".") for error in failures) or "it has no source"
    return (DataAltered if altered else DataMissing)(
        f"{title} could not be fetched ({reasons}).",
        advice="Check the network, or put its files into a folder and name that with --data-dir.",
    )
