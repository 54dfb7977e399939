"""Children are asked in threads; one that hangs has few of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from crowdgrad.errors import Unreachable
from crowdgrad.host.remote.control_file import Entrance
from crowdgrad.panel import calls
from crowdgrad.panel.calls import Caller


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"1")

    def log_message(self, *_: object) -> None: ...


def entrance(port: int) -> Entrance:
    return Entrance(url=f"http://127.0.0.1:{port}", token="t", pid=1)


@contextlib.contextmanager
def answering() -> Iterator[Entrance]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield entrance(server.server_port)
        server.shutdown()


@contextlib.contextmanager
def hanging() -> Iterator[Entrance]:
    """It takes connections, as a stopped process does, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        yield entrance(silent.getsockname()[1])


def test_one_that_hangs_keeps_nobody_else_waiting() -> None:
    async def scenario(hangs: Entrance, lives: Entrance) -> None:
        caller = Caller()
        asking = [
            asyncio.create_task(caller.ask(hangs, "GET", "/status", patience_s=3.0))
            for _ in range(3 * calls.AT_ONCE)
        ]
        for gone in asking[::2]:  # pages that are closed, and their threads go on
            await asyncio.sleep(0)
            gone.cancel()
        told = asyncio.create_task(caller.ask(lives, "GET", "/status"))
        await asyncio.wait({told, *asking[1::2]}, return_when=asyncio.FIRST_COMPLETED)
        assert told.done(), "nobody who asks the other has an answer yet"
        assert told.result().body == b"1"
        ended = await asyncio.gather(*asking[1::2], return_exceptions=True)
        assert all(isinstance(error, Unreachable) for error in ended)
        caller.close()

    with hanging() as hangs, answering() as lives:
        asyncio.run(scenario(hangs, lives))


def test_who_waits_for_a_turn_has_one_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "EACH", 1)

    async def scenario(lives: Entrance) -> None:
        caller = Caller()
        told = await asyncio.gather(*(caller.ask(lives, "GET", "/") for _ in range(20)))
        assert [one.code for one in told] == [200] * 20
        caller.close()

    with answering() as lives:
        asyncio.run(scenario(lives))
