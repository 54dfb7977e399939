"""Receivers on shaped machines, watched until all have everything: what every system shares.

A receiver is a process that says `ready`, begins when a line comes on its standard input, and then
says in JSON how many chunks it has (`chunks`) and, once, that it has all (`complete`, a moment of
the monotonic clock, and `curve`, how many it had when). Time counts from the line that lets all
begin, so what a system does to connect counts; what it takes to load a program does not.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _shaped import Machine

START_S = 120.0
TELL_S = 5.0
Curve = list[tuple[float, int]]


class Receiver:
    """One of them, and what it has said."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.name = name
        self.machine = machine
        self.chunks = 0
        self.complete: float | None = None
        self.curve: Curve = []
        self.said: dict[str, float] = {}
        """The latest value of everything else."""
        self.killed = False
        self._log = log
        self._ready = threading.Event()
        self._process = machine.start(command, log, environment)
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                self._ready.set()
                continue
            said = json.loads(line)
            self.chunks = said.pop("chunks", self.chunks)
            self.curve = said.pop("curve", self.curve)
            self.complete = said.pop("complete", self.complete)
            self.said.update(said)

    def wait(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._ready.wait(0.1):
            if self.ended or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not start:\n{self.last_words()}")

    def begin(self) -> None:
        self._tell("go")

    def ask(self) -> None:
        """Have it say all it knows now."""
        self._tell("tell")

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise SystemExit(f"{self.name} has gone:\n{self.last_words()}") from error

    def kill(self) -> None:
        """SIGKILL."""
        self.killed = True
        self.machine.kill()
        self._process.wait()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-1500:] if self._log.exists() else ""

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.machine.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()
            except OSError:
                continue


@dataclass(slots=True, kw_only=True)
class Spreading:
    """How one went."""

    began: float
    times_s: list[float] = field(default_factory=list)
    """Of each that counts, from the common beginning."""
    curves: list[Curve] = field(default_factory=list)
    """Seconds since then, chunks."""
    source_sent: int = 0
    """Bytes that left the machine where all of it was."""
    received: int = 0
    """Bytes that came to those that count, headers and all else included."""

    @property
    def seconds(self) -> float:
        """Until the last of those that count had everything."""
        return max(self.times_s)

    @property
    def first_s(self) -> float:
        """Until the first of them had a chunk."""
        return min(at for curve in self.curves for at, count in curve if count)


def spread(
    title: str,
    source: Machine,
    receivers: Sequence[Receiver],
    *,
    chunks: int,
    limit_s: float,
    counts: Callable[[Receiver], bool] = lambda receiver: not receiver.killed,
    tend: Callable[[float], None] = lambda seconds: None,
) -> Spreading:
    """Let all begin, and wait until those that count have everything.

    `tend` is called again and again with the seconds since then. Raises SystemExit where one of
    them ends, or it takes longer than `limit_s`.
    """
    for receiver in receivers:
        receiver.wait()
    sent, had = source.sent(), {r.name: r.machine.received() for r in receivers}
    found = Spreading(began=time.monotonic())
    for receiver in receivers:
        receiver.begin()
    told = found.began
    while True:
        now = time.monotonic()
        tend(now - found.began)
        counting = [receiver for receiver in receivers if counts(receiver)]
        if all(receiver.complete is not None for receiver in counting):
            break
        _check(title, counting, now - found.began, limit_s)
        if now - told > TELL_S:
            told = now
            _say(title, counting, now - found.began, chunks)
        time.sleep(0.02)
    found.source_sent = source.sent() - sent
    found.received = sum(r.machine.received() - had[r.name] for r in counting)
    for receiver in counting:
        assert receiver.complete is not None
        found.times_s.append(receiver.complete - found.began)
        found.curves.append([(at - found.began, count) for at, count in receiver.curve])
    print(f"{title}: {found.seconds:.1f} s until the last, {min(found.times_s):.1f} s until the "
          "first has everything.", file=sys.stderr, flush=True)  # fmt: skip
    return found


def _check(title: str, counting: Sequence[Receiver], seconds: float, limit_s: float) -> None:
    for receiver in counting:
        if receiver.ended and receiver.complete is None:
            raise SystemExit(f"{title}: {receiver.name} ended:\n{receiver.last_words()}")
    if seconds > limit_s:
        slowest = min(counting, key=lambda receiver: receiver.chunks)
        raise SystemExit(
            f"{title}: after {seconds:.0f} s {slowest.name} has {slowest.chunks} chunks. It said "
            f"last:\n{slowest.last_words()}"
        )


def _say(title: str, counting: Sequence[Receiver], seconds: float, chunks: int) -> None:
    share = sum(receiver.chunks for receiver in counting) / chunks / len(counting)
    whole = sum(receiver.complete is not None for receiver in counting)
    print(f"{title}: {seconds:.0f} s, {share:.0%} of the bytes are there; {whole} of "
          f"{len(counting)} have everything.", file=sys.stderr, flush=True)  # fmt: skip
