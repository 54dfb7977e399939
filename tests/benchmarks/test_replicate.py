"""The benchmark of how data spreads: its arithmetic, its job, its machines. Nothing is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crowdgrad.data.folder import open_folder

FOLDER = Path(__file__).parents[2] / "benchmarks"
LEAVE_ME = """
import sys, time
sys.path.insert(0, sys.argv[1])
from _shaped import Machines, working_folder
with working_folder() as folder, Machines() as machines:
    machine = machines.add(mbit=20.0)
    child = machine.start(["sleep", "600"], folder / "log")
    while not machine.processes():
        time.sleep(0.01)
    print(folder, *machine.processes(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def bench(monkeypatch):
    """Names of the benchmark's modules, as its scripts import them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield __import__
    for name in {name for name in sys.modules if name.startswith("_")} - before:
        if getattr(sys.modules[name], "__file__", "") and FOLDER.name in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def test_the_bound_is_one_copy_and_the_last_chunk_doubling(bench):
    bound = bench("_replicate_pictures").bound
    assert bound(28.0, 15, 256) == pytest.approx(28.0 * (1 + 3 / 256))
    assert bound(28.0, 1, 256) == 28.0


def test_its_data_are_chunks_of_one_size_filled_to_the_last_byte(bench, tmp_path):
    job = bench("_replicate_job")
    made = job.make_data(tmp_path, tmp_path / "home", 8)
    folder = open_folder(made.folder)
    train = [s for s in folder.manifest.shards if s.split == "train"]
    assert [c.bytes for s in train for c in s.chunks] == [job.CHUNK] * 8
    assert made.file.stat().st_size == made.bytes == 8 * job.CHUNK
    assert b"".join(folder.chunks[name] for name in made.names) == made.file.read_bytes()


def test_the_claim_takes_hours_from_one_and_minutes_by_the_tree(bench):
    claim = bench("_replicate_pictures").paper(15)
    assert claim["one_to_all"][15] == 150.0
    assert claim["tree"][15] == claim["pipelined"][15] == 40.0
    assert 10.0 < claim["swarm"][15] < 13.0


def test_nothing_stays_of_its_machines_when_it_is_killed(bench):
    if why := bench("_shaped").obstacle():
        pytest.skip(why)
    with subprocess.Popen(
        [sys.executable, "-c", LEAVE_ME, str(FOLDER)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, *pids = process.stdout.readline().split()
        assert pids
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    left = [Path(folder), *(Path("/proc") / pid for pid in pids)]
    while any(path.exists() for path in left):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
