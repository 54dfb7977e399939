"""A real disk that notes its steps, refuses at will, and can lose power at any of them; and what
lies in shared memory."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.files import REAL, Bytes, Writing


def shared_memory() -> set[str]:
    """What has a name there; a database that another test starts does not count."""
    return {file.name for file in Path("/dev/shm").glob("*") if not file.match("PostgreSQL.*")}


class PowerCut(BaseException):
    """Nothing after it happens: not even the tidying up."""


class WatchedDisk:
    """`refuse[step]` is raised instead of doing the step."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.refuse: dict[str, OSError] = {}
        self.cut_at: int | None = None
        """The step at which the power is lost, and half of what it would write is written."""

    def step(self, name: str) -> None:
        if self.cut_at is not None and len(self.steps) >= self.cut_at:
            raise PowerCut
        self.steps.append(name)
        if name in self.refuse:
            raise self.refuse[name]

    def names(self, folder: Path) -> list[str]:
        return REAL.names(folder)

    def size(self, path: Path) -> int:
        return REAL.size(path)

    def read(self, path: Path) -> bytes:
        return REAL.read(path)

    def create(self, path: Path) -> Writing:
        self.step("create")
        return _Watched(self, REAL.create(path))

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename")
        REAL.rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        self.step("sync_folder")
        REAL.sync_folder(folder)

    def remove(self, path: Path) -> None:
        self.step("remove")
        REAL.remove(path)

    def make_folder(self, path: Path) -> None:
        REAL.make_folder(path)


class _Watched:
    def __init__(self, disk: WatchedDisk, file: Writing) -> None:
        self._disk = disk
        self._file = file

    def write(self, data: Bytes, /) -> None:
        try:
            self._disk.step("write")
        except BaseException:
            self._file.write(memoryview(data)[: len(data) // 2])
            raise
        self._file.write(data)

    def sync(self) -> None:
        self._disk.step("sync")
        self._file.sync()

    def close(self) -> None:
        self._file.close()
        self._disk.step("close")
