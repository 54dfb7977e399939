"""A file that grows by whole pieces: one that does not fit is taken back, and the next tried."""

from __future__ import annotations

from pathlib import Path


class GrowingFile:
    def __init__(self, path: Path, *, new: bool = False) -> None:
        """Makes the folder, too; `new`: the file must not be there. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb" if new else "ab", buffering=0)
        self.length = self._file.seek(0, 2)

    def add(self, piece: bytes) -> None:
        """All of it or nothing. Raises OSError, after which it can be tried again."""
        try:
            if self._file.write(piece) != len(piece):
                raise OSError(None, "no room is left on the disk")
        except OSError:
            self._file.truncate(self.length)
            self._file.seek(self.length)
            raise
        self.length += len(piece)

    def close(self) -> None:
        self._file.close()
