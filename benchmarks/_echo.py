"""The baseline of `exchange`: a blocking echo, as fast as plain sockets go.

`_echo.py BYTES` starts a server process and is its client, a player (`_windows.py`): `sendall` of
so many bytes, `recv_into` of as many, TCP_NODELAY, nothing looked at. The server receives all of a
message before it sends it back, as a parameter server must.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _windows import play


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Whether all of it came."""
    at, size = 0, len(into)
    while at < size:
        count = connection.recv_into(into[at:])
        if not count:
            return False
        at += count
    return True


def serve(listener: socket.socket, size: int) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(size))
    while receive(connection, buffer):
        connection.sendall(buffer)


def main() -> None:
    size = int(sys.argv[1])
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(
        target=serve, args=(listener, size), daemon=True
    )
    server.start()
    connection = socket.create_connection(listener.getsockname())
    listener.close()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ours, theirs = memoryview(bytearray(size)), memoryview(bytearray(size))

    def trip() -> None:
        connection.sendall(ours)
        if not receive(connection, theirs):
            raise SystemExit("The echo ended.")

    play(trip)


if __name__ == "__main__":
    main()
