"""One end of connections under a cap, in a process of its own, for `caps.py`.

`_capped.py far pour|drink HOST` listens, and sends to whoever dials as much as it takes, or reads
as much as comes. `_capped.py near pour|drink HOST PORT CONNECTIONS MBPS` dials so often, over TLS,
and does the opposite under a cap. Frames are of mixed sizes. Both say `ready`, the far end with its
port; for every line on their standard input they answer with one line of JSON: the time (`at`), all
bytes that have been read (`read`), and, as the kernel counts them, those that have arrived
(`arrived`) and those that the other side has acknowledged (`acked`).
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time

from crowdgrad.errors import PeerError
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Leave
from crowdgrad.net.throttle import of_mbps
from crowdgrad.net.transport import secure, tcp, tls
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.stream import TcpConnection
from crowdgrad.process import run_async

FRAMES = (1 << 20, 64 << 10, 4 << 10, 256 << 10)
"""Bytes of payload; connection by connection."""
TCP_INFO_ACKED = 120
"""Where `struct tcp_info` of Linux has tcpi_bytes_acked, and behind it tcpi_bytes_received."""


def kernel_counts(connection: TcpConnection) -> tuple[int, int]:
    """What has been acknowledged, and what has arrived."""
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_ACKED + 16)
    acked, arrived = struct.unpack_from("=QQ", info, TCP_INFO_ACKED)
    return acked, arrived


class End:
    def __init__(self, pours: bool) -> None:
        self._pours = pours
        self._all: list[TcpConnection] = []

    async def serve(self, connection: Connection) -> None:
        assert isinstance(connection, TcpConnection)
        payload = bytes(FRAMES[len(self._all) % len(FRAMES)])
        room = memoryview(bytearray(max(FRAMES) + 64))
        self._all.append(connection)
        connection.set_sink(lambda message, length: room)
        try:
            await connection.send(Leave(reason="there is room here"))
            await connection.receive()
            while True:
                if self._pours:
                    await connection.send(Exchange(), payload)
                else:
                    await connection.receive()
        except PeerError:
            return  # at the end; who asks for figures would notice otherwise

    async def answer(self) -> None:
        """Until standard input ends."""
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        while await lines.readline():
            counts = [kernel_counts(connection) for connection in self._all]
            said = {
                "at": time.perf_counter(),
                "read": sum(connection.received_bytes for connection in self._all),
                "acked": sum(acked for acked, _ in counts),
                "arrived": sum(arrived for _, arrived in counts),
            }
            print(json.dumps(said), flush=True)


async def far(end: End, host: str) -> None:
    listener = await secure.listen(host, 0, end.serve, guest("far"), always=True)
    print(f"ready {listener.address[1]}", flush=True)
    await end.answer()


async def near(end: End, pours: bool, address: tuple[str, int], count: int, mbps: float) -> None:
    cap = of_mbps(mbps)
    up, down = (cap, None) if pours else (None, cap)
    tasks = []
    for _ in range(count):
        connection = await tcp.connect(*address, layer=tls.dialler(), up=up, down=down)
        tasks.append(asyncio.create_task(end.serve(connection)))
    print("ready", flush=True)
    await end.answer()
    for task in tasks:
        task.cancel()


def main() -> None:
    which, does, host, *more = sys.argv[1:]
    end = End(does == "pour")
    if which == "far":
        run_async(far(end, host))
    else:
        port, count, mbps = more
        run_async(near(end, does == "pour", (host, int(port)), int(count), float(mbps)))


if __name__ == "__main__":
    main()
