"""How fast any data is made ready, by how fast others only read the same file.

Ours is `prepare`, from a cold start of its processes to the sealed folder: guess, parse, check all
records, encode, shuffle, cut, hash, write. Theirs reads the file into memory and does no more. All
in turns on the same files, both cores free to everybody.

csv_vs_pandas, csv_vs_pyarrow        a table of ten numbers, a category and a class: our bytes a
                                     second by those of pandas.read_csv, pyarrow.csv.read_csv
jsonl_vs_pandas                      the same records as JSON lines: by pandas.read_json(lines=True)
parquet_vs_pandas                    the same records as Parquet: by pandas.read_parquet
images_vs_pillow                     PNG in folders: by one core that decodes and resizes them
csv_MB_s, jsonl_MB_s, parquet_MB_s   of the source, to have an idea (shared machine)
two_jobs_vs_one                      the table by two processes, by one
again_vs_first                       seconds of a second run on the unchanged table, by the first's
again_s                              the same in seconds
large_peak_MB                        memory of all processes together at its peak (sum of Pss) for
                                     a table of 2 GB (quick: 200 MB)
large_MB_s                           and how fast that was
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from _report import Report, arguments
from PIL import Image

from crowdgrad.data.preparing.options import from_table
from crowdgrad.data.preparing.prepare import prepare
from crowdgrad.net.identity import guest

BLOCK = 20_000
SIDE, SMALL = 96, 32
PSS_EVERY_S = 0.05


def table(records: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {f"f{n}": rng.normal(size=records).round(4) for n in range(10)}
    columns["city"] = np.array([f"city{n}" for n in range(20)])[rng.integers(0, 20, records)]
    columns["label"] = np.array(list("abcde"))[rng.integers(0, 5, records)]
    return pd.DataFrame(columns)


def write_large(path: Path, megabytes: int) -> None:
    body = table(BLOCK).to_csv(index=False).encode()
    head, _, rows = body.partition(b"\n")
    with path.open("wb") as file:
        file.write(head + b"\n")
        while file.tell() < megabytes * 1e6:
            file.write(rows)


def write_images(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"class{number % 5}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        rough = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(rough).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path)


def read_images(folder: Path) -> np.ndarray:
    found = []
    for path in sorted(folder.rglob("*.png")):
        with Image.open(path) as picture:
            small = picture.convert("RGB").resize((SMALL, SMALL), Image.Resampling.BILINEAR)
            found.append(np.asarray(small))
    return np.stack(found)


def seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


class Ours:
    """`prepare` into a fresh folder each time."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._key = guest("bench")

    def __call__(self, source: Path, jobs: int | None = None, **wishes: object) -> Path:
        out = Path(tempfile.mkdtemp(dir=self._scratch)) / "out"
        prepare(str(source), out, from_table(dict(wishes), "bench"), self._key, jobs=jobs)
        return out

    def timed(self, source: Path, jobs: int | None = None, **wishes: object) -> float:
        out = Path()

        def run() -> None:
            nonlocal out
            out = self(source, jobs, **wishes)

        took = seconds(run)
        shutil.rmtree(out.parent)
        return took


def compare(
    report: Report, name: str, ours: Callable[[], float], theirs: dict[str, Callable[[], object]],
    size: int, repeats: int,
) -> None:  # fmt: skip
    found: list[float] = []
    others: dict[str, list[float]] = {other: [] for other in theirs}
    for _ in range(repeats):
        found.append(ours())
        for other, read in theirs.items():
            others[other].append(seconds(read))
    for other, times in others.items():
        report.add(f"{name}_vs_{other}", [t / o for o, t in zip(found, times, strict=True)])
    if size:
        report.add(f"{name}_MB_s", [size / 1e6 / took for took in found])


def peak_and_speed(source: Path, scratch: Path) -> tuple[float, float]:
    """MB of all processes together, and MB of the source a second."""
    code = (
        "import sys; from pathlib import Path\n"
        "from crowdgrad.data.preparing.options import Options\n"
        "from crowdgrad.data.preparing.prepare import prepare\n"
        "from crowdgrad.net.identity import guest\n"
        "prepare(sys.argv[1], Path(sys.argv[2]), Options(), guest('bench'))\n"
    )
    out = scratch / "large"
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code, str(source), str(out)])
    peak = 0
    stop = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(PSS_EVERY_S):
            peak = max(peak, pss_of_tree(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code_ = child.wait()
    took = time.perf_counter() - began
    stop.set()
    watcher.join()
    if code_:
        raise SystemExit(f"prepare failed: {code_}")
    shutil.rmtree(out)
    return peak / 1e6, source.stat().st_size / 1e6 / took


def pss_of_tree(pid: int) -> int:
    """Bytes; shared pages are counted once, divided among those who share them."""
    total, left = 0, [pid]
    while left:
        one = left.pop()
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
            for task in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{task}/children").read_text().split()
                left += map(int, children)
    return total


def main() -> None:
    args = arguments(__doc__)
    report = Report("prepare", args.quick)
    repeats, records = (3, 120_000) if args.quick else (7, 800_000)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as folder:
        scratch = Path(folder)
        ours = Ours(scratch)
        frame = table(records)
        csv, lines, parquet = (scratch / f"t.{end}" for end in ("csv", "jsonl", "parquet"))
        frame.to_csv(csv, index=False)
        frame.to_json(lines, orient="records", lines=True)
        pq.write_table(pa.Table.from_pandas(frame), parquet, row_group_size=50_000)
        compare(report, "csv", lambda: ours.timed(csv),
                {"pandas": lambda: pd.read_csv(csv), "pyarrow": lambda: pacsv.read_csv(csv)},
                csv.stat().st_size, repeats)  # fmt: skip
        compare(report, "jsonl", lambda: ours.timed(lines),
                {"pandas": lambda: pd.read_json(lines, lines=True)},
                lines.stat().st_size, repeats)  # fmt: skip
        compare(report, "parquet", lambda: ours.timed(parquet),
                {"pandas": lambda: pd.read_parquet(parquet)},
                parquet.stat().st_size, repeats)  # fmt: skip
        pictures = scratch / "pictures"
        write_images(pictures, 1_000 if args.quick else 4_000)
        compare(report, "images", lambda: ours.timed(pictures, images={"size": [SMALL, SMALL]}),
                {"pillow": lambda: read_images(pictures)}, 0, repeats)  # fmt: skip
        pairs = [(ours.timed(csv, 1), ours.timed(csv, 2)) for _ in range(repeats)]
        report.add("two_jobs_vs_one", [one / two for one, two in pairs])
        again(report, csv, scratch, repeats)
        large = scratch / "large.csv"
        write_large(large, 200 if args.quick else 2000)
        peak, speed = peak_and_speed(large, scratch)
        report.add("large_peak_MB", [peak])
        report.add("large_MB_s", [speed])
    report.write(args.json)


def again(report: Report, csv: Path, scratch: Path, repeats: int) -> None:
    out, key, wishes = scratch / "again", guest("bench"), from_table({}, "bench")
    first = seconds(lambda: prepare(str(csv), out, wishes, key))
    later = [seconds(lambda: prepare(str(csv), out, wishes, key)) for _ in range(repeats)]
    report.add("again_vs_first", [one / first for one in later])
    report.add("again_s", later)


if __name__ == "__main__":
    main()
