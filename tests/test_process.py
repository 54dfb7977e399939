"""Processes of ours never outlive whoever started them. Real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crowdgrad.process import Child, end_all, run_async, stop_requests, stops_held
from crowdgrad.settings import WORKER_TOKEN_VARIABLE

PARENT = """
import sys, time
from pathlib import Path
from crowdgrad.process import Child
words = ["matchmaker", "--port", "0", "--database", "memory:", "--json", sys.argv[1]]
child = Child(words, log=Path(sys.argv[2]))
print(child.pid, flush=True)
time.sleep(600)
"""


def wait_until(happened: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def matchmaker(tmp_path: Path, name: str = "m") -> Child:
    """A child that surely listens."""
    ready = tmp_path / f"{name}.json"
    child = Child(
        ["matchmaker", "--port", "0", "--database", "memory:", "--json", str(ready)],
        log=tmp_path / f"{name}.log",
    )
    wait_until(lambda: ready.exists() or child.code is not None)
    assert child.code is None, child.last_words()
    return child


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux
def test_a_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "m.json"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(ready), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_until(ready.exists)
    wait_until(lambda: json.loads(ready.read_text())["pid"] == pid)
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(pid))


@linux
def test_children_stop_when_asked_in_a_group_of_their_own(tmp_path: Path) -> None:
    child = matchmaker(tmp_path)
    assert os.getpgid(child.pid) != os.getpgid(0)
    assert "listens on" in child.last_words()
    end_all([child], patience_s=15)
    assert child.code == 0
    assert not alive(child.pid)
    end_all([child])  # once more does no harm


def test_a_command_that_fails_leaves_its_last_words(tmp_path: Path) -> None:
    child = Child(["matchmaker", "--port", "70000"], log=tmp_path / "new" / "log")
    assert child.wait(20)
    assert child.code == 1
    assert "CG104" in child.last_words()
    end_all([child])


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(600)
"""


class Stubborn(Child):
    """A child that hears neither SIGTERM nor the end of its input."""

    def __init__(self, ready: Path) -> None:
        self.log = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", STUBBORN, str(ready)], stdin=subprocess.PIPE, process_group=0
        )


@linux
def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    child = Stubborn(tmp_path / "ready")
    wait_until((tmp_path / "ready").exists)
    end_all([child], patience_s=0.2)
    assert child.code == -signal.SIGKILL
    assert child.last_words() == ""


@linux
def test_secrets_go_by_environment_where_no_list_of_processes_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORKER_TOKEN_VARIABLE, "meant for us")
    ready = tmp_path / "ready"
    child = Child(
        ["matchmaker", "--port", "0", "--database", "memory:", "--json", str(ready)],
        secrets={"CROWDGRAD_SECRET": "s3cret"},
    )
    try:
        wait_until(lambda: ready.exists() or child.code is not None)
        environment = Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0")
        assert b"CROWDGRAD_SECRET=s3cret" in environment
        assert not any(b"meant for us" in row for row in environment)
        assert b"s3cret" not in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    finally:
        child.kill()
    assert child.code == -signal.SIGKILL


def test_a_signal_asks_to_stop_and_handlers_are_put_back() -> None:
    async def main() -> bool:
        with stop_requests() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                await stop.wait()
        return stop.is_set()

    before = signal.getsignal(signal.SIGTERM)
    assert run_async(main())
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_end_of_standard_input_asks_to_stop() -> None:
    code = textwrap.dedent("""
        import asyncio
        from crowdgrad.process import run_async, stop_requests, tie_to_stdin
        tie_to_stdin()
        async def main():
            with stop_requests() as stop:
                print("ready", flush=True)
                await stop.wait()
                print("stopped")
        run_async(main())
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.communicate(timeout=20)[0] == "stopped\n"


def test_sigterm_interrupts_what_has_no_event_loop_yet() -> None:
    code = textwrap.dedent("""
        import time
        from crowdgrad.process import interrupt_on_sigterm, tie_to_stdin
        interrupt_on_sigterm()
        tie_to_stdin()
        try:
            print("ready", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            print("cleaned up")
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.communicate(timeout=20)[0] == "cleaned up\n"


@linux
def test_die_with_parent_ends_a_grandchild() -> None:
    grandchild = (
        "from crowdgrad.process import die_with_parent; import os, time;"
        "die_with_parent(); print(os.getpid(), flush=True); time.sleep(600)"
    )
    parent_code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code, grandchild], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(pid))


SUPERVISED = """
import os, signal, sys, time
from crowdgrad.process import supervise

def work(say, last):
    lives = int(last or 0) + 1
    if sys.argv[1] == "wait":
        try:
            print(lives, os.getpid(), flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            return 7
    print(lives, os.getpid(), flush=True)
    if sys.argv[1] == "crash" and lives <= 2:
        say(str(lives))
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "wordless":
        os.kill(os.getpid(), signal.SIGSEGV)
    if sys.argv[1] == "always":
        say(str(lives))
        os.kill(os.getpid(), signal.SIGABRT)
    return 5

sys.exit(supervise(work))
"""


def supervised(how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISED, how], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@linux
@pytest.mark.parametrize(
    ("how", "lives", "code"),
    [("crash", 3, 5), ("wordless", 1, 128 + 11), ("always", 5, 128 + 6), ("well", 1, 5)],
)
def test_what_a_signal_kills_begins_again_with_its_last_word(
    how: str, lives: int, code: int
) -> None:
    process = supervised(how)
    out, said = process.communicate(timeout=60)
    assert [int(line.split()[0]) for line in out.splitlines()] == list(range(1, lives + 1))
    assert process.returncode == code
    assert said.count("begins again") == lives - 1


@linux
def test_who_supervises_passes_on_what_it_is_told() -> None:
    process = supervised("wait")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 7


@linux
def test_what_is_supervised_dies_with_who_supervises() -> None:
    process = supervised("wait")
    assert process.stdout is not None
    child = int(process.stdout.readline().split()[1])
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: not alive(child))


def ask_ourselves(number: signal.Signals, times: int = 1) -> None:
    for _ in range(times):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_waits_for_a_good_moment(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    reached = []

    def work() -> None:
        with stops_held() as stop_if_asked:
            stop_if_asked()
            ask_ourselves(number, times=2)  # as whoever signals a whole group does
            reached.append("the end of what must not be broken off")
            stop_if_asked()
            reached.append("too far")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the end of what must not be broken off"]
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err == "Stopping ...\n", "said at once"


def test_a_stop_waits_for_the_end_of_the_block_at_most() -> None:
    with pytest.raises(KeyboardInterrupt), stops_held():
        ask_ourselves(signal.SIGTERM)
    with stops_held():
        pass


def test_who_asks_twice_is_obeyed_and_nobody_waits_for_ever() -> None:
    def work(times: int, patience_s: float) -> None:
        with stops_held(patience_s, once_s=0.0):
            ask_ourselves(signal.SIGTERM, times)
            time.sleep(20)
            pytest.fail("it goes on")

    for times, patience_s in ((2, 600.0), (1, 0.01)):
        with pytest.raises(KeyboardInterrupt):
            work(times, patience_s)
