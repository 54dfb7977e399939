"""How a process of ours starts others, stops when asked, and never outlives its starter.

A child is tied to whoever started it by its standard input: when that pipe ends, the child stops,
so even SIGKILL of the parent leaves nothing behind. Children have a process group of their own:
Ctrl-C reaches the parent alone, which stops them in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TypeVar

from crowdgrad.settings import child_environment

PATIENCE_S = 2.0
"""How long children may take to stop before they are killed."""
HELD_S = 10.0
"""How long a stop waits for work that should not be broken off."""
ONCE_S = 1.0
"""Who signals a whole group tells a supervised process twice: itself, and by its supervisor."""
PR_SET_PDEATHSIG = 1
OURS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
"""What asks a command to end."""

T = TypeVar("T")


@contextlib.contextmanager
def stop_requests() -> Generator[asyncio.Event, None, None]:
    """An event that SIGINT, SIGTERM and a terminal that closes set, while a command's loop runs."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)  # not where nohup asked us to ignore it
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def interrupt_on_sigterm() -> None:
    """Let SIGTERM, or a terminal that closes, end a command as Ctrl-C does: cleaning up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, interrupt)  # not where nohup asked us to ignore it


@contextlib.contextmanager
def stops_held(
    patience_s: float = HELD_S, once_s: float = ONCE_S
) -> Generator[Callable[[], None], None, None]:
    """Let whoever wants to end a command wait for the next call of what this gives, or the end.

    For work that must not be broken off anywhere: an exception in the midst of PyTorch's own code
    may take the whole process down. Who asks again, later than `once_s`, is obeyed at once, and
    nobody waits longer than `patience_s`. Raises KeyboardInterrupt.
    """
    asked: list[float] = []
    timers: list[threading.Timer] = []

    def hold(number: int, frame: FrameType | None) -> None:
        asked.append(time.monotonic())
        if asked[-1] - asked[0] > once_s:
            raise KeyboardInterrupt
        if len(asked) > 1:
            return
        timers.append(threading.Timer(patience_s, os.kill, (os.getpid(), number)))
        timers[0].daemon = True
        timers[0].start()
        with contextlib.suppress(OSError):  # print may be what we interrupt
            os.write(2, b"Stopping ...\n")

    def stop_if_asked() -> None:
        if asked:
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in OURS}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # as nohup asks
                signal.signal(number, hold)
        yield stop_if_asked
        stop_if_asked()
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def tie_to_stdin() -> None:
    """End this process, as SIGTERM would, when standard input does: its starter has gone."""

    def wait_for_end() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="stdin", daemon=True).start()


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere end-of-file must do."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died while we asked
        os._exit(1)


class Child:
    """One of our own commands, running as a process tied to this one."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        log: Path | None = None,
        secrets: Mapping[str, str] = {},
        before: Sequence[str] = (),
    ) -> None:
        """`arguments` of `crowdgrad`; its output goes to `log`. `secrets` go by environment, where
        no list of processes shows them. `before`: what the command is put behind, such as `nice`.
        """
        output: IO[bytes] | int = subprocess.DEVNULL
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        self.arguments = list(arguments)
        self.log = log
        try:
            self._process = subprocess.Popen(
                [*before, sys.executable, "-m", "crowdgrad", *arguments, "--tied"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environment(secrets),
                process_group=0 if os.name == "posix" else None,
            )
        finally:
            if not isinstance(output, int):
                output.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it rudely, as a power cut would."""
        self._process.kill()
        self._process.wait()
        self._close()

    def ask_to_stop(self) -> None:
        """End its standard input, to which it is tied. A signal besides would reach it twice, the
        second time perhaps while it ends, and then nobody could tell how it did."""
        self._close()

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """The end of its log."""
        if self.log is None or not self.log.exists():
            return ""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def end_all(children: Sequence[Child], patience_s: float = PATIENCE_S) -> None:
    """Ask all to stop, wait for all together, kill who did not."""
    for child in children:
        child.ask_to_stop()
    deadline = time.monotonic() + patience_s
    for child in children:
        if not child.wait(max(0.0, deadline - time.monotonic())):
            child.kill()


Say = Callable[[str], None]
MAX_CRASHES = 5
"""In a row, each soon after the start: then it is no accident."""
HEALTHY_S = 60.0


def can_supervise() -> bool:
    return hasattr(os, "fork") and hasattr(signal, "sigtimedwait")


def supervise(work: Callable[[Say, str], int]) -> int:
    """Do the work in a child of ours, and again when a signal kills it.

    `work(say, last)`: what it says with `say` is the last word that its successor is given; without
    one it is not begun again. The child returns from here as if nothing had happened; so does this
    process, with its exit code. Must be called before there are threads or an event loop.
    """
    last, crashes = "", 0
    signal.pthread_sigmask(signal.SIG_BLOCK, {*OURS, signal.SIGCHLD})
    while True:
        reader, writer = os.pipe()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(reader)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {*OURS, signal.SIGCHLD})
            die_with_parent()
            return work(functools.partial(_tell, writer), last)
        os.close(writer)
        status = _wait_for(child)
        last = _last_word(reader) or last
        code = os.waitstatus_to_exitcode(status)
        if code >= 0 or -code in OURS:
            return code if code >= 0 else 128 - code
        crashes = 1 if time.monotonic() - began > HEALTHY_S else crashes + 1
        name = signal.Signals(-code).name
        if not last or crashes >= MAX_CRASHES:
            often = f", {crashes} times in a row" if crashes > 1 else ""
            print(f"crowdgrad: killed by {name}{often}.", file=sys.stderr)
            return 128 - code
        print(f"crowdgrad: killed by {name}; it begins again.", file=sys.stderr, flush=True)


def _wait_for(child: int) -> int:
    """How a child ended; what we are asked meanwhile is passed on to it."""
    while True:
        try:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            heard = signal.sigtimedwait({*OURS, signal.SIGCHLD}, 0.5)
            # A terminal tells the whole group, our child too: only what was meant for us goes on.
            if heard is not None and heard.si_signo in OURS and heard.si_code <= 0:
                os.kill(child, heard.si_signo)
        except KeyboardInterrupt:  # a handler of ours: another thread was told that it is over
            os.kill(child, signal.SIGTERM)


def _tell(writer: int, word: str) -> None:
    os.write(writer, f"{word}\n".encode())


def _last_word(reader: int) -> str:
    with open(reader, "rb") as pipe:
        words = pipe.read(1 << 16).decode(errors="replace").splitlines()
    return words[-1] if words else ""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: same code, quicker sockets."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_async(main: Coroutine[None, None, T]) -> T:
    """A command's whole asynchronous life."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
