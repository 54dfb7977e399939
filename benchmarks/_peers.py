"""The systems that `peers` compares, and one of them started, asked and ended.

A system is a driver under `benchmarks/peers/` and the environment that its `build` makes under
`build/peers/`. Drivers are described in `benchmarks/peers/_work.py`. Everything a driver starts
inherits a token by its environment: so its memory is found, and nothing of it stays behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from _processes import children_of

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "benchmarks" / "peers"
BUILT = ROOT / "build" / "peers"
TOKEN = "CROWDGRAD_BENCH_PEER"
LIMIT_S = 150.0
"""How long a driver may take beyond what it measures."""
LAST_WORDS = 400

Kind = Literal["alone", "per_batch", "rounds", "ours"]


class Failed(Exception):
    """A system could not be built or run; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    name: str
    title: str
    kind: Kind
    """alone: no network; per_batch: the parameters change at every batch; rounds: they do not."""
    environment: str
    driver: str
    options: tuple[str, ...] = ()
    cases: str = "A1 A2 A4 B1 B2 B4"

    @property
    def python(self) -> Path:
        return BUILT / self.environment / "bin" / "python"


SYSTEMS = (
    System(name="plain", title="plain PyTorch, one loop a worker", kind="alone",
           environment="torch", driver="plain.py"),
    System(name="ddp", title="PyTorch DDP, gloo", kind="per_batch",
           environment="torch", driver="ddp.py"),
    System(name="rpc", title="PyTorch RPC parameter server", kind="per_batch",
           environment="torch", driver="rpc.py"),
    System(name="ray", title="Ray parameter server", kind="per_batch",
           environment="ray", driver="driver.py"),
    System(name="tensorflow", title="TensorFlow ParameterServerStrategy", kind="per_batch",
           environment="tensorflow", driver="driver.py"),
    System(name="flower", title="Flower, 10 local batches", kind="rounds",
           environment="flower", driver="driver.py", options=("--batches", "10")),
    System(name="crowdgrad", title="crowdgrad", kind="ours",
           environment="crowdgrad", driver="driver.py"),
    System(name="crowdgrad_10", title="crowdgrad, at most 10 local batches", kind="ours",
           environment="crowdgrad", driver="driver.py", options=("--batches", "10"),
           cases="A1 A2 A4"),
    System(name="crowdgrad_lockstep", title="crowdgrad, lock-step", kind="ours",
           environment="crowdgrad", driver="driver.py", options=("--overlap", "0"),
           cases="A1 B1"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long to measure one case."""

    warm_s: float
    seconds: float
    start: str = "spawn"


# -- environments -----------------------------------------------------------------------------


def build(environment: str) -> None:
    """Make an environment, or find that it is up to date. Raises Failed with pip's last words."""
    said = []
    with subprocess.Popen(
        [str(PEERS / environment / "build")], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.strip())
            if line.startswith("peers:"):
                print(line, end="", file=sys.stderr, flush=True)
    if process.returncode:
        errors = [line for line in said if line.startswith("ERROR")]
        raise Failed((errors or said or ["build failed"])[-1][-LAST_WORDS:])


def installed_MB(environment: str) -> float:
    """What it takes on the disk, counted once where files are linked."""
    done = subprocess.run(
        ["du", "-sk", str(BUILT / environment)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0]) / 1000


# -- one run ----------------------------------------------------------------------------------


def run(system: System, case: str, length: Length) -> dict[str, float]:
    """The figures of one case, such as A2. Raises Failed."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="cgp-", ignore_cleanup_errors=True) as home:
        log = Path(home) / "log"
        began = time.time()
        process = _start(system, case, length, token, Path(home), log)
        try:
            line = _first_line(process, length.warm_s + length.seconds + LIMIT_S)
            if line is None:
                raise Failed(_last_words(log, process))
            figures: dict[str, float | None] = json.loads(line)
            figures["memory_MB"] = memory_MB(_family(process.pid, token))
            figures["start_s"] = (figures.pop("first_update_at") or began) - began
            return {name: value for name, value in figures.items() if value is not None}
        finally:
            _end(process, token)


def _start(
    system: System, case: str, length: Length, token: str, home: Path, log: Path
) -> subprocess.Popen[bytes]:
    arguments = [
        str(system.python), str(PEERS / system.environment / system.driver),
        "--work", case[0], "--workers", case[1:],
        "--warm", str(length.warm_s), "--seconds", str(length.seconds),
        "--start", length.start, *system.options,
    ]  # fmt: skip
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # A home of its own: what it leaves there goes with it.
    own = {TOKEN: token, "HOME": str(home), "RAY_TMPDIR": str(home), "FLWR_HOME": str(home)}
    with log.open("wb") as stderr:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **single, **own},
            cwd=home,
            start_new_session=True,
        )


def _first_line(process: subprocess.Popen[bytes], timeout_s: float) -> str | None:
    """The line of JSON; None where the driver ends, or takes too long, without one."""
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    said = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            continue
        if not (more := os.read(process.stdout.fileno(), 65536)):
            return None
        said += more
        for line in said.split(b"\n")[:-1]:
            if line.startswith(b'{"samples_per_s"'):
                return line.decode()
    return None


def _last_words(log: Path, process: subprocess.Popen[bytes]) -> str:
    try:
        process.wait(5)  # its output may end a moment before it does
    except subprocess.TimeoutExpired:
        return f"no figures after {LIMIT_S:.0f} s"
    lines = log.read_text(errors="replace").strip().splitlines()
    return (lines or [f"ended with {process.returncode}"])[-1][-LAST_WORDS:]


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """Let it end by itself, then see to it that nothing of it is left."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for pid in _family(process.pid, token):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


# -- its processes ----------------------------------------------------------------------------


def _family(pid: int, token: str) -> set[int]:
    """All its processes: by the token they inherited, or as descendants where a process cleans its
    children's environment (our own trainers)."""
    found = {int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _has(folder, token)}
    waiting = [pid, *found]
    while waiting:
        for child in children_of(waiting.pop()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _has(folder: Path, token: str) -> bool:
    try:
        return f"{TOKEN}={token}".encode() in (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def memory_MB(pids: set[int]) -> float:
    """What they hold together, pages that several share counted once (PSS)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(int(x.split()[1]) for x in text.splitlines() if x.startswith("Pss:"))
    return total * 1024 / 1e6
