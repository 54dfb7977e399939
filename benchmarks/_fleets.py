"""Hosts with parameter servers, and scripted volunteers that keep them busy: real processes.

A fleet is one host, its servers and its volunteers, all of them standing still outside windows. On
loopback the host starts its servers itself; at links every machine (the host, each server, all the
volunteers together) is in a network namespace of its own, and servers are started as a person would
on another machine. The host's own worker is stopped, as `_quiet_host.py` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from _links import Link, Links
from _processes import Host, Process, end
from _quiet_host import job_file, still
from _windows import Player, player

SIZE = "23MB"
PORT = 8711
PLAYERS = 2
"""Processes that the volunteers are shared among."""
BATCH = 100
RECIPE = {"name": "async_sgd", "lr": 0.0001, "batch_size": BATCH, "batches_per_unit": 1,
          "overlap": 0}  # fmt: skip
ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
"""A host tells its status on its own machine only."""
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Who keeps the parameters."""

    name: str
    servers: int = 0
    """None: the host itself."""
    average_every: int = 0
    """Not 0: each server has a copy, and they are averaged after so many updates."""

    @property
    def hold(self) -> list[str]:
        if not self.average_every:
            return []
        return ["--servers-hold", "copies", "--average-every", str(self.average_every)]


class Fleet:
    def __init__(self, host: Host, players: list[Player], before: Sequence[str] = ()) -> None:
        """`before`: what a command is put behind to be on the host's machine."""
        self._host = host
        self._before = before
        self._players = players

    def window(self, seconds: float) -> float:
        """Updates accepted a second, of all volunteers together; then they stand still again."""
        before = self._updates()
        for one in self._players:
            one.begin(seconds)
        took = statistics.mean(one.result().seconds for one in self._players)
        return (self._updates() - before) / took

    def _updates(self) -> int:
        """Accepted so far, by the host's word; that may be a fifth of a second old."""
        time.sleep(0.3)
        command = [*self._before, sys.executable, "-c", ASK, f"{self._host.here['url']}/status"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return int(json.loads(said)["updates"])


@contextlib.contextmanager
def on_loopback(layout: Layout, folder: Path, home: Path, volunteers: int) -> Generator[Fleet]:
    more = ["--servers", str(layout.servers), *layout.hold] if layout.servers else []
    host = Host(job_file(folder, SIZE, RECIPE), folder, home, more=more)
    with _hosted(host), _players(host, folder, volunteers) as players:
        yield Fleet(host, players)


@contextlib.contextmanager
def at_links(
    layout: Layout, folder: Path, home: Path, volunteers: int, links: Links, mbit: float
) -> Generator[Fleet]:
    """Every machine but the volunteers' behind a link of so many megabits a second, each way."""
    with contextlib.ExitStack() as stack:
        machines = [_machine(stack, links, mbit) for _ in range(layout.servers)]
        here, people = _machine(stack, links, mbit), _machine(stack, links)
        host = Host(
            job_file(folder, SIZE, RECIPE), folder, home,
            listen=here.address,
            more=_elsewhere(stack, layout, machines, folder),
            before=here.before,
        )  # fmt: skip
        stack.enter_context(_hosted(host))
        players = stack.enter_context(_players(host, folder, volunteers, people.before))
        yield Fleet(host, players, here.before)


def _machine(stack: contextlib.ExitStack, links: Links, mbit: float = 0.0) -> Link:
    link = links.add()
    stack.callback(links.remove, link)
    if mbit:
        links.narrow(link, mbit)
    return link


def _elsewhere(
    stack: contextlib.ExitStack, layout: Layout, machines: Sequence[Link], folder: Path
) -> list[str]:
    """Start a server on each machine; what the host is told of them."""
    if not machines:
        return []
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    servers = [
        Process(
            ["server", "--host", machine.address, "--port", str(PORT),
             "--secret-file", str(secret)],
            log=folder / f"server-{number}.log",
            before=machine.before,
        )
        for number, machine in enumerate(machines)
    ]  # fmt: skip
    stack.callback(end, servers)
    named = [word for machine in machines for word in ("--server", f"{machine.address}:{PORT}")]
    return [*named, "--secret-file", str(secret), *layout.hold]


@contextlib.contextmanager
def _hosted(host: Host) -> Generator[None]:
    host.start()
    stopped = 0
    try:
        host.await_start()
        stopped = still(host)
        yield
    finally:
        if stopped:  # it would not hear that it is to go
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
        end([host.process])


@contextlib.contextmanager
def _players(
    host: Host, folder: Path, volunteers: int, before: Sequence[str] = ()
) -> Generator[list[Player]]:
    command = [*before, sys.executable, str(HERE / "_scripted.py"), str(host.here["address"]),
               str(volunteers // PLAYERS), "0", str(BATCH)]  # fmt: skip
    with contextlib.ExitStack() as stack:
        log = folder / "players.log"
        yield [stack.enter_context(player(command, log)) for _ in range(PLAYERS)]
