"""What lies at a path: which format, which files, which of them are for which split.

Everything is found by names and first bytes; nothing is read here. A folder is taken for what most
of its files are; the others are said to be left out.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.data.preparing.parts import Format, SourceFile
from crowdgrad.data.preparing.pictures import SUFFIXES as PICTURES
from crowdgrad.domain.data import Split
from crowdgrad.errors import DataMalformed, DataMissing

SUFFIXES: dict[str, Format] = {
    ".csv": "table", ".tsv": "table", ".tab": "table", ".psv": "table",
    ".jsonl": "lines", ".ndjson": "lines", ".json": "lines",
    ".parquet": "arrow", ".pq": "arrow", ".arrow": "arrow", ".feather": "arrow",
    ".npy": "arrays", ".npz": "arrays", ".idx": "arrays",
    ".txt": "text", ".text": "text", ".md": "text",
    **dict.fromkeys(PICTURES, "images"),
}  # fmt: skip
MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"PAR1", "arrow"), (b"ARROW1", "arrow"), (b"\x93NUMPY", "arrays"),
    (b"\x89PNG", "images"), (b"\xff\xd8\xff", "images"), (b"GIF8", "images"),
)  # fmt: skip
SPLIT_WORDS: dict[str, Split] = {
    "train": "train", "training": "train", "trn": "train",
    "val": "validation", "valid": "validation", "validation": "validation", "dev": "validation",
    "test": "test", "testing": "test", "tst": "test", "t10k": "test", "eval": "test",
}  # fmt: skip
PACKED = (".gz",)
_IDX = re.compile(r"idx\d-(ubyte|byte|short|int|float|double)")
_WORDS = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    format: Format
    files: tuple[SourceFile, ...]
    left_out: int = 0
    """Files of other kinds."""


def find(sources: Sequence[Path]) -> Found:
    """Raises DataMissing, DataMalformed."""
    files: list[tuple[Path, str]] = []
    for source in sources:
        files += _listed(source)
    by_format: dict[Format, list[tuple[Path, str]]] = {}
    strangers = 0
    for path, name in files:
        kind = format_of(path)
        if kind is None:
            strangers += 1
        else:
            by_format.setdefault(kind, []).append((path, name))
    if not by_format:
        shown = ", ".join(name for _, name in files[:5]) or "nothing"
        raise DataMalformed(
            f"{', '.join(map(str, sources))} holds {shown}: no format we read.",
            advice=f"We read {', '.join(sorted(SUFFIXES))}, also packed with gzip.",
        )
    chosen = max(by_format, key=lambda kind: len(by_format[kind]))
    if chosen == "text" and len(by_format) > 1:  # a README beside the data
        del by_format["text"]
        chosen = max(by_format, key=lambda kind: len(by_format[kind]))
    kept = by_format[chosen]
    return Found(
        format=chosen,
        files=tuple(_file(path, name, chosen) for path, name in kept),
        left_out=len(files) - len(kept),
    )


def _listed(source: Path) -> list[tuple[Path, str]]:
    """All files at or below a path, with the names people know them by, in order."""
    if source.is_file():
        return [(source, source.name)]
    if not source.is_dir():
        raise DataMissing(f"There is no {source}.", advice="Check the path.")
    found = []
    for root, folders, names in os.walk(source):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
        for name in sorted(names):
            if not name.startswith("."):
                path = Path(root, name)
                found.append((path, path.relative_to(source).as_posix()))
    return sorted(found, key=lambda pair: pair[1])


def format_of(path: Path) -> Format | None:
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    known = SUFFIXES.get(Path(name).suffix)
    if known is not None:
        return known
    if _IDX.search(name):
        return "arrays"
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return None
    for magic, kind in MAGIC:
        if head.startswith(magic):
            return kind
    return "arrays" if head[:2] == b"\0\0" and head[2:3] in b"\x08\x09\x0b\x0c\x0d\x0e" else None


def _file(path: Path, name: str, kind: Format) -> SourceFile:
    try:
        stat = path.stat()
    except OSError as error:
        raise DataMissing(f"{path} cannot be read: {error.strerror}.") from error
    folders = Path(name).parts[:-1]
    split = split_in(folders[:1]) or split_in([Path(name).stem] if kind != "images" else [])
    label = ""
    if kind == "images":
        below = folders[1:] if split_in(folders[:1]) else folders
        label = below[0] if below else ""
    return SourceFile(
        path=str(path),
        name=name,
        bytes=stat.st_size,
        stamp=f"{stat.st_size}-{stat.st_mtime_ns}",
        split=split,
        label=label,
    )


def split_in(names: Iterable[str]) -> Split | None:
    """The split that words of these names say, if they all say one."""
    said = Counter(
        SPLIT_WORDS[word]
        for name in names
        for word in _WORDS.findall(name.lower())
        if word in SPLIT_WORDS
    )
    return next(iter(said)) if len(said) == 1 else None
