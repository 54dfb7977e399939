"""However large a table is, preparing it takes no more than 300 MB, in all its processes together.

Measured as the sum of what is theirs of every page they hold (Pss), and enforced for each of them
by the operating system: `RLIMIT_DATA` is inherited.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crowdgrad.data.folder import open_folder

LIMIT = 300_000_000
PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]),) * 2)
from pathlib import Path
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.prepare import prepare
from crowdgrad.net.identity import guest
prepare(sys.argv[1], Path(sys.argv[2]), Options(), guest("preparer"), jobs=2)
"""


def table(path: Path, size: int) -> int:
    """A block of lines, written until it is enough; how many records there are."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 8))
    words = ("oak", "beech", '"elm, wych"', "lime")
    lines = [
        ",".join(f"{v:.5f}" for v in row) + f",{words[n % 4]},{n % 5}" for n, row in enumerate(rows)
    ]
    block = ("\n".join(lines) + "\n").encode()
    times = -(-size // len(block))
    with path.open("wb") as file:
        file.write(b"a,b,c,d,e,f,g,h,tree,label\n")
        for _ in range(times):
            file.write(block)
    return times * len(rows)


def family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def most_memory(source: Path, out: Path) -> int:
    """The most bytes that a preparation and its workers held together."""
    program = [sys.executable, "-c", PROGRAM, str(source), str(out), str(LIMIT)]
    most = 0
    with subprocess.Popen(program) as process:
        while process.poll() is None:
            most = max(most, sum(map(pss, family(process.pid))))
            time.sleep(0.05)
    assert process.returncode == 0
    return most


def check(tmp_path: Path, size: int) -> None:
    records = table(tmp_path / "a.csv", size)
    most = most_memory(tmp_path / "a.csv", tmp_path / "out")
    print(f"{size / 1e6:.0f} MB of CSV: at most {most / 1e6:.0f} MB in all processes")
    assert 50_000_000 < most < LIMIT
    shards = open_folder(tmp_path / "out").manifest.shards
    assert sum(shard.records for shard in shards) == records


def test_a_hundred_megabytes(tmp_path: Path) -> None:
    check(tmp_path, 100_000_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_gigabytes(tmp_path: Path) -> None:
    check(tmp_path, 2_000_000_000)


def test_the_limit_is_one(tmp_path: Path) -> None:
    """Whoever takes more is refused: or the others would prove nothing."""
    program = "import resource as r; r.setrlimit(r.RLIMIT_DATA, ({0}, {0})); bytearray({0})"
    failed = subprocess.run([sys.executable, "-c", program.format(LIMIT)], capture_output=True)
    assert b"MemoryError" in failed.stderr
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != LIMIT
