"""Killed at any moment, a preparation goes on where it was, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import PART_BYTES
from crowdgrad.data.preparing.pool import free_memory, jobs_within
from crowdgrad.data.preparing.prepare import prepare
from crowdgrad.data.sealing import root_of
from crowdgrad.errors import ChildDied, DataMalformed
from tests.data.preparing.making import KEY, made

BYTES = 30_000_000
PROGRAM = """
import sys
from pathlib import Path
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.prepare import prepare
from crowdgrad.net.identity import guest
prepare(sys.argv[1], Path(sys.argv[2]), Options(), guest("preparer"), jobs=2)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that is read in eight parts."""
    path = tmp_path_factory.mktemp("source") / "a.csv"
    numbers = np.random.default_rng(0).normal(size=(2000, 6))
    block = "\n".join(
        ",".join(f"{v:.6f}" for v in row) + f",{n % 7}" for n, row in enumerate(numbers)
    )
    with path.open("w") as file:
        file.write("a,b,c,d,e,f,label\n")
        while file.tell() < BYTES:
            file.write(block + "\n")
    return path


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("undisturbed")
    return root_of(made(source, out, jobs=1).folder.manifest)


@pytest.mark.parametrize(
    ("cores", "megabytes", "jobs"),
    [
        (4, None, 4),
        (4, 24_000, 4),
        (4, 400, 3),
        (2, 310, 2),
        (2, 250, 1),
        (8, 50, 1),
        (1, 24_000, 1),
    ],
)
def test_where_memory_is_short_fewer_work(cores: int, megabytes: int | None, jobs: int) -> None:
    assert jobs_within(cores, megabytes and megabytes << 20) == jobs


def test_this_machine_says_how_much_memory_it_has() -> None:
    free = free_memory()
    assert free is not None
    assert free > 1 << 20


def started(source: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(source), str(out)])


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """The test's own time limit ends a wait that is in vain."""
    while not condition():
        assert process is None or process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)


def done(out: Path, step: str) -> dict[str, int]:
    """What a step has left, and when."""
    names: Iterator[Path] = (out / ".work" / step).glob("??????")
    return {path.name: path.stat().st_mtime_ns for path in names}


@pytest.mark.parametrize(
    ("step", "files"),
    [
        pytest.param("parts", 1, marks=pytest.mark.slow),
        ("parts", 5),
        pytest.param("runs", 1, marks=pytest.mark.slow),
        ("runs", 6),
        pytest.param("cuts", 1, marks=pytest.mark.slow),
        pytest.param("cuts", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_and_taken_up_again(
    source: Path, undisturbed: str, tmp_path: Path, step: str, files: int
) -> None:
    process = started(source, tmp_path / "out")
    until(lambda: len(done(tmp_path / "out", step)) >= files, process)
    workers = children(process.pid)
    process.kill()
    process.wait()
    assert workers
    until(lambda: not any(map(alive, workers)))  # each ends with the step it is at
    before = {name: done(tmp_path / "out", name) for name in ("parts", "runs", "cuts")}
    assert len(before[step]) >= files
    kept: dict[str, dict[str, int]] = {}

    class Watching:
        """Looks at the work when it is all but done."""

        def start(self, total: int | None, what: str, unit: str = "bytes") -> None: ...

        def advance(self, count: int) -> None:
            kept.update({name: done(tmp_path / "out", name) for name in before})

        def done(self) -> None: ...

    result = prepare(source, tmp_path / "out", Options(), KEY, jobs=2, progress=Watching())
    assert root_of(result.folder.manifest) == undisturbed
    assert not (tmp_path / "out" / ".work").exists()
    for name, files_then in before.items():
        assert {file: kept[name][file] for file in files_then} == files_then


def test_a_killed_worker_is_said_to_be_and_a_second_run_completes(
    source: Path, undisturbed: str, tmp_path: Path
) -> None:
    class Killing:
        """Kills a worker as soon as a part has been read."""

        killed = False

        def start(self, total: int | None, what: str, unit: str = "bytes") -> None: ...

        def advance(self, count: int) -> None:
            if not self.killed:
                self.killed = True
                (first, *_) = (c for c in children(os.getpid()) if is_worker(c))
                os.kill(first, signal.SIGKILL)

        def done(self) -> None: ...

    killing = Killing()
    with pytest.raises(ChildDied, match="exit code -9") as caught:
        prepare(source, tmp_path / "out", Options(), KEY, jobs=2, progress=killing)
    assert "what is done is kept" in caught.value.advice
    assert not [c for c in children(os.getpid()) if is_worker(c)]
    assert done(tmp_path / "out", "parts")
    result = made(source, tmp_path / "out", jobs=2)
    assert root_of(result.folder.manifest) == undisturbed


def is_worker(pid: int) -> bool:
    try:
        return b"crowdgrad.data.preparing.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_errors_of_a_step_come_from_another_process_whole(tmp_path: Path) -> None:
    """Broken where only whoever reads it can see it."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for n in range(6):
        pq.write_table(
            pa.table({"a": np.arange(1000) / 7, "y": [0, 1] * 500}), folder / f"{n}.parquet"
        )
    data = bytearray((folder / "4.parquet").read_bytes())
    data[4:40] = bytes(36)
    (folder / "4.parquet").write_bytes(bytes(data))
    with pytest.raises(DataMalformed, match=r"4\.parquet cannot be read") as caught:
        made(folder, tmp_path / "out", jobs=2)
    assert caught.value.advice
    assert not [c for c in children(os.getpid()) if is_worker(c)]


def test_the_source_is_read_in_more_parts_than_one_process_takes(source: Path) -> None:
    """Or these tests would start no worker."""
    assert source.stat().st_size > 5 * PART_BYTES
