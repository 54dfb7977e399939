"""How long it takes to reach somebody: a dialler and a listener of ours, again and again.

`_handshakes.py plain|new|resumed` starts a listener in a process of its own (`secure.listen`) and
is a player (`_windows.py`): a round trip begins with dialling and ends when the first frame could
be sent. `plain`: without TLS, as within one machine; `new`: TLS with a listener that was never met,
its key compared with a pin; `resumed`: TLS with a session of before. What follows, a frame each way
and the good-bye, is not in it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _windows import READY, answer

from crowdgrad.net.identity import Identity, digest_of, guest
from crowdgrad.net.messages import Leave
from crowdgrad.net.transport import secure, tcp, tls
from crowdgrad.net.transport.base import Connection
from crowdgrad.process import run_async


async def listen(key: Identity, told: Pipe) -> None:
    async def greet(connection: Connection) -> None:
        await connection.receive()
        await connection.send(Leave(reason=""))  # with it the dialler has its ticket
        await connection.wait_closed()

    listener = await secure.listen("127.0.0.1", 0, greet, key)
    told.send(listener.address[1])
    await asyncio.Event().wait()


async def dial(port: int, layer: tls.Tls | None) -> int:
    """How many nanoseconds it took."""
    began = time.perf_counter_ns()
    connection = await tcp.connect("127.0.0.1", port, layer=layer)
    took = time.perf_counter_ns() - began
    await connection.send(Leave(reason=""))
    await connection.receive()
    connection.close()
    await connection.wait_closed()
    return took


async def play(kind: str, key: Identity, port: int) -> None:
    pin, sessions = digest_of(key.public), tls.Sessions()

    def layer() -> tls.Tls | None:
        if kind == "plain":
            return None
        return tls.dialler(pin, sessions=sessions if kind == "resumed" else None)

    await dial(port, layer())
    print(READY, flush=True)
    for line in sys.stdin:
        began = now = time.perf_counter()
        until, trips = began + float(line), []
        while now < until:
            one = layer()
            trips.append(await dial(port, one))
            assert one is None or one.resumed == (kind == "resumed"), "not the handshake asked for"
            now = time.perf_counter()
        print(answer(now - began, trips), flush=True)


def main() -> None:
    key = guest()
    told, tell = multiprocessing.Pipe(duplex=False)
    listener = multiprocessing.get_context("fork").Process(
        target=lambda: run_async(listen(key, tell)), daemon=True
    )
    listener.start()
    try:
        run_async(play(sys.argv[1], key, told.recv()))
    finally:
        listener.kill()


if __name__ == "__main__":
    main()
