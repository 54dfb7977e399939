"""How soon and at what price somebody can help.

native_first_gradient_s       from starting `crowdgrad work HOST:PORT` to its first accepted update,
                              over loopback, the data already in its cache (784-100-10, MNIST)
native_first_gradient_cold_s  the same with an empty cache: program and data come from the host
volunteer_download_MB         what `pip install crowdgrad` downloads, dependencies included
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _report import Report, arguments

from crowdgrad.capture.models import mnist_mlp
from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import JobPlan, prepare
from crowdgrad.host.options import Here, Options
from crowdgrad.host.serve import Run
from crowdgrad.host.train import load_data
from crowdgrad.process import Child, run_async
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.settings import Settings

ROOT = Path(__file__).parents[1]


async def first_gradients(folder: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds to the first accepted update: cold starts, then warm ones."""
    plan = JobPlan(
        task=mnist_mlp(),
        data=load_data("mnist"),
        title="join",
        recipe=AsyncSGD(lr=0.1),
        stop=StoppingRule(epochs=1_000_000),
    )
    run = Run(prepare(plan), Options(runs=folder / "runs"), Settings(home=folder / "host"))
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    hosting = asyncio.create_task(run.to_the_end(stop, started=started.set_result))
    here: Here = await started
    try:
        while run.status().updates < 100:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        cold = [await join(run, here, folder / f"cold-{n}", f"c{n}") for n in range(repeats)]
        warm = [await join(run, here, folder / "cold-0", f"w{n}") for n in range(repeats)]
    finally:
        stop.set()
        await hosting
    return cold, warm


async def join(run: Run, here: Here, home: Path, name: str) -> float:
    began = time.perf_counter()
    child = Child(
        ["work", here.address, "--guest", "--yes", "--plain", "--name", name, "--home", str(home)]
    )
    try:
        while not any(m.name == name and m.units for m in run.status().members):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return time.perf_counter() - began
    finally:
        child.ask_to_stop()
        await asyncio.to_thread(child.wait, 10.0)


def download_mb(folder: Path) -> float:
    """The wheels of the base install, as pip would fetch them on a fresh machine."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check",
         "--only-binary=:all:", "--constraint", str(ROOT / "constraints.txt"),
         "--dest", str(folder), *needed],
        check=True,
    )  # fmt: skip
    own = folder / "own"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-qq", "--disable-pip-version-check", "--no-deps",
         "--wheel-dir", str(own), str(ROOT)],
        check=True,
    )  # fmt: skip
    return sum(file.stat().st_size for file in folder.rglob("*.whl")) / 1e6


def main() -> None:
    args = arguments(__doc__)
    report = Report("join", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        folder = Path(name)
        cold, warm = run_async(first_gradients(folder, 3 if args.quick else 9))
        report.add("native_first_gradient_s", warm)
        report.add("native_first_gradient_cold_s", cold)
        wheels = folder / "wheels"
        wheels.mkdir()
        report.add("volunteer_download_MB", [download_mb(wheels)])
    report.write(args.json)


if __name__ == "__main__":
    main()
