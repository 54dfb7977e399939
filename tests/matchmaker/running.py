"""A real matchmaker in its own process, for tests; other services run in theirs the same way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from crowdgrad.domain.job import JobId, Member, Volunteer
from crowdgrad.domain.matching import Offer
from crowdgrad.domain.work import VolunteerId
from crowdgrad.net.identity import Identity, guest


class Service:
    """`crowdgrad COMMAND`, between `with` and its end; `kill` and `start` at will."""

    def __init__(self, command: str, folder: Path, *arguments: str) -> None:
        self._command = command
        self._file = folder / f"{command}.json"
        self._arguments = arguments
        self._home = folder / f"{command}-home"
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.said: dict[str, object] = {}
        """What it wrote down when it had started."""

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """On the same port as before, if there was one."""
        self._file.unlink(missing_ok=True)
        command = [sys.executable, "-W", "error", "-m", "crowdgrad", self._command, "--tied"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port), "--json", str(self._file), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CROWDGRAD_HOME": str(self._home)},
        )
        while not self._file.exists():
            assert self._process.poll() is None, self._process.communicate()
            time.sleep(0.02)
        self.said = json.loads(self._file.read_text())
        assert self.said["pid"] == self._process.pid
        self.port = int(str(self.said["address"]).rpartition(":")[2])

    def stop(self, how: signal.Signals) -> tuple[str, str]:
        """What it had printed, on standard output and error."""
        os.kill(self.process.pid, how)
        return self.process.communicate(timeout=20)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Running(Service):
    """`with Running(folder) as matchmaker:` … `matchmaker.url`."""

    def __init__(self, folder: Path, *arguments: str, database: str = "memory:") -> None:
        super().__init__("matchmaker", folder, "--database", database, *arguments)

    @property
    def url(self) -> str:
        return str(self.said["url"])


def offer(name: str = "mnist-1", *, minimum: int = 1, maximum: int = 8) -> Offer:
    return Offer(
        id=JobId(name),
        title=name.partition("-")[0],
        cause="tests",
        address="127.0.0.1:8710",
        key="9f86d081884c7d65",
        minimum=minimum,
        maximum=maximum,
        hyperparameters={"learning_rate": 0.05, "batch_size": 100, "rule": "sgd", "shuffle": True},
    )


def worker() -> Member:
    return Member(position=0, id=VolunteerId("worker0"), name="the host's own")


def key_of(name: str) -> Identity:
    """The same for the same name."""
    return guest(name)


def volunteer(name: str) -> Volunteer:
    return Volunteer(
        id=key_of(name).id,
        name=f"{name}'s PC",
        cores=2,
        memory_mb=4000,
        engine="onnxruntime",
        software="crowdgrad 0.1.0",
    )
