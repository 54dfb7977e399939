"""A real matchmaker, as a process of its own, on each of its databases."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from _processes import Process, end, wait_for

from tests.postgres import PostgresServer, find_programs

SQLITE, POSTGRESQL = "sqlite", "postgresql"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    url: str
    pid: int = 0
    """Of its server; 0: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    where: str
    pid: int


def databases() -> list[str]:
    """What can be had here."""
    return [SQLITE, POSTGRESQL] if find_programs() is not None else [SQLITE]


@contextlib.contextmanager
def database(kind: str) -> Iterator[Database]:
    """Empty, and as durable as anybody's: PostgreSQL waits for the disk here, too."""
    folder = Path(tempfile.mkdtemp(prefix="crowdgrad-bench-"))
    try:
        if kind == SQLITE:
            yield Database(url=f"sqlite:///{folder / 'matchmaker.db'}")
            return
        programs = find_programs()
        assert programs is not None
        server = PostgresServer(programs, folder, durable=True)
        try:
            pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
            yield Database(url=server.fresh(), pid=pid)
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def service(url: str, options: Sequence[str] = ()) -> Iterator[Service]:
    """`crowdgrad matchmaker` with its defaults, and a folder of its own to live in."""
    folder = Path(tempfile.mkdtemp(prefix="crowdgrad-bench-"))
    announced = folder / "here.json"
    process = Process(
        ["matchmaker", "--port", "0", "--database", url, "--json", str(announced),
         "--home", str(folder), *options],
        log=folder / "log",
    )  # fmt: skip
    try:
        wait_for("the matchmaker", announced.exists, lambda: _ended(process))
        wait_for("its address", lambda: announced.read_text().endswith("}\n"))
        here = json.loads(announced.read_text())
        yield Service(where=here["address"], pid=here["pid"])
        if process.code is not None:
            raise SystemExit(f"The matchmaker ended: {process.last_words()}")
    finally:
        end([process])
        shutil.rmtree(folder, ignore_errors=True)


def _ended(process: Process) -> str:
    return "" if process.code is None else process.last_words() or "it ended"
