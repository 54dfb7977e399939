"""An event loop whose clock jumps: hours of waiting pass in no time, and always the same way.

When nothing is ready the clock moves to the next timer instead of sleeping. When there is no next
timer either, nothing can ever happen again, which in a test is a bug worth naming. Only what lives
inside the process is virtual: `inproc` connections, `asyncio.sleep`, timeouts. While a job runs on
another thread (`asyncio.to_thread`) the clock stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_S = 1000.0
"""Not zero, so that a forgotten 0.0 shows itself as a long silence."""
LIMIT_S = 30 * 86400.0


class Deadlock(AssertionError):
    """Nothing can ever happen again, and the test has not ended."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = START_S
        self.threads = 0
        self.limit = START_S + LIMIT_S

    def select(self, timeout: float | None = None) -> list[Any]:
        if self.threads:  # the outcome of real work decides what comes next
            return list(super().select(None if timeout is None else min(timeout, 0.001)))
        ready = super().select(0)
        if ready or timeout == 0:
            return list(ready)
        if timeout is None:
            raise Deadlock(f"at {self.now - START_S:g} s: no timer, no input, nobody to wake us")
        self.now += max(timeout, 0.0)
        if self.now > self.limit:
            raise Deadlock(f"still not over after {self.now - START_S:g} virtual seconds")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        self._jumping.threads += 1  # it waits for a thread of its own
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._jumping.threads -= 1

    def _thread_done(self, future: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time. Raises Deadlock when nothing can ever happen again."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
