"""An event loop whose clock jumps: hours of waiting pass in no time, and always the same way.

When nothing is ready the clock moves to the next timer instead of sleeping. When there is no next
timer either, nothing can ever happen again, which is a bug worth naming. Nothing outside the
process exists: no sockets, no signals, and no threads. What would run on a thread runs on the loop,
`thread_s()` virtual seconds later.

Tasks are numbered and hash by their number, so that sets of them are walked in the same order in
every run. A `Node` is a machine inside the world: all that is started in its name stops while it is
frozen, as a process does that got SIGSTOP. Each has its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

START_S = 1000.0
"""Not zero, so that a forgotten 0.0 shows itself as a long silence."""
LIMIT_S = 30 * 86400.0


class Deadlock(AssertionError):
    """Nothing can ever happen again, and it has not ended."""


class Died(BaseException):
    """The machine was switched off in the middle of what this thread did."""


class Node:
    """One machine: what runs in its name, and whether it runs at the moment."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = self.dead = False
        self.offset_s = 0.0
        """What its clock is ahead of the world's."""
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.waiting: list[asyncio.Handle] = []
        """What it would have done while it was frozen."""
        self.context = contextvars.copy_context()
        self.context.run(_NODE.set, self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something in its name; all that this starts is in its name too."""
        loop = asyncio.get_running_loop()
        return loop.create_task(coroutine, context=self.context.copy())

    def kill(self) -> None:
        """It is dead: what its threads were to do is not done, what is left unwinds unheard."""
        self.dead = True
        for task in sorted(self.tasks, key=hash):
            task.cancel()


_NODE: contextvars.ContextVar[Node | None] = contextvars.ContextVar("node", default=None)


class _Task(asyncio.Task[T]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, coroutine: Any, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        super().__init__()
        self._now = START_S
        self._limit = START_S + limit_s
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._ended = False
        self._frozen = 0
        self.thread_s: Callable[[], float] = lambda: 0.0
        """How long the next work of another thread takes."""
        self.on_trouble: Callable[[dict[str, Any]], None] | None = None

    def time(self) -> float:
        """As the machine sees it in whose name this runs."""
        node = _NODE.get()
        return self._now if node is None else self._now + node.offset_s

    @property
    def now(self) -> float:
        """As the world sees it."""
        return self._now

    # -- running ------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        main = future if asyncio.isfuture(future) else self.create_task(future)
        events._set_running_loop(self)
        try:
            while not main.done():
                self._turn()
        finally:
            events._set_running_loop(None)
        return main.result()

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._ended

    def close(self) -> None:
        self._ended = True
        self._ready.clear()
        self._timers.clear()

    def _turn(self) -> None:
        if not self._ready:
            self._jump()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            if self._frozen:
                node = handle._context.get(_NODE)  # type: ignore[attr-defined]
                if node is not None and node.frozen:
                    node.waiting.append(handle)
                    continue
            handle._run()

    def _jump(self) -> None:
        """To the next timer, and to all of the very same moment."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"at {self._now - START_S:g} s: no timer, no input, nobody to wake us")
        self._now = max(self._now, timers[0][0])
        if self._now > self._limit:
            raise Deadlock(f"still not over after {self._now - START_S:g} virtual seconds")
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    # -- freezing -----------------------------------------------------------------------------

    def freeze(self, node: Node) -> None:
        if not node.frozen:
            node.frozen = True
            self._frozen += 1

    def thaw(self, node: Node) -> None:
        """All that it missed happens now, in the order in which it was due."""
        if node.frozen:
            node.frozen = False
            self._frozen -= 1
            self._ready.extend(node.waiting)
            node.waiting.clear()

    # -- what asyncio asks of a loop ----------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._timer(self._now + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        node = _NODE.get()
        if node is not None:
            when -= node.offset_s
        return self._timer(when, callback, args, context)

    def _timer(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        number = next(self._numbers)
        task: _Task[T] = _Task(coro, number, loop=self, name=name or "task", context=context)
        node = (context.get(_NODE) if context is not None else None) or _NODE.get()
        if node is not None:
            node.tasks.add(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            node = _NODE.get()
            if node is not None and node.dead:
                return
            try:
                result = func(*args)
            except Died:
                return  # and whoever waits is dead too
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():  # nobody waits any more; it is done all the same
                    future.set_result(result)

        self.call_later(self.thread_s(), work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.on_trouble is not None:
            self.on_trouble(context)
            return
        error = context.get("exception")
        raise error if isinstance(error, Exception) else RuntimeError(str(context.get("message")))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    async def shutdown_asyncgens(self) -> None:
        return

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return


def run_virtual(main: Coroutine[Any, Any, T], *, loop: VirtualLoop | None = None) -> T:
    """`asyncio.run` in virtual time. Raises Deadlock when nothing can ever happen again."""
    loop = loop or VirtualLoop()
    try:
        return loop.run_until_complete(main)  # type: ignore[no-any-return]
    finally:
        _unwind(loop)
        loop.close()


def _unwind(loop: VirtualLoop) -> None:
    """Let whatever is left go, as `asyncio.run` does."""
    left = sorted(asyncio.all_tasks(loop), key=hash)
    for task in left:
        task.cancel()
    if left:
        with contextlib.suppress(Deadlock):
            loop.run_until_complete(_gone(left))


async def _gone(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
