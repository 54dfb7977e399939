"""Looking on while the walls are tried: what `crowdgrad doctor` knows about this machine.

What a process says of its own walls is one thing; this starts a process for each attempt, gives it
something to attack, and believes only how it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from crowdgrad.settings import trainer_environment
from crowdgrad.volunteer.sandbox.attempts import ATTEMPTS, DONE, REFUSED, Targets
from crowdgrad.volunteer.sandbox.walls import WALLS, Held

MODULE = "crowdgrad.volunteer.sandbox.attempts"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one attempt ended."""

    attempt: str
    wall: str
    words: str
    stopped: bool
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    held: tuple[Held, ...]
    """All walls: what the process within says of its walls."""
    outcomes: tuple[Outcome, ...]
    libraries: dict[str, str]
    """Version by library, as loaded within the walls; `error` where that failed."""

    @property
    def verdict(self) -> tuple[Held, ...]:
        """A wall holds if it stands and nothing came through."""
        return tuple(_verdict(one, self.outcomes) for one in self.held)


def examine(names: Iterable[str] = tuple(ATTEMPTS)) -> Examination:
    """Try them all. Takes a second or two."""
    with targets() as to, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        account = pool.submit(_account, to)
        outcomes = tuple(pool.map(lambda name: attempt(name, to), names))
        libraries, standing = account.result()
    return Examination(held=standing, outcomes=outcomes, libraries=libraries)


def attempt(name: str, to: Targets) -> Outcome:
    ended = _run(name, to)
    tried = ATTEMPTS[name]
    stopped, how = _ending(ended)
    return Outcome(attempt=name, wall=tried.wall, words=tried.words, stopped=stopped, how=how)


@contextlib.contextmanager
def targets() -> Generator[Targets, None, None]:
    """Something to attack: listeners, a file like a key, a folder, and this process itself."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crowdgrad-")))
        key = folder / "key"
        key.write_bytes(b"secret")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        path = folder / "unix"
        if hasattr(socket, "AF_UNIX"):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(str(path))
            unix.listen()
        memory = ctypes.create_string_buffer(b"secret in memory")
        yield Targets(
            agent=os.getpid(),
            address=ctypes.addressof(memory),
            tcp=tcp.getsockname()[1],
            udp=udp.getsockname()[1],
            unix=str(path),
            key=str(key),
            folder=str(folder),
        )


def _run(name: str, to: Targets) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", MODULE, name, json.dumps(asdict(to))]
    return subprocess.run(
        command,
        cwd=to.folder,
        env=trainer_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


def _account(to: Targets) -> tuple[dict[str, str], tuple[Held, ...]]:
    ended = _run("account", to)
    try:
        said = json.loads(ended.stdout)
    except ValueError:
        last = ended.stderr.strip().splitlines()[-1:] or [f"it ended with {ended.returncode}"]
        how = f"could not be tried: {last[0]}"
        return {"error": last[0]}, tuple(Held(wall=wall.id, holds=False, how=how) for wall in WALLS)
    return said, tuple(Held(**one) for one in said.pop("held"))


def _ending(ended: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    code = ended.returncode
    if code == DONE:
        return False, "it worked"
    if code == REFUSED:
        return True, ended.stdout.strip() or "refused"
    if hasattr(signal, "SIGSYS") and code == -signal.SIGSYS:
        return True, "ended by the kernel"
    last = ended.stderr.strip().splitlines()[-1:] or ["without a word"]
    return False, f"could not be tried: it ended with {code}, {last[0]}"


def _verdict(held: Held, outcomes: Iterable[Outcome]) -> Held:
    through = [one for one in outcomes if one.wall == held.wall and not one.stopped]
    if not through or not held.holds:
        return held
    told = "; ".join(f"{one.words}: {one.how}" for one in through)
    return Held(wall=held.wall, holds=False, how=told)
