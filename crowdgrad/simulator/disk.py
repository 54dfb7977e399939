"""A disk that keeps only what it promised: what was synced survives, the rest is up to the dice.

After a power cut a file has what was synced, and of what was written later nothing, a part, holes
or all. Names last when their folder was synced; later changes of names may be there or not, in
order or out of order, and a rename may leave both names. A `Mount` is the disk as one running host
sees it: it can be told to die at its n-th step, and a dead mount does nothing any more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crowdgrad.files import Bytes
from crowdgrad.simulator.chance import Dice
from crowdgrad.simulator.virtual_time import Died

BLOCK = 512
"""What is torn is torn in blocks of so many bytes."""


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    """Bytes that survive."""

    def after_cut(self, dice: Dice) -> tuple[Inode, bool]:
        """What is left of it, and whether it is torn."""
        whole, kept = bytes(self.data), self.synced
        fate = dice.choice(("lost", "prefix", "holes", "kept"))
        if kept == len(whole) or fate == "kept":
            return Inode(bytearray(whole), len(whole)), False
        if fate == "lost":
            whole = whole[:kept]
        elif fate == "prefix":
            whole = whole[: dice.randint(kept, len(whole))]
        else:
            left = bytearray(whole)
            for start in range(kept, len(whole), BLOCK):
                end = min(start + BLOCK, len(whole))
                if dice.random() < 0.5:
                    left[start:end] = bytes(end - start)
            whole = bytes(left)
        return Inode(bytearray(whole), len(whole)), True


Change = tuple[str, str, str, Inode | None]
"""("link", name, "", file), ("rename", old, new, file) or ("unlink", name, "", None)."""


@dataclass
class Folder:
    now: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    """Since it was last synced."""

    def sync(self) -> None:
        self.durable = dict(self.now)
        self.changes.clear()

    def after_cut(self, dice: Dice) -> dict[str, Inode]:
        names = dict(self.durable)
        changes = self.changes
        if dice.random() < 0.5:  # a journal keeps their order
            changes = changes[: dice.randint(0, len(changes))]
        else:
            changes = [change for change in changes if dice.random() < 0.5]
        for kind, name, new, file in changes:
            if kind == "unlink":
                names.pop(name, None)
            elif kind == "link":
                names[name] = file  # type: ignore[assignment]
            else:
                if dice.random() < 0.8:
                    names.pop(name, None)
                names[new] = file  # type: ignore[assignment]
        return names


class Platter:
    """What outlives its hosts."""

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {}
        self.torn = 0

    def cut(self, dice: Dice) -> None:
        """The power fails."""
        after = self.image(dice)
        self.folders, self.torn = after.folders, self.torn + after.torn

    def image(self, dice: Dice) -> Platter:
        """A disk as it might be if the power failed now."""
        other = Platter()
        for path, folder in self.folders.items():
            names: dict[str, Inode] = {}
            for name, file in folder.after_cut(dice).items():
                names[name], torn = file.after_cut(dice)
                other.torn += torn
            other.folders[path] = Folder(dict(names), dict(names))
        return other

    def flip_a_bit(self, folder: str, name: str, dice: Dice) -> None:
        data = self.folders[folder].now[name].data
        if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _no_hook() -> None:
    return None


class Mount:
    """The disk in the hands of one host (`crowdgrad.files.Disk`)."""

    def __init__(self, platter: Platter, dice: Dice) -> None:
        self._platter = platter
        self._dice = dice
        self.dead = False
        self.full = False
        self.fails = 0.0
        """How likely a sync fails."""
        self.dies_in: int | None = None
        """After so many further steps."""
        self.on_death: Callable[[], None] = _no_hook
        self.steps = 0

    # -- what files.Disk promises -------------------------------------------------------------

    def names(self, folder: Path) -> list[str]:
        self._look()
        found = self._platter.folders.get(str(folder))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(folder))
        names = sorted(found.now)
        self._dice.shuffle(names)
        return names

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def read(self, path: Path) -> bytes:
        return bytes(self._file(path).data)

    def create(self, path: Path) -> _Writing:
        folder = self._folder(path)
        if path.name in folder.now:
            raise FileExistsError(errno.EEXIST, "It exists", str(path))
        file = Inode()

        def link() -> None:
            folder.now[path.name] = file
            folder.changes.append(("link", path.name, "", file))

        self._step(link)
        return _Writing(self, file)

    def rename(self, old: Path, new: Path) -> None:
        folder, file = self._folder(old), self._file(old)
        assert old.parent == new.parent, "drafts lie beside their files"

        def rename() -> None:
            folder.now[new.name] = folder.now.pop(old.name)
            folder.changes.append(("rename", old.name, new.name, file))

        self._step(rename)

    def sync_folder(self, folder: Path) -> None:
        self._may_fail()
        self._step(self._folder(folder / "any").sync)

    def remove(self, path: Path) -> None:
        folder = self._folder(path)
        self._file(path)

        def unlink() -> None:
            del folder.now[path.name]
            folder.changes.append(("unlink", path.name, "", None))

        self._step(unlink)

    def make_folder(self, path: Path) -> None:
        self._look()
        if str(path) not in self._platter.folders:
            self._step(lambda: self._platter.folders.update({str(path): Folder()}))

    # -- steps --------------------------------------------------------------------------------

    def _look(self) -> None:
        if self.dead:
            raise Died

    def _step(self, change: Callable[[], object]) -> None:
        """One change, at which the power may fail: just before or just after."""
        self._look()
        self.steps += 1
        if self.dies_in is None:
            change()
            return
        self.dies_in -= 1
        if self.dies_in > 0 or self._dice.random() < 0.5:
            change()
        if self.dies_in <= 0:
            self.dies_in = None
            self.on_death()
            raise Died

    def _may_fail(self) -> None:
        if self.fails and self._dice.random() < self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _folder(self, path: Path) -> Folder:
        self._look()
        folder = self._platter.folders.get(str(path.parent))
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
        return folder

    def _file(self, path: Path) -> Inode:
        file = self._folder(path).now.get(path.name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return file


class _Writing:
    def __init__(self, mount: Mount, file: Inode) -> None:
        self._mount = mount
        self._file = file

    def write(self, data: Bytes, /) -> int:
        part = bytes(data)
        if self._mount.full and part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._mount._step(lambda: self._file.data.extend(part))
        return len(part)

    def sync(self) -> None:
        self._mount._may_fail()
        self._mount._step(self._sync)

    def _sync(self) -> None:
        self._file.synced = len(self._file.data)

    def close(self) -> None:
        return None
