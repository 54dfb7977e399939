"""Files from elsewhere and packed files, as plain files on this disk: what readers can cut up.

An address (`https://…`, `s3://…`, `hdfs://…`) is anything fsspec opens. What has been fetched or
unpacked stays until the preparation is complete, so a second try goes on from there.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from crowdgrad.data.preparing.finding import split_in
from crowdgrad.data.preparing.parts import SourceFile
from crowdgrad.data.progress import Progress
from crowdgrad.errors import DataMalformed, DataMissing, MissingExtra
from crowdgrad.files import PART, disk_errors

PIECE = 1 << 20
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
TAGS = ("size", "ETag", "LastModified", "mtime", "created", "etag", "updated", "modificationTime",
        "Last-Modified", "Content-MD5", "Digest")  # fmt: skip
"""What file systems say of a file that changes with it."""
MANY = 100_000


UNPACKING = (
    OSError, EOFError, zlib.error, zipfile.BadZipFile, lzma.LZMAError, NotImplementedError,
    RuntimeError, ValueError,
)  # fmt: skip
"""What archives raise that are broken, locked, or packed in a way we do not know."""


class Remote(msgspec.Struct, frozen=True):
    """A file at an address, before it is fetched."""

    address: str
    name: str
    bytes: int | None
    stamp: str


def is_address(source: str) -> bool:
    return bool(_ADDRESS.match(source)) and not source.lower().startswith("file://")


def remote_files(address: str) -> list[Remote]:
    """What lies at an address, a folder's files one by one. Raises DataMissing, MissingExtra."""
    file_system, path = _opened(address)
    try:
        if _is_folder(file_system, path, address):
            found = file_system.find(path, detail=True)
            infos = sorted(found.items())[:MANY]
            infos = [(name, _dated(file_system, name, info)) for name, info in infos]
            if not infos:
                raise FileNotFoundError(path)
        else:
            infos = [(path, file_system.info(path))]
    except FileNotFoundError:
        raise DataMissing(f"There is nothing at {address}.", advice="Check the address.") from None
    except Exception as error:  # whatever a file system's own library raises
        raise _failure(address, error) from error
    root = path.rstrip("/")
    return [
        Remote(
            address=file_system.unstrip_protocol(name),
            name=name.removeprefix(root).lstrip("/") or Path(root).name.split("?")[0],
            bytes=info.get("size"),
            stamp=msgspec.json.encode([str(info.get(tag)) for tag in TAGS]).decode(),
        )
        for name, info in infos
    ]


def _is_folder(file_system: Any, path: str, address: str) -> bool:
    """On the web every address is a file, and asking for its links would fetch it whole: there a
    folder's ends with a slash."""
    if re.match("https?:", address, re.IGNORECASE):
        return address.endswith("/")
    return bool(file_system.isdir(path) and not file_system.isfile(path))


def _dated(file_system: Any, name: str, info: Mapping[str, Any]) -> Mapping[str, Any]:
    """A web page's links tell nothing of what they lead to."""
    if any(info.get(tag) is not None for tag in TAGS):
        return info
    found: Mapping[str, Any] = file_system.info(name)
    return found


def _opened(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra(
            "Addresses are opened with fsspec, which is not installed.",
            advice="In a clone of the project: pip install -c constraints.txt '.[host]'.",
        ) from error
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
        return found
    except ImportError as error:
        raise MissingExtra(
            f"{address} needs a package that is not installed: {error}.",
            advice="Install it beside crowdgrad, e.g. pip install s3fs for s3, gcsfs for gs.",
        ) from error
    except ValueError as error:
        raise DataMissing(f"{address} cannot be opened: {error}.") from error


def _failure(address: str, error: Exception) -> DataMissing:
    words = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
    return DataMissing(
        f"{address} cannot be read: {words}.", advice="Check the address and the network."
    )


def fetch(files: Sequence[Remote], folder: Path, progress: Progress) -> Path:
    """All of them below `folder`, which is returned. Raises DataMissing, DiskFull, CannotWrite."""
    sizes = [file.bytes for file in files]
    known = [size for size in sizes if size is not None]
    progress.start(sum(known) if len(known) == len(sizes) else None, "fetching")
    try:
        for file in files:
            _fetch(file, folder / _safe(file.name), progress)
    finally:
        progress.done()
    return folder


def _safe(name: str) -> Path:
    """A stranger's name must not lead out of the folder."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return Path(*(part.replace("\\", "_") for part in parts or ["file"]))


def _fetch(file: Remote, path: Path, progress: Progress) -> None:
    stamp = path.with_name(f".{path.name}.stamp")
    if path.is_file() and stamp.is_file() and stamp.read_text() == file.stamp:
        progress.advance(path.stat().st_size)
        return
    file_system, there = _opened(file.address)
    draft = path.with_name(f".{path.name}{PART}")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as out:
                _copy(_pieces(file_system, there, file.address), out, progress)
            os.replace(draft, path)
            stamp.write_text(file.stamp)
    finally:
        draft.unlink(missing_ok=True)


def _pieces(file_system: Any, path: str, address: str) -> Iterable[bytes]:
    try:
        with file_system.open(path, "rb") as source:
            while piece := source.read(PIECE):
                yield piece
    except Exception as error:  # whatever a file system's own library raises
        raise _failure(address, error) from error


def _copy(pieces: Iterable[bytes], out: IO[bytes], progress: Progress) -> None:
    for piece in pieces:
        out.write(piece)
        progress.advance(len(piece))


# -- packed files -----------------------------------------------------------------------------


def unpacked(files: Sequence[SourceFile], folder: Path, progress: Progress) -> list[SourceFile]:
    """Files as they are, packed ones unpacked below `folder`. Raises DataMalformed, DiskFull."""
    found: list[SourceFile] = []
    for file in files:
        lower = file.name.lower()
        if lower.endswith(".gz"):
            found.append(_gunzipped(file, folder, progress))
        elif lower.endswith(".npz"):
            found += _unzipped(file, folder, progress)
        else:
            found.append(file)
    return found


def _gunzipped(file: SourceFile, folder: Path, progress: Progress) -> SourceFile:
    path = _place(folder, file, Path(file.name).name.removesuffix(".gz"))
    if not path.is_file():
        progress.start(None, f"unpacking {file.name}")
        try:
            with gzip.open(file.path, "rb") as source:
                _unpack(source, path, file.name, progress)
        finally:
            progress.done()
    return _as_source(path, file.name.removesuffix(".gz"), file)


def _unzipped(file: SourceFile, folder: Path, progress: Progress) -> list[SourceFile]:
    found = []
    try:
        with zipfile.ZipFile(file.path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            progress.start(sum(m.file_size for m in members), f"unpacking {file.name}")
            for member in members:
                path = _place(folder, file, Path(member.filename).name)
                if not path.is_file():
                    with archive.open(member) as source:
                        _unpack(source, path, file.name, progress)
                name = f"{file.name}/{member.filename}"
                split = split_in([Path(member.filename).stem]) or file.split
                found.append(msgspec.structs.replace(_as_source(path, name, file), split=split))
    except UNPACKING as error:
        raise _cannot_unpack(file.name, error) from None
    finally:
        progress.done()
    if not found:
        raise DataMalformed(f"{file.name} holds no array.", advice="Write it with numpy.savez.")
    return found


def _cannot_unpack(name: str, error: Exception) -> DataMalformed:
    return DataMalformed(f"{name} cannot be unpacked: {error}.", advice="Fetch or write it again.")


def _unpack(source: Any, path: Path, name: str, progress: Progress) -> None:
    draft = path.with_name(f".{path.name}{PART}")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as out:
                _copy(_unpacked_pieces(source, name), out, progress)
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _unpacked_pieces(source: Any, name: str) -> Iterable[bytes]:
    """Apart from the writing: a broken archive is no disk's fault."""
    try:
        while piece := source.read(PIECE):
            yield piece
    except UNPACKING as error:
        raise _cannot_unpack(name, error) from None


def _place(folder: Path, file: SourceFile, name: str) -> Path:
    """A folder of its own for every packed file: two may hold the same names."""
    own = hashlib.sha256(f"{file.path} {file.stamp}".encode()).hexdigest()[:16]
    return folder / own / name


def _as_source(path: Path, name: str, packed: SourceFile) -> SourceFile:
    return SourceFile(
        str(path), name, path.stat().st_size, packed.stamp, packed.split, packed.label
    )
