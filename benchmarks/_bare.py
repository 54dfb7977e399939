"""Bare TCP between shaped machines: what one stream carries, and one machine that sends to all.

Nothing is looked at or kept: a lower bound of what any protocol over TCP takes. All sockets are of
this process, each made on the machine it belongs to.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence

from _shaped import Machine

PIECE = bytes(256 << 10)
PATIENCE_S = 60.0


def goodput(sender: Machine, receiver: Machine, count: int) -> float:
    """Bytes a second of one stream of so many bytes, from the first call to the last byte."""
    return count / one_to_all(sender, [receiver], count)


def one_to_all(sender: Machine, receivers: Sequence[Machine], count: int) -> float:
    """Seconds until each of them has had so many bytes from the one, all at the same time."""
    with contextlib.ExitStack() as stack:
        with sender.inside():
            listening = stack.enter_context(socket.create_server((sender.address, 0)))
        began = time.monotonic()
        ends: list[float] = []
        threads = []
        for machine in receivers:
            with machine.inside():
                there = socket.create_connection(listening.getsockname()[:2], timeout=PATIENCE_S)
            stack.enter_context(there)
            here = stack.enter_context(listening.accept()[0])
            threads += [threading.Thread(target=_send, args=(here, count)),
                        threading.Thread(target=_take, args=(there, count, ends))]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(ends) < len(receivers):
        raise SystemExit("A bare TCP stream between two machines of this benchmark broke off.")
    return max(ends) - began


def _send(connection: socket.socket, count: int) -> None:
    left = memoryview(PIECE)
    while count:
        count -= connection.send(left[:count])


def _take(connection: socket.socket, count: int, ends: list[float]) -> None:
    room = bytearray(1 << 20)
    while count:
        taken = connection.recv_into(room)
        if not taken:
            return
        count -= taken
    ends.append(time.monotonic())
