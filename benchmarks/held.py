"""How long the host's event loop is held: while it is, nobody else is heard or answered.

A real `crowdgrad host` (its own worker stopped, checkpoints every second) with scripted volunteers
that compute nothing (`_scripted.py`), with 784-100-10 (318 kB) and 784-2048-2048-10 (23 MB). A task
inside the host asks for a turn every millisecond (`_held/`); what is counted is the processor time
that the loop took between two of its turns, so others' load does not matter. The program's capture
and the volunteers' joining are over by then.

held_ms_SIZE          the longest with one volunteer: any single thing that the host does, a
                      checkpoint or a status included; the promise is 5 ms
held_p999_ms_SIZE     one in a thousand turns came later than this
turn_ms_SIZE_N        the longest with N greedy ones at once: how long it takes the host to serve
                      everybody who is ready, which grows with their number
exchanges_per_s_SIZE_N  meanwhile
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _processes import new_home
from _quiet_host import Recipe, job_file, quiet_host
from _report import Report, arguments
from _windows import player

HERE = Path(__file__).parent
RECIPE: Recipe = {
    "name": "async_sgd", "lr": 0.0001, "batch_size": 100, "batches_per_unit": 1, "overlap": 0,
}  # fmt: skip
CROWDS = {"318kB": 100, "23MB": 8}


def looks(file: Path) -> tuple[int, list[float]]:
    time.sleep(1.5)  # it is written once a second
    said = json.loads(file.read_text())
    return said["looks"], said["over_1_ms"]


def measure(report: Report, folder: Path, size: str, count: int, seconds: float) -> None:
    file = folder / f"held-{size}-{count}.json"
    here = folder / f"{size}-{count}"
    before = ["env", f"PYTHONPATH={HERE / '_held'}", f"CROWDGRAD_HELD={file}",
              "CROWDGRAD_CHECKPOINT_S=1"]  # fmt: skip
    job = job_file(here, size, RECIPE)
    with quiet_host(job, here, new_home(here / "home"), before=before) as host:
        script = [sys.executable, str(HERE / "_scripted.py"), str(host.here["address"])]
        crowd = [*script, str(count), "0", "100"]
        with player(crowd, folder / "players.log") as volunteers:
            volunteers.window(1.0)
            looked, known = looks(file)
            window = volunteers.window(seconds)
            now, held = looks(file)
    for old in known:
        held.remove(old)
    turns = now - looked
    held += [0.0] * max(0, turns - len(held))  # those below a millisecond
    held.sort()
    if count == 1:
        report.add(f"held_ms_{size}", [held[-1]])
        report.add(f"held_p999_ms_{size}", [held[int(0.999 * len(held))]])
    else:
        report.add(f"turn_ms_{size}_{count}", [held[-1]])
    report.add(f"exchanges_per_s_{size}_{count}", [window.trips / window.seconds])


def main() -> None:
    args = arguments(__doc__)
    report = Report("held", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        for size, crowd in CROWDS.items():
            for count in (1, crowd):
                measure(report, Path(name), size, count, 8.0 if args.quick else 40.0)
    report.write(args.json)


if __name__ == "__main__":
    main()
