"""Where connections come in: several in a turn of the loop, also when descriptors run out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from crowdgrad.net.gate import ACCEPT_AGAIN_S
from crowdgrad.relay.wire import in_words

MOST_ACCEPTED = 128
BACKLOG = 4096
Admit = Callable[[socket.socket, str], None]


class Entrance:
    def __init__(
        self,
        listening: socket.socket,
        admit: Admit,
        trouble: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`admit`: given a socket, which is its own from then on, and the peer's address."""
        self._listening, self._admit, self._trouble, self._loop = listening, admit, trouble, loop
        self._again: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        listening.listen(BACKLOG)
        loop.add_reader(listening, self._accept)

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _listen(self) -> None:
        self._again = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(MOST_ACCEPTED):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no descriptor, no memory: it would be told again at once
                self._trouble(in_words(error))
                self._loop.remove_reader(self._listening)
                self._again = self._loop.call_later(ACCEPT_AGAIN_S, self._listen)
                return
            self._admit(accepted, str(peer[0]))
