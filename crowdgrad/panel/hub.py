"""The one event stream: what happens, told to all who listen.

Each value is put into words once, however many listen. A listener that is slow gets the last of
everything and no queue of what was before; log lines, which do not replace each other, are the
exception. Whoever comes hears the last of everything first, so a page that lost its connection
just connects again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

HEARTBEAT_S = 15.0
"""How soon a connection that nobody reads is found."""
MOST_LISTENERS = 500
MOST_LINES = 500
"""Of a log that a new listener hears."""
MOST_PENDING = 100
"""Log frames that wait for one listener."""
MOST_KEPT = 50
"""Tasks and runs whose last state is kept."""

Key = tuple[str, str, str]
"""Event, run, and which of several."""


class Listener:
    def __init__(self, run: str) -> None:
        self.run = run
        self.pending: dict[Key, bytes] = {}
        self.wake = asyncio.Event()

    def give(self, key: Key, frame: bytes) -> None:
        self.pending.pop(key, None)
        self.pending[key] = frame
        if key[0] == "log":
            waiting = [other for other in self.pending if other[0] == "log"]
            for old in waiting[:-MOST_PENDING]:
                del self.pending[old]
        self.wake.set()


class Hub:
    def __init__(self, hello: object, changed: Callable[[], None] = lambda: None) -> None:
        """`hello` is what each listener hears first; `changed` is called when one comes or goes."""
        self._hello = frame_of("hello", hello)
        self.changed = changed
        self._listeners: set[Listener] = set()
        self._latest: dict[Key, bytes] = {}
        self._lines: dict[str, deque[object]] = {}
        self._count = 0
        self._closed = False

    @property
    def runs(self) -> set[str]:
        """What the listeners follow."""
        return {listener.run for listener in self._listeners if listener.run}

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def full(self) -> bool:
        return len(self._listeners) >= MOST_LISTENERS

    def publish(self, event: str, value: object, *, run: str = "", which: str = "") -> None:
        """`run`: only for those who follow it. `value`: JSON as bytes, or what can become it."""
        key, frame = (event, run, which), frame_of(event, value)
        if self._latest.get(key) == frame:
            return
        self._latest.pop(key, None)
        self._latest[key] = frame
        self._forget(event)
        self._give(key, frame)

    def lines(self, run: str, lines: Sequence[object]) -> None:
        """New lines of a run's log."""
        kept = self._lines.setdefault(run, deque(maxlen=MOST_LINES))
        kept.extend(lines)
        self._count += 1
        self._give(("log", run, str(self._count)), frame_of("log", {"lines": lines}))

    def close(self) -> None:
        """Let all streams end."""
        self._closed = True
        for listener in self._listeners:
            listener.wake.set()

    async def listen(self, run: str = "") -> AsyncIterator[bytes]:
        listener = Listener(run)
        self._listeners.add(listener)
        self.changed()
        try:
            yield self._hello
            yield b"".join(frame for key, frame in self._latest.items() if key[1] in ("", run))
            if self._lines.get(run):
                yield frame_of("log", {"lines": list(self._lines[run])})
            while not self._closed:
                yield await _next(listener)
        finally:
            self._listeners.discard(listener)
            self.changed()

    def _give(self, key: Key, frame: bytes) -> None:
        for listener in self._listeners:
            if key[1] in ("", listener.run):
                listener.give(key, frame)

    def _forget(self, event: str) -> None:
        same = [key for key in self._latest if key[0] == event]
        for old in same[:-MOST_KEPT]:
            del self._latest[old]
            if event == "status":
                self._lines.pop(old[1], None)


async def _next(listener: Listener) -> bytes:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await listener.wake.wait()
    except TimeoutError:
        return b": here\n\n"
    listener.wake.clear()
    frames = b"".join(listener.pending.values())
    listener.pending.clear()
    return frames


def frame_of(event: str, value: object) -> bytes:
    told = value if isinstance(value, bytes) else msgspec.json.encode(value)
    told = told.replace(b"\r", b" ").replace(b"\n", b" ")  # between JSON's words only
    return b"event: %s\ndata: %s\n\n" % (event.encode(), told)
