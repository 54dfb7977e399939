"""The data sets we know by name, pinned by hash. Each has a file in `sets`."""

from __future__ import annotations

import logging
from pathlib import Path

from crowdgrad.data import generated
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.fetching import Fetched, fetch_files
from crowdgrad.data.progress import Progress, Silent
from crowdgrad.data.sets import cifar10, diamonds, imdb, mnist, shakespeare, vowels
from crowdgrad.data.sets.entry import Entry as Entry
from crowdgrad.data.sources import LocalFolder, Source
from crowdgrad.errors import DataError, DataMissing, MissingExtra

log = logging.getLogger(__name__)

DIGITS = Entry(
    name="digits",
    title="scikit-learn's digits",
    summary="1,437 + 360 handwritten digits, 8×8 pixels; no network, needs scikit-learn",
    build=lambda contents: generated.digits(),
    origin="scikit-learn",
)
SPIRALS = Entry(
    name="spirals",
    title="a generated set of spirals",
    summary="5,000 + 1,000 points on three entwined spirals; generated, needs nothing",
    build=lambda contents: generated.spirals(),
    origin="this machine",
)
DIABETES = Entry(
    name="diabetes",
    title="scikit-learn's diabetes",
    summary="354 + 88 patients, ten figures each; no network, needs scikit-learn",
    build=lambda contents: generated.diabetes(),
    origin="scikit-learn",
)

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        mnist.ENTRY,
        DIGITS,
        SPIRALS,
        cifar10.ENTRY,
        imdb.ENTRY,
        shakespeare.ENTRY,
        vowels.ENTRY,
        diamonds.ENTRY,
        DIABETES,
    )
}


def find(name: str) -> Entry:
    if name not in ENTRIES:
        raise DataMissing(
            f"there is no data set {name!r} in the catalogue.",
            advice=f"It has {', '.join(ENTRIES)}; or give your own arrays or an .npz file.",
        )
    return ENTRIES[name]


def fetch(
    name: str,
    *,
    cache: Path,
    local: Path | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Fetched:
    """Makes sure that the files are in `cache / name`, verified. Raises DataError, MachineError."""
    entry = find(name)
    if not entry.files:
        return Fetched(contents={}, source=entry.origin)
    own: tuple[Source, ...] = (LocalFolder(folder=local),) if local else ()
    fetched = fetch_files(
        entry.title,
        entry.files,
        folder=cache / name,
        sources=own + entry.sources,
        offline=offline,
        progress=progress or Silent(),
    )
    for note in fetched.notes:
        log.warning("%s", note)
    return fetched


def verify(name: str, *, cache: Path) -> None:
    """Reads what is in the cache, and nothing else. Raises DataMissing, DataAltered."""
    for file in find(name).files:
        file.read(cache / name / file.name, f"{cache / name}")


def load(
    name: str,
    *,
    cache: Path,
    local: Path | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """The data set, fetched if need be. Raises DataError, MissingExtra, DiskFull, MachineError."""
    fetched = fetch(name, cache=cache, local=local, offline=offline, progress=progress)
    return find(name).build(fetched.contents)


def load_or_fallback(
    name: str,
    *,
    cache: Path,
    local: Path | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> tuple[str, DataSet, str]:
    """The data set or, where it cannot be had, another: its name, itself, and what happened.

    A name that is not in the catalogue is a mistake, not bad luck: DataMissing.
    """
    troubles: list[str] = []
    for candidate in dict.fromkeys((name, "digits", "spirals")):
        entry = find(candidate)
        try:
            fetched = fetch(candidate, cache=cache, local=local, offline=offline, progress=progress)
            dataset = entry.build(fetched.contents)
        except (DataError, MissingExtra) as error:
            troubles.append(error.message.rstrip("."))
            continue
        if troubles:
            return (
                candidate,
                dataset,
                f"{', and '.join(troubles)}: training on {entry.title} instead.",
            )
        return (
            candidate,
            dataset,
            " ".join((f"{entry.title}, from {fetched.source}.", *fetched.notes)),
        )
    raise AssertionError("spirals need nothing")
