"""`resume/data/`: the chunks of a job that was hosted from a data folder, laid out as one.

They are linked where the disk can, so that they take no room; otherwise copied. Either way the run
needs the data folder no longer: it may be moved, and the run goes on elsewhere. All of it is on the
disk when `keep` returns: chunks first, then the manifest that names them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from crowdgrad.data.folder import (
    DataFolder,
    chunk_path,
    missing_chunks,
    read_chunk,
    write_manifest,
)
from crowdgrad.domain.data import ChunkHash, Shard
from crowdgrad.files import REAL, write_whole

FOLDER = "data"


def keep(target: Path, folder: DataFolder, first: int = 0) -> None:
    """Durable when it returns. `first`: the shards before it are kept already.

    Raises OSError, DataError.
    """
    if target != folder.path:
        _keep_chunks(target, folder.path, folder.manifest.shards[first:])
        write_manifest(target, folder.manifest, folder.seal)


def _keep_chunks(target: Path, source: Path, shards: tuple[Shard, ...]) -> None:
    wanted = missing_chunks(target, shards)
    for folder in dict.fromkeys(chunk_path(target, name).parent for name in wanted):
        REAL.make_folder(folder)
    for name in wanted:
        _keep_chunk(target, source, name)
    _sync(chunk_path(target, name).parent for name in wanted)


def _keep_chunk(target: Path, source: Path, name: ChunkHash) -> None:
    old, new = chunk_path(source, name), chunk_path(target, name)
    try:
        new.unlink(missing_ok=True)  # torn, by a power cut
        os.link(old, new)
    except OSError:  # another disk, or one that has no links
        write_whole(new, read_chunk(source, name))
        return
    with new.open("rb") as file:  # whoever prepared it may not have waited for the disk
        os.fsync(file.fileno())


def _sync(folders: Iterable[Path]) -> None:
    for folder in dict.fromkeys(folders):
        REAL.sync_folder(folder)
