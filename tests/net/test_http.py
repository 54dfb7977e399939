"""A server inside our own loop: starts, answers, stops when told, whoever still listens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from crowdgrad.errors import SettingError
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import bind


def test_it_answers_stops_and_frees_its_port_without_touching_signals() -> None:
    app = FastAPI()

    @app.get("/hello")
    def hello() -> str:
        return "hi"

    async def main() -> None:
        before = signal.getsignal(signal.SIGINT)
        server = HttpServer(app, bind("127.0.0.1", 0), max_message_bytes=1000)
        await server.start()
        assert signal.getsignal(signal.SIGINT) is before
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://{server.address}/hello")
        assert answer.json() == "hi"
        assert "server" not in answer.headers
        await server.stop()
        bind("127.0.0.1", int(server.address.rpartition(":")[2])).close()

    asyncio.run(main())


def test_it_stops_while_somebody_still_reads_a_stream() -> None:
    app = FastAPI()

    @app.get("/events")
    async def events() -> StreamingResponse:
        async def forever() -> AsyncIterator[bytes]:
            while True:
                yield b"tick\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(forever())

    async def main() -> None:
        server = HttpServer(app, bind("127.0.0.1", 0), max_message_bytes=1000)
        await server.start()
        url = f"http://{server.address}/events"
        async with httpx.AsyncClient() as client, client.stream("GET", url) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "tick"
            async with asyncio.timeout(10):
                await server.stop()
            await lines.aclose()

    asyncio.run(main())


def test_an_app_is_told_that_it_is_over_also_in_a_hurry(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        yield
        told.append("over")

    app = FastAPI(lifespan=lifespan)

    @app.get("/slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        server = HttpServer(app, bind("127.0.0.1", 0), max_message_bytes=1000)
        await server.start()
        host, port = server.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.1)
        await server.stop()
        writer.close()

    asyncio.run(main())
    assert told == ["over"]


def test_an_app_that_cannot_start_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        raise OSError("no disk")
        yield

    async def main() -> None:
        listening = bind("127.0.0.1", 0)
        with pytest.raises(SettingError, match="ended as it started"):
            await HttpServer(FastAPI(lifespan=lifespan), listening, max_message_bytes=1).start()
        assert listening.fileno() == -1

    asyncio.run(main())
