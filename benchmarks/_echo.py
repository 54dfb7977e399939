"""The baseline of `exchange`: a blocking echo, as fast as plain sockets go.

`_echo.py BYTES [tls]` starts a server process and is its client, a player (`_windows.py`):
`sendall` of so many bytes, `recv_into` of as many, TCP_NODELAY, nothing looked at. The server
receives all of a message before it sends it back, as a parameter server must. With `tls` the same
over Python's `SSLSocket`, TLS 1.3 with the certificates and ciphers of ours.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _windows import play

from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.transport import tls


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Whether all of it came."""
    at, size = 0, len(into)
    while at < size:
        count = connection.recv_into(into[at:])
        if not count:
            return False
        at += count
    return True


def serve(listener: socket.socket, size: int, key: Identity | None) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if key is not None:
        connection = tls._listening(key).wrap_socket(connection, server_side=True)
    buffer = memoryview(bytearray(size))
    while receive(connection, buffer):
        connection.sendall(buffer)


def main() -> None:
    size = int(sys.argv[1])
    key = guest() if "tls" in sys.argv[2:] else None
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(
        target=serve, args=(listener, size, key), daemon=True
    )
    server.start()
    connection = socket.create_connection(listener.getsockname())
    listener.close()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if key is not None:
        connection = tls._dialling().wrap_socket(connection)
    ours, theirs = memoryview(bytearray(size)), memoryview(bytearray(size))

    def trip() -> None:
        connection.sendall(ours)
        if not receive(connection, theirs):
            raise SystemExit("The echo ended.")

    play(trip)


if __name__ == "__main__":
    main()
