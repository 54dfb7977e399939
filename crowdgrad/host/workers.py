"""The volunteer processes a host starts on its own machine: worker 0, and local helpers for a run.

Worker 0 is replaced when it dies: without it nothing is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from crowdgrad.domain.routes import Route
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import ChildDied
from crowdgrad.net.identity import guest
from crowdgrad.net.ports import WILDCARDS
from crowdgrad.net.retry import delay_s
from crowdgrad.process import Child, end_all
from crowdgrad.settings import WORKER_SEED_VARIABLE, WORKER_TOKEN_VARIABLE

MAX_DEATHS = 5
PATIENCE_S = 0.5
HEALTHY_S = 60.0
"""A worker that has run so long has earned a clean slate."""


class Workers:
    def __init__(
        self,
        address: tuple[str, int],
        *,
        token: str,
        logs: Path,
        home: Path,
        paces_ms: Sequence[float] = (),
        seed: Callable[[str], str] = lambda name: "",
    ) -> None:
        """`paces_ms`: how long worker 0 and each helper pause after a batch; by default not.

        `seed`: what the key of a worker with this name is made from, the same in every life of a
        run; by default its key is new each time.
        """
        self._where = str(Route(host=dialable(address[0]), port=address[1]))
        self._token = token
        self._logs = logs
        self._home = home
        self._paces_ms = paces_ms
        self._seed = seed
        self._own: Child | None = None
        self._helpers: list[Child] = []
        self._deaths = 0
        self._start_at = self._started_at = 0.0

    def start_helpers(self, count: int) -> None:
        for number in range(1, count + 1):
            self._helpers.append(self._start(number, helper(number), {}))

    def tend(self, now: float) -> str | None:
        """Start worker 0, or start it again; what happened, if anything. Raises ChildDied."""
        if self._own is not None and self._own.code is None:
            if now - self._started_at > HEALTHY_S:
                self._deaths = 0
            return None
        said = None
        if self._own is not None:
            self._deaths += 1
            said = f"worker 0 ended with code {self._own.code}: {self._own.last_words()}"
            self._own.ask_to_stop()  # it has: this only closes our end of the pipe
            self._own = None
            self._start_at = now + delay_s(self._deaths, 1.0)
        if self._deaths >= MAX_DEATHS:
            raise ChildDied(
                f"The host's own worker died {self._deaths} times; the last time: {said}.",
                advice=f"Look into {self._logs}.",
            )
        if now >= self._start_at:
            self._started_at = now
            self._own = self._start(0, "worker-0", {WORKER_TOKEN_VARIABLE: self._token})
        return said

    def end(self) -> None:
        """They have been told that the job is over: let them go, then see that they went."""
        children = [child for child in (self._own, *self._helpers) if child is not None]
        deadline = time.monotonic() + PATIENCE_S
        for child in children:
            child.wait(max(0.0, deadline - time.monotonic()))
        end_all(children)

    def _start(self, number: int, name: str, secrets: dict[str, str]) -> Child:
        arguments = ["work", self._where, "--guest", "--yes", "--plain", "--name", name]
        arguments += ["--home", str(self._home)]
        if number < len(self._paces_ms):
            arguments += ["--pace", str(self._paces_ms[number])]
        known = {WORKER_SEED_VARIABLE: self._seed(name)} | secrets
        return Child(arguments, log=self._logs / f"{name}.log", secrets=known)


def helper(number: int) -> str:
    """The name of the helper with that number, from 1 on."""
    return f"local-{number}"


def helpers_ids(count: int, seed: Callable[[str], str]) -> frozenset[VolunteerId]:
    """The ids of so many helpers, as their seeds make them."""
    return frozenset(guest(seed(helper(number))).id for number in range(1, count + 1))


def dialable(host: str) -> str:
    """The address under which this machine reaches itself."""
    return "127.0.0.1" if host in WILDCARDS else host
