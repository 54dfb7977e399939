"""Files that are pinned by their hash, read verified."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.domain.data import check_hash
from crowdgrad.errors import DataAltered, DataMissing
from crowdgrad.files import PART

LEFTOVER_S = 3600.0
"""An unfinished file this old belongs to a process that died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """One file of a data set, as it must be."""

    name: str
    sha256: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_hash(self.sha256)

    def check(self, data: bytes, where: str) -> None:
        """Raises DataAltered unless `data` is this file."""
        if len(data) != self.size_bytes:
            raise DataAltered(
                f"{self.name} from {where} has {len(data):,} bytes, not {self.size_bytes:,}.",
                advice="Delete it and fetch it again.",
            )
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise DataAltered(
                f"{self.name} from {where} has the sha256 {found[:12]}…, not {self.sha256[:12]}….",
                advice="Delete it and fetch it again.",
            )

    def read(self, path: Path, where: str) -> bytes:
        """The verified content. Raises DataMissing, DataAltered."""
        try:
            with path.open("rb") as file:
                data = file.read(self.size_bytes + 1)  # one more shows that it is too long
        except OSError as error:
            raise DataMissing(
                f"{self.name} cannot be read from {where}: {error.strerror}.",
                advice="Fetch it again.",
            ) from error
        self.check(data, where)
        return data


def sweep(folder: Path) -> None:
    """Deletes unfinished files that a process which died left behind."""
    for part in folder.glob(f".*{PART}"):
        with contextlib.suppress(OSError):
            if part.stat().st_mtime < time.time() - LEFTOVER_S:
                part.unlink()
