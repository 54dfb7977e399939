"""What this machine is, as a volunteer describes itself: to hosts, and in more detail to whoever
looks for a job for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from crowdgrad import __version__
from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.matching import MINUTES_A_DAY, Hours, Machine
from crowdgrad.errors import one_line
from crowdgrad.net.identity import Identity
from crowdgrad.settings import Settings, hours_of_day
from crowdgrad.volunteer import speed

ENGINE = "onnxruntime"
OWN_ENGINE = "PyTorch"
NVIDIA = Path("/proc/driver/nvidia/gpus")
ASK_S = 2.0
"""How long a driver may take to name its GPU."""
MAX_GPU_NAME = 64


def describe(identity: Identity, name: str, *, own_model: bool = False) -> Volunteer:
    return Volunteer(
        id=identity.id,
        name=name or f"volunteer-{identity.id[:6]}",
        cores=os.cpu_count() or 1,
        memory_mb=_memory_mb(),
        engine=OWN_ENGINE if own_model else ENGINE,
        software=f"crowdgrad {__version__}",
    )


def machine(
    settings: Settings, *, with_gpu: bool = False, wall: Callable[[], float] = time.time
) -> Machine:
    """What a matchmaker is told. `with_gpu`: the GPU would compute, where there is one.

    May take two seconds: call it in a thread.
    """
    measured = speed.known(settings.home, wall())
    gpu, gpu_memory_mb = find_gpu() if with_gpu else ("", 0)
    return Machine(
        gpu=gpu,
        gpu_memory_mb=gpu_memory_mb,
        gflops=measured.gflops,
        download_mbps=settings.download_mbps or measured.download_mbps,
        upload_mbps=settings.upload_mbps,
        most_download_mb=settings.most_download_mb,
        hours=hours(settings.hours, utc_offset_s(wall())),
        reachable=bool(measured.reachable),
    )


def hours(text: str, offset_s: float) -> Hours | None:
    """`text`: the setting, in this machine's own time, which is so far ahead of UTC."""
    local = hours_of_day(text)
    if local is None:
        return None
    start, end = ((minute - round(offset_s / 60)) % MINUTES_A_DAY for minute in local)
    return Hours(start=start, end=end)


def utc_offset_s(now: float) -> float:
    """How far this machine's time is ahead of UTC then; not known: 0."""
    offset = datetime.fromtimestamp(now).astimezone().utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def find_gpu() -> tuple[str, int]:
    """Name and memory in MB of the largest NVIDIA GPU, as its driver says; empty and 0: none."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            asked = subprocess.run(
                [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
                capture_output=True,
                timeout=ASK_S,
                check=True,
            )
            return largest(asked.stdout[:10_000].decode("utf-8", "replace"))
        except (OSError, subprocess.SubprocessError):
            pass  # it is there but does not work: the kernel's word is left
    return _named_by_the_kernel(), 0


def largest(answer: str) -> tuple[str, int]:
    """The GPU with the most memory among lines such as `NVIDIA H200, 143771`."""
    found = [("", 0)]
    for line in answer.splitlines():
        name, _, memory = line.rpartition(",")
        if name.strip() and memory.strip().isascii() and memory.strip().isdigit():
            found.append((_gpu_name(name), int(memory)))
    return max(found, key=lambda gpu: gpu[1])


def _named_by_the_kernel() -> str:
    try:
        for entry in sorted(NVIDIA.iterdir()):
            for line in (entry / "information").read_text().splitlines():
                label, _, name = line.partition(":")
                if label.strip() == "Model":
                    return _gpu_name(name)
    except OSError:
        pass  # there is no such driver
    return ""


def _gpu_name(text: str) -> str:
    return one_line(text).strip()[:MAX_GPU_NAME]


def _memory_mb() -> int:
    if not hasattr(os, "sysconf"):
        return 0  # unknown: said as such rather than guessed
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
