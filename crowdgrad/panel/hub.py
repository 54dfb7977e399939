"""The one event stream: what happens, told to all who listen.

A message is `{"event": …, "data": …}`. Each value is put into words once, however many listen. A
listener that is slow gets the last of everything and no queue of what was before; log lines, which
do not replace each other, are the exception. Whoever comes hears the last of everything first, so a
page that lost its connection just connects again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

HEARTBEAT_S = 15.0
"""How soon either side finds that the other has gone."""
MOST_LISTENERS = 500
MOST_LINES = 500
"""Of a log that a new listener hears."""
MOST_PENDING = 100
"""Log messages that wait for one listener."""
MOST_KEPT = 50
"""Tasks and runs whose last state is kept."""

Key = tuple[str, str, str]
"""Event, run, and which of several."""


class Listener:
    def __init__(self, run: str) -> None:
        self.run = run
        self.pending: dict[Key, bytes] = {}
        self.wake = asyncio.Event()

    def give(self, key: Key, message: bytes) -> None:
        self.pending.pop(key, None)
        self.pending[key] = message
        if key[0] == "log":
            waiting = [other for other in self.pending if other[0] == "log"]
            for old in waiting[:-MOST_PENDING]:
                del self.pending[old]
        self.wake.set()


class Hub:
    def __init__(self, hello: object, changed: Callable[[], None] = lambda: None) -> None:
        """`hello` is what each listener hears first; `changed` is called when one comes or goes."""
        self._hello = message_of("hello", hello)
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
        key, message = (event, run, which), message_of(event, value)
        if self._latest.get(key) == message:
            return
        self._latest.pop(key, None)
        self._latest[key] = message
        self._forget(event)
        self._give(key, message)

    def lines(self, run: str, lines: Sequence[object], *, anew: bool = False) -> None:
        """New lines of a run's log; `anew`: of another host, in place of all before."""
        kept = self._lines.setdefault(run, deque(maxlen=MOST_LINES))
        if anew:
            kept.clear()
        kept.extend(lines)
        self._count += 1
        message = message_of("log", {"anew": anew, "lines": lines})
        self._give(("log", run, str(self._count)), message)

    def close(self) -> None:
        """Let all streams end."""
        self._closed = True
        for listener in self._listeners:
            listener.wake.set()

    async def listen(self, run: str = "") -> AsyncGenerator[bytes, None]:
        listener = Listener(run)
        self._listeners.add(listener)
        self.changed()
        # All of it now: what is said while this goes out comes after it, and once.
        first = [told for key, told in self._latest.items() if key[1] in ("", run)]
        if self._lines.get(run):
            first.append(message_of("log", {"anew": True, "lines": list(self._lines[run])}))
        try:
            for message in (self._hello, *first):
                yield message
            while not self._closed:
                for message in await _next(listener):
                    yield message
        finally:
            self._listeners.discard(listener)
            self.changed()

    def _give(self, key: Key, message: bytes) -> None:
        for listener in self._listeners:
            if key[1] in ("", listener.run):
                listener.give(key, message)

    def _forget(self, event: str) -> None:
        same = [key for key in self._latest if key[0] == event]
        for old in same[:-MOST_KEPT]:
            del self._latest[old]
            if event == "status":
                self._lines.pop(old[1], None)


async def _next(listener: Listener) -> list[bytes]:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await listener.wake.wait()
    except TimeoutError:
        return [HERE]
    listener.wake.clear()
    messages = list(listener.pending.values())
    listener.pending.clear()
    return messages


def message_of(event: str, value: object) -> bytes:
    """`value`: JSON as bytes, or what can become it."""
    told = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return b'{"event":"%s","data":%s}' % (event.encode(), told)


HERE = message_of("here", None)
"""Nothing has happened, and the panel is there."""
