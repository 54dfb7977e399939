"""A real PostgreSQL for the tests: one server a session, a fresh database for each test.

It lives in a temporary folder, is reached over a socket in it and dies with the tests, whichever
way they end. The programs are Debian's, those on the PATH, or those the wheel `pgserver` carries;
where there are none, tests that need them are skipped and one line at the end says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MISSING = (
    "NO POSTGRESQL HERE: the tests on it were skipped. Install it (apt-get install postgresql, "
    "or pip install pgserver) and run them again."
)
FAST = ("fsync=off", "full_page_writes=off")
"""Nothing of a test's database has to survive the machine."""
COMMON = (
    "max_connections=40", "shared_buffers=16MB", "listen_addresses=", "jit=off",
    "dynamic_shared_memory_type=mmap",
)  # fmt: skip
START_S = 60.0

_numbers = itertools.count()


class PostgresServer:
    """`folder` is where everything of it lies; with `durable` it writes as it does elsewhere."""

    def __init__(self, programs: Path, folder: Path, *, durable: bool = False) -> None:
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._settings = COMMON if durable else COMMON + FAST
        self._child: subprocess.Popen[bytes] | None = None
        self._empty: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._user = _unprivileged(folder)
        self._initialise()
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def fresh(self) -> str:
        """The URL of an empty database."""
        if self._empty:
            return self._empty.pop()
        name = f"test{next(_numbers)}"
        with self._connection(self.url()) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empty it for the next test, which is cheaper than a new one; throw everybody out."""
        with self._connection(url) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._empty.append(url)

    def start(self) -> None:
        """From the main thread: it dies with the thread that started it."""
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._folder)]
        for setting in self._settings:
            command += ["-c", setting]
        with (self._folder / "log").open("ab") as log:
            self._child = self._popen(command, log)
        self._wait_until_ready()

    def stop(self, *, rudely: bool = False) -> None:
        """Rudely: as if it had crashed."""
        if self._child is None:
            return
        self._child.send_signal(signal.SIGQUIT if rudely else signal.SIGINT)
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        self._child = None

    def _initialise(self) -> None:
        command = [str(self._programs / "initdb"), "-D", str(self._data)]
        command += ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        with (self._folder / "log").open("ab") as log:
            child = self._popen(command, log)
        if child.wait(START_S):
            raise RuntimeError(f"initdb failed:\n{(self._folder / 'log').read_text()}")

    def _popen(self, command: list[str], log: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self._folder,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            **self._user,
        )

    def _wait_until_ready(self) -> None:
        assert self._child is not None
        until = time.monotonic() + START_S
        while True:
            try:
                with self._connection(self.url()):
                    return
            except Exception as error:
                if self._child.poll() is not None or time.monotonic() > until:
                    log = (self._folder / "log").read_text()
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{log}") from error
            time.sleep(0.02)

    @contextlib.contextmanager
    def _connection(self, url: str) -> Iterator[Any]:
        import psycopg  # not everybody who runs some test has it

        with psycopg.connect(url, autocommit=True) as connection:
            yield connection


def _unprivileged(folder: Path) -> dict[str, object]:
    """PostgreSQL does not run as root: who it runs as, for `Popen`; the folder becomes theirs."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("there is no user that PostgreSQL could run as")


def _die_with_parent() -> None:
    """Also when the tests are killed: the kernel then ends it at once."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def find_programs() -> Path | None:
    """The folder with `postgres` and `initdb`."""
    places = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    found = shutil.which("postgres")
    if found is not None:
        places.append(str(Path(found).resolve().parent))
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        places.append(str(Path(wheel.origin).parent / "pginstall" / "bin"))
    for place in map(Path, places):
        if (place / "postgres").exists() and (place / "initdb").exists():
            return place
    return None


@contextlib.contextmanager
def running(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A server of its own. Skips the test where there is none to be had."""
    programs = find_programs()
    if programs is None:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="crowdgrad-pg-"))
    try:
        server = PostgresServer(programs, folder, durable=durable)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server that the whole session shares."""
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database for this test."""
    url = postgres.fresh()
    yield url
    postgres.give_back(url)


@pytest.fixture
def fresh_postgres(postgres: PostgresServer) -> Iterator[Callable[[], str]]:
    """As many empty databases as a test needs."""
    made: list[str] = []

    def fresh() -> str:
        made.append(postgres.fresh())
        return made[-1]

    yield fresh
    for url in made:
        postgres.give_back(url)
