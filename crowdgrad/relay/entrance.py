"""Where connections come in at a relay."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from crowdgrad.net.gate import Accepting
from crowdgrad.relay.wire import in_words

MOST_ACCEPTED = 128


class Entrance(Accepting):
    def __init__(
        self,
        listening: socket.socket,
        admit: Callable[[socket.socket, str], None],
        trouble: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            listening, admit, lambda error: trouble(in_words(error)), loop, most=MOST_ACCEPTED
        )
