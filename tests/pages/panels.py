"""Panels, hosts and volunteers as people start them: real processes, all gone at the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_S = 120.0
END_S = 60.0
GENTLE = {"CROWDGRAD_CPU": "25", "CROWDGRAD_CPU_IDLE": "25"}
"""How hard volunteers work here, hosts' own workers too: what pages show does not depend on it."""
MLP = {"kind": "mlp", "layers": 1, "width": 16}


@dataclass(frozen=True, kw_only=True)
class Running:
    process: subprocess.Popen[str]
    url: str
    """With the token, as it is printed."""
    home: Path

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def base(self) -> str:
        return self.url.partition("/#")[0]

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def begun(self) -> dict[int, str]:
        """What it has started, and those in turn: commands by process id."""
        return descendants(self.process.pid)

    def at_work(self) -> list[str]:
        """Of those, all but who only answers for runs that have ended."""
        return [command for command in self.begun().values() if ".asking" not in command]


@contextlib.contextmanager
def panel(home: Path, *, port: int = 0, **settings: str) -> Iterator[Running]:
    home.mkdir(exist_ok=True)
    where = ["--port", str(port), "--home", str(home), "--runs", str(home / "runs")]
    with process("panel", "--no-browser", *where, cwd=home, settings=settings) as started:
        found = heard(started, r"http://127\.0\.0\.1:\d+/#enter=\S+")
        running = Running(process=started, url=found, home=home)
        yield running
        left = running.begun()
    until(lambda: not any(map(alive, left)), f"what the panel had started is gone: {left}")


@contextlib.contextmanager
def process(
    *arguments: str, cwd: Path, settings: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`crowdgrad ARGUMENTS`, ended as Ctrl-C would; `settings` by environment."""
    given = {f"CROWDGRAD_{name.upper()}": value for name, value in (settings or {}).items()}
    started = subprocess.Popen(
        [sys.executable, "-m", "crowdgrad", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**_environment(), "PYTHONUNBUFFERED": "1", **given},
    )
    assert started.stdout is not None
    try:
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGINT)
        try:
            started.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            started.kill()
            raise
        finally:
            started.stdout.close()


@contextlib.contextmanager
def volunteer(
    home: Path, address: str, name: str, *options: str
) -> Iterator[subprocess.Popen[Any]]:
    """Somebody who comes to help, and says yes to everything."""
    home.mkdir(exist_ok=True)
    with (home / "work.log").open("wb") as log:
        started = subprocess.Popen(
            [
                sys.executable, "-m", "crowdgrad", "work", address, "--yes", "--name", name,
                "--plain", "--home", str(home), *options,
            ],
            cwd=home,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=_environment(),
        )  # fmt: skip
    try:
        yield started
    finally:
        started.terminate()
        started.wait(END_S)


@dataclass(frozen=True, kw_only=True)
class Hosting:
    process: subprocess.Popen[str]
    told: dict[str, Any]
    """What it announced: address, API, token, folder."""

    @property
    def address(self) -> str:
        return str(self.told["address"])

    def status(self) -> Any:
        with urllib.request.urlopen(f"{self.told['url']}/status") as answer:
            return json.load(answer)


@contextlib.contextmanager
def host(home: Path, job: str, *options: str) -> Iterator[Hosting]:
    """A host at a terminal, on this machine only."""
    home.mkdir(exist_ok=True)
    (home / "job.toml").write_text(job, encoding="utf-8")
    announced = home / "announced.json"
    announced.unlink(missing_ok=True)
    arguments = ["host", "job.toml", "--plain", "--host", "127.0.0.1", "--home", str(home)]
    with process(*arguments, "--announce", str(announced), *options, cwd=home) as started:

        def told() -> Any:
            assert started.poll() is None, started.communicate()
            return json.loads(announced.read_bytes()) if announced.is_file() else None

        yield Hosting(process=started, told=until(told, "the host has begun"))


def job_file(title: str, *, epochs: int = 2000, cause: str = "education", more: str = "") -> str:
    """A small job on digits, in rounds: whoever is slow holds up all, and leaves a core free."""
    quoted = json.dumps(title, ensure_ascii=False)
    return (
        f'title = {quoted}\ncause = "{cause}"\ndata = "digits"\n{more}\n'
        f'[model]\nkind = "mlp"\nlayers = 1\nwidth = 16\n'
        f'[recipe]\nname = "synchronous"\nlr = 0.1\nbatch_size = 32\n[stop]\nepochs = {epochs}\n'
    )


def until(found: Callable[[], Any], what: str, patience_s: float = START_S) -> Any:
    """What it returns once that is something."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"it did not come true that {what}")


def heard(started: subprocess.Popen[str], pattern: str) -> str:
    """The first of what it prints that is like this."""
    assert started.stdout is not None
    said, end = "", time.monotonic() + START_S
    while time.monotonic() < end:
        ready, _, _ = select.select([started.stdout], [], [], 1.0)
        if ready:
            line = started.stdout.readline()
            said += line
            found = re.search(pattern, line)
            if found:
                return found[0]
            if not line:
                break
    raise AssertionError(f"it never said {pattern}:\n{said}")


def descendants(pid: int) -> dict[int, str]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                stat = (entry / "stat").read_text()
                state, parent = stat.rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents.setdefault(int(parent), []).append(int(entry.name))
    found, new = {}, [pid]
    while new:
        new = [child for one in new for child in parents.get(one, [])]
        found |= {child: _command(child) for child in new}
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **GENTLE}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
