"""A folder for what a panel's children write while it lives: logs, and where their APIs are.

It goes with the panel. One that is killed leaves its folder behind, which the next one removes: the
living keep theirs locked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nobody can tell whose folder it is
    fcntl = None  # type: ignore[assignment]

PREFIX = "crowdgrad-panel-"
YOUNG_S = 10.0
"""It may be made, and not locked yet."""


@contextlib.contextmanager
def scratch(below: Path | None = None) -> Iterator[Path]:
    """`below`: where, if not where all such folders are. Only its owner may look into it."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=below, ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with _locked(folder):
            _sweep(folder.parent)
            yield folder


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether nobody else has it locked. Raises OSError."""
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody's, or a disk without locks
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _sweep(parent: Path) -> None:
    """What killed panels of ours left."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another sweeps, too
            found = folder.lstat()
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if ours and time.time() - found.st_mtime > YOUNG_S:
                with _locked(folder) as free:
                    if free:
                        shutil.rmtree(folder, ignore_errors=True)
