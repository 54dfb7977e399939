"""The reverse warning: what it means to let others train on a data set, said before it happens.

Once for each data set, named by what is in it. The answer is kept in the home folder, one small
file a data set, so that a nightly run asks nobody about what was agreed to long ago.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crowdgrad.data.dataset import BLOCK_RECORDS, DataSet
from crowdgrad.data.folder import DataFolder
from crowdgrad.domain.data import Manifest
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.host.job import Prepared
from crowdgrad.net.addresses import is_loopback

FOLDER = "published"
WARNING = (
    "Every volunteer can read the data it trains on, keep it and pass it on.",
    "Nobody else can read it on its way, but volunteers are strangers, and what is",
    "out cannot be taken back. Do not publish personal or secret data: names, faces,",
    "letters, health, location, or anything that is not yours to give away.",
)


def open_to_others(
    host: str, advertise: str | None, matchmaker: str | None, relays: Sequence[str] = ()
) -> bool:
    """Whether anybody but this machine can reach a job that listens there."""
    told = matchmaker is not None or advertise is not None or bool(relays)
    return told or not is_loopback(host)


def name_of(data: DataSet) -> str:
    """sha256 of everything in it."""
    found = hashlib.sha256()
    for split in sorted(data.splits):
        for field, array in zip(data.fields, data.splits[split], strict=True):
            found.update(f"{split} {field.name} {array.dtype} {array.shape}\n".encode())
            for start in range(0, len(array), BLOCK_RECORDS):
                found.update(np.ascontiguousarray(array[start : start + BLOCK_RECORDS]).data)
    return found.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What would be given away."""

    name: str
    """By what is in it."""
    title: str
    records: int
    bytes: int
    growing: bool = False
    """Whatever is added to it is given away, too."""

    @classmethod
    def of_data(cls, data: DataSet | DataFolder) -> Material:
        if isinstance(data, DataFolder):
            return cls._of_manifest(data.name, data.manifest, growing=data.growing)
        records = sum(data.records(split) for split in data.splits)
        return cls(name=name_of(data), title=data.title, records=records, bytes=data.bytes)

    @classmethod
    def of_job(cls, prepared: Prepared) -> Material:
        """As it lies in a run that is gone on with: cut into shards, named by its manifest; what
        has grown, by that which was agreed to."""
        return cls._of_manifest(
            prepared.began_with or prepared.job.manifest,
            prepared.manifest,
            growing=prepared.job.growing,
        )

    @classmethod
    def _of_manifest(cls, name: str, manifest: Manifest, *, growing: bool) -> Material:
        return cls(
            name=name,
            title=manifest.title,
            records=sum(shard.records for shard in manifest.shards),
            bytes=sum(shard.bytes for shard in manifest.shards),
            growing=growing,
        )


def warning(material: Material) -> list[str]:
    """What will be given away, and what that means, in plain words."""
    megabytes = material.bytes / 1e6
    return [
        f"You are about to publish “{material.title}”: {material.records:,} records, "
        f"{megabytes:,.1f} MB" + (", and all that is added to it." if material.growing else "."),
        *WARNING,
    ]


class Published:
    """The data sets whose owner has agreed."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def add(self, name: str, title: str) -> None:
        """Raises DiskFull or CannotWrite."""
        file = self._folder / name
        with disk_errors(file, "Choose another folder with --home."):
            write_whole(file, f"{title}\n".encode())
