"""Writing behind: what changes on the event loop is written by one thread, many changes at once.

What changes during one turn of the loop is never torn apart: it goes into one batch together, and a
batch is one transaction. While one is being written, and for a moment after, everything else
gathers for the next (group commit), so a slow disk makes batches larger, not the queue longer. A
batch that could not be written is put back under what has changed since, and tried again; until
then everybody who asks is told that nothing lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

from crowdgrad.errors import CannotWrite, CrowdgradError
from crowdgrad.store.rows import Key, Row

Batch = dict[tuple[str, Key], Row | None]
"""By table and key: how it is now, or None where it was forgotten."""
Waiter = asyncio.Future[None]

GATHER_S = 0.003
"""A transaction costs as much as a dozen rows: busy times make fewer, larger ones."""
ADVICE = "It is tried again every second; /readyz and the log say when it works."

logger = logging.getLogger(__name__)


class Writer:
    """All methods are called from one thread, that of the loop."""

    def __init__(self, write: Callable[[Batch], None], *, retry_s: float = 1.0) -> None:
        """`write` is called in a thread of its own: all of a batch or nothing. May raise."""
        self._write = write
        self._retry_s = retry_s
        self._turn: Batch = {}
        """Of this turn of the loop; only its thread looks here."""
        self._guard = threading.Condition()
        self._next: Batch = {}
        self._next_waiters: list[Waiter] = []
        self._now: Batch = {}
        self._now_waiters: list[Waiter] = []
        self._trouble = ""
        self._stopping = False
        self._last_try = False
        self._thread = threading.Thread(target=self._run, name="store writer", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        return self._trouble

    def put(self, table: str, key: Key, row: Row | None) -> None:
        """Write that, soon; it replaces what was to be written under the same key."""
        if self._stopping:
            raise RuntimeError("the store is closed")
        first = not self._turn
        self._turn[table, key] = row
        if first:
            try:
                asyncio.get_running_loop().call_soon(self._end_turn)
            except RuntimeError:  # no loop, no turns
                self._end_turn()

    async def kept(self) -> None:
        """Return when everything put so far is written. Raises CannotWrite."""
        self._end_turn()
        with self._guard:
            if self._trouble:
                raise _refusal(self._trouble)
            if not self._next and not self._now:
                return
            waiter = asyncio.get_running_loop().create_future()
            (self._next_waiters if self._next else self._now_waiters).append(waiter)
        await waiter

    def close(self) -> None:
        """Write what is left, end the thread. Raises CannotWrite where that fails."""
        self._end_turn()
        with self._guard:
            self._stopping = True
            self._guard.notify()
        self._thread.join()
        if self._next:
            count, self._next = len(self._next), {}
            raise CannotWrite(f"Changes lost: {count}. {self._trouble}")

    def _end_turn(self) -> None:
        if self._turn:
            with self._guard:
                self._next.update(self._turn)
                self._turn = {}
                self._guard.notify()

    # In the thread

    def _run(self) -> None:
        while self._take():
            trouble = self._attempt()
            self._settle(trouble)
            if not trouble:
                time.sleep(GATHER_S)
            elif not self._pause():
                return

    def _take(self) -> bool:
        """Wait for something to write; False: there is nothing more to come."""
        with self._guard:
            self._guard.wait_for(lambda: self._next or self._stopping)
            self._last_try = self._stopping
            self._now, self._next = self._next, {}
            self._now_waiters, self._next_waiters = self._next_waiters, []
            return bool(self._now)

    def _attempt(self) -> str:
        """Why it failed; empty: it is written."""
        try:
            self._write(self._now)
        except CrowdgradError as error:
            return error.message
        except Exception as error:  # whatever it is, nobody may wait for ever
            logger.exception("the store's writer met something unforeseen")
            return f"The database cannot be written: {type(error).__name__}."
        return ""

    def _settle(self, trouble: str) -> None:
        with self._guard:
            waiters, self._now_waiters = self._now_waiters, []
            if trouble:
                self._now.update(self._next)
                self._next = self._now
                waiters += self._next_waiters
                self._next_waiters = []
            self._now = {}
            before, self._trouble = self._trouble, trouble
        if trouble != before:
            logger.warning("%s", trouble or "The database is written again.")
        _tell(waiters, trouble)

    def _pause(self) -> bool:
        """Until it is time to try again; False: it was the last try."""
        with self._guard:
            if self._last_try:
                return False
            self._guard.wait_for(lambda: self._stopping, self._retry_s)
            return True


def _refusal(trouble: str) -> CannotWrite:
    return CannotWrite(trouble, advice=ADVICE)


def _tell(waiters: list[Waiter], trouble: str) -> None:
    """From the thread to the loops they wait in: one call for each loop."""
    for loop in {waiter.get_loop() for waiter in waiters}:
        mine = [waiter for waiter in waiters if waiter.get_loop() is loop]
        with contextlib.suppress(RuntimeError):  # a loop that is closed waits for nothing
            loop.call_soon_threadsafe(_wake, mine, trouble)


def _wake(waiters: list[Waiter], trouble: str) -> None:
    for waiter in waiters:
        if waiter.done():
            continue  # whoever waited has gone
        if trouble:
            waiter.set_exception(_refusal(trouble))
        else:
            waiter.set_result(None)
