"""Checkpoints on a disk that fills, tears, lies and loses power."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import DataAltered
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_files import BEST, KEPT, Best, CheckpointFiles, Found, Name
from crowdgrad.store import packed
from tests.disks import PowerCut, WatchedDisk
from tests.host.keeping.checkpoints import scores, simple, told

ROOT = Path(__file__).parents[3]
FULL = OSError(errno.ENOSPC, "No space left on device")


def best(accuracy: float, size: int = 5) -> Best:
    vector = np.full(size, accuracy, np.float32)
    return Best(scores=scores(accuracy=accuracy), vector=vector)


def names(folder: Path) -> list[str]:
    """Of checkpoints, oldest first."""
    return sorted(name for name in os.listdir(folder) if Name.parse(name))


def found(folder: Path) -> Found:
    loaded = CheckpointFiles(folder).load()
    assert loaded is not None
    return loaded


def version(checkpoint: Checkpoint) -> str:
    return str(checkpoint.saved.version)


# -- what is kept -----------------------------------------------------------------------------


def test_the_newest_comes_back_whole(tmp_path: Path) -> None:
    folder = tmp_path / "of" / "its" / "own"
    files = CheckpointFiles(folder)
    assert files.load() is None
    sizes = [files.write(simple(count=count, value=count), best(0.5)) for count in range(3)]
    loaded = found(folder)
    assert told(loaded.checkpoint)[1:] == told(simple(count=2, value=2))[1:]
    assert loaded.best is not None
    assert told(loaded.best) == told(best(0.5))
    assert loaded.checkpoint.course.best == best(0.5).scores, "the best and its scores agree"
    assert loaded.skipped == ()
    there = {name: (folder / name).stat().st_size for name in os.listdir(folder)}
    assert sizes[0] == there[names(folder)[0]] + there[BEST]
    assert sizes[1:] == [there[name] for name in names(folder)[1:]], "the best is written once"


def test_the_last_three_and_the_best_are_kept_and_nothing_else(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "1-2-3.pack").write_text("mine too")
    (tmp_path / ".000001-000000000000-00000001.pack.77-0.part").write_bytes(b"half of it")
    for count in range(10):
        files.write(simple(count=count), best(count / 10))
    assert [Name.parse(name).count for name in names(tmp_path)] == [7, 8, 9]  # type: ignore[union-attr]
    assert len(names(tmp_path)) == KEPT
    others = set(os.listdir(tmp_path)) - set(names(tmp_path))
    assert others == {BEST, "notes.txt", "1-2-3.pack"}
    assert found(tmp_path).best is not None
    assert found(tmp_path).best.scores == best(0.9).scores  # type: ignore[union-attr]


def test_the_latest_is_the_last_written_whatever_its_count_and_date(tmp_path: Path) -> None:
    CheckpointFiles(tmp_path).write(simple(1, 500), None)
    CheckpointFiles(tmp_path).write(simple(2, 300, value=1), None)  # after a setback
    CheckpointFiles(tmp_path).write(simple(2, 300, value=2), None)  # the same version, other news
    for age, name in enumerate(names(tmp_path)):
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    assert version(found(tmp_path).checkpoint) == "2.300"
    assert found(tmp_path).checkpoint.saved.vector[0] == 2
    numbers = [name.rpartition("-")[2] for name in names(tmp_path)]
    assert numbers == ["00000001.pack", "00000002.pack", "00000003.pack"]


@given(
    names=st.lists(
        st.builds(Name, st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1), st.integers(0, 99))
    )
)
def test_names_are_read_as_they_were_written(names: list[Name]) -> None:
    assert [Name.parse(str(name)) for name in names] == names


@given(small=st.lists(st.tuples(*[st.integers(0, 999)] * 3)))
def test_names_sort_as_their_numbers_do(small: list[tuple[int, int, int]]) -> None:
    assert sorted(str(Name(*three)) for three in small) == [str(Name(*t)) for t in sorted(small)]


@pytest.mark.parametrize(
    "text",
    ["best.pack", "", "1-2-3.pack", f"{2**62:06}-000000000000-00000001.pack", "٠-٠-٠.pack",
     "000001-000000000000-00000001.pack.part", "000001-000000000000-00000001.pack\n"],
)  # fmt: skip
def test_what_we_did_not_name_is_not_ours(text: str) -> None:
    assert Name.parse(text) is None


# -- torn and altered -------------------------------------------------------------------------


def test_a_torn_one_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    for count in range(3):
        files.write(simple(count=count), best(0.5))
    first, second, third = (tmp_path / name for name in names(tmp_path))
    os.truncate(third, third.stat().st_size - 7)
    data = bytearray(second.read_bytes())
    data[100] ^= 1
    second.write_bytes(data)
    loaded = found(tmp_path)
    assert version(loaded.checkpoint) == "1.0"
    assert loaded.best is not None
    assert len(loaded.skipped) == 2
    assert third.name in loaded.skipped[0]
    assert "bytes" in loaded.skipped[0]
    assert second.name in loaded.skipped[1]
    assert "altered" in loaded.skipped[1]
    first.unlink()
    with pytest.raises(DataAltered, match="altered"):
        CheckpointFiles(tmp_path).load()


def test_a_renamed_one_is_passed_over(tmp_path: Path) -> None:
    CheckpointFiles(tmp_path).write(simple(1, 7), None)
    shutil.copy(tmp_path / names(tmp_path)[0], tmp_path / str(Name(9, 9, 9)))
    loaded = found(tmp_path)
    assert version(loaded.checkpoint) == "1.7"
    assert "1.7" in loaded.skipped[0]


def test_one_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    CheckpointFiles(tmp_path).write(simple(1, 7), None)
    (tmp_path / str(Name(2, 0, 2))).mkdir()
    assert version(found(tmp_path).checkpoint) == "1.7"


def test_a_torn_best_costs_the_best_and_no_more(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    files.write(simple(), best(0.5))
    os.truncate(tmp_path / BEST, 50)
    again = CheckpointFiles(tmp_path)
    loaded = again.load()
    assert loaded is not None
    assert loaded.best is None
    assert loaded.checkpoint.course.best is None
    assert BEST in loaded.skipped[0]
    again.write(simple(2), best(0.4))
    assert found(tmp_path).best is not None


def test_who_loaded_the_best_does_not_write_it_again(tmp_path: Path) -> None:
    CheckpointFiles(tmp_path).write(simple(), best(0.5))
    again = CheckpointFiles(tmp_path)
    loaded = again.load()
    assert loaded is not None
    before = (tmp_path / BEST).stat().st_ino
    again.write(simple(2), loaded.best)
    assert (tmp_path / BEST).stat().st_ino == before


def test_the_best_of_a_checkpoint_that_was_never_finished_is_still_the_best(tmp_path: Path) -> None:
    disk = WatchedDisk()
    files = CheckpointFiles(tmp_path, disk)
    files.write(simple(count=1), best(0.5))
    disk.cut_at = len(disk.steps) + disk.steps.index("sync_folder") + 3  # the best is there by then
    with pytest.raises(PowerCut):
        files.write(simple(count=2), best(0.9))
    loaded = found(tmp_path)
    assert version(loaded.checkpoint) == "1.1"
    assert loaded.best is not None
    assert loaded.best.scores.metrics == {"accuracy": 0.9}
    assert loaded.checkpoint.course.best == loaded.best.scores


def test_whenever_the_power_is_cut_there_is_one_to_go_on_from(tmp_path: Path) -> None:
    cut = 0
    while True:
        folder = tmp_path / str(cut)
        disk = WatchedDisk()
        files = CheckpointFiles(folder, disk)
        for count in range(3):
            files.write(simple(count=count), best(0.5))
        disk.cut_at = len(disk.steps) + cut
        try:
            files.write(simple(count=3), best(0.9))
        except PowerCut:
            loaded = found(folder)
            assert version(loaded.checkpoint) in ("1.2", "1.3")
            assert loaded.best is not None
            assert loaded.checkpoint.course.best == loaded.best.scores
            assert loaded.skipped == ()
            CheckpointFiles(folder).write(simple(2, 4), loaded.best)
            assert version(found(folder).checkpoint) == "2.4"
            assert len(os.listdir(folder)) == KEPT + 1, "no draft is left"
        else:
            break
        cut += 1
    assert cut > 10


# -- a full disk ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["create", "write", "sync", "rename"])
def test_a_full_disk_costs_nothing_that_is_there(tmp_path: Path, step: str) -> None:
    disk = WatchedDisk()
    files = CheckpointFiles(tmp_path, disk)
    files.write(simple(count=1), best(0.5))
    before = sorted(os.listdir(tmp_path))
    disk.refuse[step] = FULL
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            files.write(simple(count=2), best(0.9))
    assert sorted(os.listdir(tmp_path)) == before
    assert version(found(tmp_path).checkpoint) == "1.1"
    disk.refuse.clear()
    files.write(simple(count=3), best(0.9))
    assert version(found(tmp_path).checkpoint) == "1.3"
    assert found(tmp_path).best is not None
    assert found(tmp_path).best.scores.metrics == {"accuracy": 0.9}  # type: ignore[union-attr]


def test_what_cannot_be_removed_is_removed_another_time(tmp_path: Path) -> None:
    disk = WatchedDisk()
    files = CheckpointFiles(tmp_path, disk)
    disk.refuse["remove"] = OSError(errno.EIO, "Input/output error")
    for count in range(5):
        files.write(simple(count=count), None)
    assert len(names(tmp_path)) == 5
    disk.refuse.clear()
    files.write(simple(count=5), None)
    assert len(names(tmp_path)) == KEPT


# -- incarnations -----------------------------------------------------------------------------


def test_an_incarnation_is_never_given_twice(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    given_out = [CheckpointFiles(folder).claim() for _ in range(5)]
    assert given_out == [1, 2, 3, 4, 5]
    assert os.listdir(folder) == ["incarnation-000005"]
    files = CheckpointFiles(folder)
    files.write(simple(40, 1), None)
    assert files.claim() == 41


def test_who_goes_on_without_the_disk_is_given_no_number_twice(tmp_path: Path) -> None:
    disk = WatchedDisk()
    files = CheckpointFiles(tmp_path, disk)
    incarnation = files.claim()
    disk.refuse["rename"] = OSError(errno.EROFS, "Read-only file system")
    for _ in range(3):
        with pytest.raises(OSError, match="Read-only"):
            files.claim()
        incarnation += 1  # what the host does then
    disk.refuse.clear()
    assert files.claim() == incarnation + 1


def test_it_is_above_every_checkpoint_where_the_counter_is_lost(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    files.write(simple(7, 1), None)
    (tmp_path / names(tmp_path)[0]).write_bytes(b"torn: its name still counts")
    assert files.claim() == 8


def test_a_run_put_together_from_copies_has_one_counter(tmp_path: Path) -> None:
    for number in (3, 9, 5):
        (tmp_path / f"incarnation-{number:06}").touch()
    (tmp_path / "incarnation-77").touch()  # not as we write it
    assert CheckpointFiles(tmp_path).claim() == 10
    assert sorted(os.listdir(tmp_path)) == ["incarnation-000010", "incarnation-77"]


def test_a_claim_needs_no_room(tmp_path: Path) -> None:
    disk = WatchedDisk()
    files = CheckpointFiles(tmp_path, disk)
    assert files.claim() == 1
    for step in ("create", "write", "sync"):
        disk.refuse[step] = FULL
    assert files.claim() == 2


def test_whenever_the_power_is_cut_a_claim_is_not_given_again(tmp_path: Path) -> None:
    rng = random.Random(3)
    given_out: set[int] = set()
    for _ in range(40):
        disk = WatchedDisk()
        disk.cut_at = rng.randrange(8)
        files = CheckpointFiles(tmp_path, disk)
        try:
            for _ in range(5):
                number = files.claim()
                assert number not in given_out
                given_out.add(number)
        except PowerCut:
            continue
    assert len(given_out) > 20


def test_a_claim_that_does_not_last_is_not_given(tmp_path: Path) -> None:
    disk = WatchedDisk()
    files = CheckpointFiles(tmp_path, disk)
    disk.refuse["sync_folder"] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input"):
        files.claim()
    disk.refuse.clear()
    assert files.claim() == 2, "the first may have been seen by a crash"


def test_files_are_what_the_format_says(tmp_path: Path) -> None:
    CheckpointFiles(tmp_path).write(simple(size=1000), None)
    (name,) = names(tmp_path)
    kept = packed.read(WatchedDisk(), tmp_path / name)
    assert list(kept.parts) == ["state"]
    assert len(kept.parts["state"]) == 4000


# -- a file system that is really full --------------------------------------------------------

IN_A_TINY_FILE_SYSTEM = """
mount -t tmpfs -o size=512k,nr_inodes=64 none "$1" || exit 77
exec "$2" -c "$3" "$1"
"""
FILL_AND_GO_ON = """
import sys
from pathlib import Path
from crowdgrad.host.keeping.checkpoint_files import CheckpointFiles
from tests.host.keeping.checkpoints import simple

place = Path(sys.argv[1])
files = CheckpointFiles(place / "checkpoints")
assert files.claim() == 1
files.write(simple(1, 1, size=10_000), None)
filler = place / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
try:
    files.write(simple(1, 2, size=10_000), None)
    raise AssertionError("the disk was not full")
except OSError:
    pass
assert files.claim() == 2
found = CheckpointFiles(place / "checkpoints").load()
assert found is not None and str(found.checkpoint.saved.version) == "1.1"
filler.unlink()
files.write(simple(2, 2, size=10_000), None)
found = CheckpointFiles(place / "checkpoints").load()
assert found is not None and str(found.checkpoint.saved.version) == "2.2"
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_file_system_that_is_really_full(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount",
         "sh", "-c", IN_A_TINY_FILE_SYSTEM, "sh", str(tmp_path), sys.executable, FILL_AND_GO_ON],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    if done.returncode in (1, 77) and "Traceback" not in done.stderr:
        pytest.skip(f"no file system of our own here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
