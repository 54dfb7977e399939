"""Answers of the trainer, read straight from its pipe.

Every unit crosses here, so the way is short: when the pipe has something, it is read and whoever
waits is woken. A stream reader would do the same through two more layers and two more turns of the
event loop.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from crowdgrad.errors import MessageError
from crowdgrad.volunteer import talk

_READ_BYTES: Final = 1 << 16
_FLOOD_BYTES: Final = 2 * (talk.MAX_ANSWER_BYTES + talk.LENGTH.size)
"""More than this lies unread only where somebody speaks without being asked."""


class Answers:
    """The reading end of a pipe of our own; the other end is the trainer's standard output."""

    def __init__(self) -> None:
        self._fd, self.theirs = os.pipe()
        """`theirs` is for the child; `begun` closes our copy of it."""
        os.set_blocking(self._fd, False)
        self._loop = asyncio.get_running_loop()
        self._got = bytearray()
        self._ended = self._flooded = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._fd, self._read)

    def begun(self) -> None:
        """The child has its end: only its death closes the pipe from now on."""
        os.close(self.theirs)
        self.theirs = -1

    async def next(self) -> bytes:
        """One whole message. Raises EOFError when the trainer has gone, MessageError."""
        if self._flooded:
            raise MessageError("it floods its pipe")
        while (length := self._whole()) is None:
            if self._ended:
                raise EOFError
            self._waiter = self._loop.create_future()
            await self._waiter
        start = talk.LENGTH.size
        body = bytes(self._got[start : start + length])
        del self._got[: start + length]
        return body

    @property
    def waiting(self) -> bool:
        """Whether something has come that nobody has asked for yet."""
        return bool(self._got)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self.theirs >= 0:
            self.begun()
        self._end()

    def _whole(self) -> int | None:
        """The length of the message that has arrived, if all of it has."""
        if len(self._got) < talk.LENGTH.size:
            return None
        length = talk.body_length(bytes(self._got[: talk.LENGTH.size]), talk.MAX_ANSWER_BYTES)
        return length if len(self._got) >= talk.LENGTH.size + length else None

    def _read(self) -> None:
        try:
            block = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if block:
            self._got += block
            if len(self._got) > _FLOOD_BYTES:  # read no more: the pipe is full, so it waits
                self._flooded = True
                self._loop.remove_reader(self._fd)
            self._wake()
        else:
            self._loop.remove_reader(self._fd)
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
