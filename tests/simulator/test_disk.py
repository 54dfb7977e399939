"""The virtual disk keeps what it promised, and nothing else for sure."""

from __future__ import annotations

import errno
import functools
from pathlib import Path

import pytest

from crowdgrad.simulator.chance import dice_of
from crowdgrad.simulator.disk import Mount, Platter
from crowdgrad.simulator.virtual_time import Died

FOLDER = Path("a/b")
FILE = FOLDER / "file"
LONG = bytes(range(256)) * 16


def mounted() -> tuple[Platter, Mount]:
    platter = Platter()
    mount = Mount(platter, dice_of("disk"))
    mount.make_folder(FOLDER)
    return platter, mount


def written(mount: Mount, *, sync: bool, folder: bool, path: Path = FILE) -> None:
    file = mount.create(path)
    file.write(LONG)
    if sync:
        file.sync()
    file.close()
    if folder:
        mount.sync_folder(FOLDER)


def after_cuts(platter: Platter) -> list[dict[str, bytes]]:
    images = [platter.image(dice_of(str(n))) for n in range(100)]
    return [
        {name: bytes(file.data) for name, file in image.folders[str(FOLDER)].now.items()}
        for image in images
    ]


def test_what_was_synced_is_there_whatever_happens() -> None:
    platter, mount = mounted()
    written(mount, sync=True, folder=True)
    assert all(found == {"file": LONG} for found in after_cuts(platter))


def test_what_was_not_synced_may_be_lost_torn_or_kept() -> None:
    platter, mount = mounted()
    written(mount, sync=False, folder=True)
    found = {names["file"] for names in after_cuts(platter)}
    assert {b"", LONG} <= found
    assert any(0 < len(data) < len(LONG) for data in found)
    assert any(len(data) == len(LONG) and data != LONG for data in found)


def test_a_name_lasts_only_with_its_folder() -> None:
    platter, mount = mounted()
    written(mount, sync=True, folder=False)
    assert {tuple(names) for names in after_cuts(platter)} == {(), ("file",)}


def test_after_a_rename_either_name_or_both_may_be_seen() -> None:
    platter, mount = mounted()
    written(mount, sync=True, folder=True, path=FOLDER / "draft")
    mount.rename(FOLDER / "draft", FILE)
    seen = {tuple(sorted(names)) for names in after_cuts(platter)}
    assert seen == {("draft",), ("file",), ("draft", "file")}
    mount.sync_folder(FOLDER)
    assert {tuple(names) for names in after_cuts(platter)} == {("file",)}


def test_it_dies_at_the_step_it_was_told_and_does_nothing_any_more() -> None:
    for step in range(1, 5):
        _, mount = mounted()
        before, mount.dies_in = mount.steps, step
        mount.on_death = functools.partial(setattr, mount, "dead", True)
        with pytest.raises(Died):
            written(mount, sync=True, folder=True)
        assert mount.steps == before + step
        with pytest.raises(Died):
            mount.names(FOLDER)


def test_a_full_disk_takes_names_but_no_bytes() -> None:
    _, mount = mounted()
    mount.full = True
    with pytest.raises(OSError, match="No space") as refused:
        written(mount, sync=True, folder=True)
    assert refused.value.errno == errno.ENOSPC
    mount.rename(FILE, FOLDER / "other")
    assert mount.names(FOLDER) == ["other"]
    assert mount.size(FOLDER / "other") == 0
