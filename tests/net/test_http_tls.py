"""HTTPS by certificate files: what clients see, and what is said of files that do not fit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, WebSocket
from websockets.asyncio.client import connect

from crowdgrad.errors import SettingError
from crowdgrad.net.http import HttpLimits, HttpServer, Tls
from crowdgrad.net.ports import bind
from crowdgrad.process import new_event_loop
from tests.net.certificates import certificate

LIMITS = HttpLimits()
LOOPS = [asyncio.new_event_loop, new_event_loop]


@contextlib.asynccontextmanager
async def serving(tls: Tls, limits: HttpLimits = LIMITS) -> AsyncIterator[HttpServer]:
    app = FastAPI()

    @app.get("/hello")
    async def hello() -> str:
        return "hi"

    @app.websocket("/echo")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.receive()

    server = HttpServer(app, bind("127.0.0.1", 0), max_message_bytes=1000, limits=limits, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def trusting(file: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(file))


async def settled(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("factory", LOOPS)
def test_requests_and_websockets_over_tls(tmp_path: Path, factory: Callable) -> None:
    file, key = certificate(tmp_path)

    async def main() -> None:
        async with serving(Tls(certificate=file, key=key)) as server:
            context = trusting(file)
            async with httpx.AsyncClient(verify=context) as client:
                assert (await client.get(f"https://{server.address}/hello")).json() == "hi"
                assert (await client.get(f"https://{server.address}/hello")).json() == "hi"
            async with connect(f"wss://{server.address}/echo", ssl=context) as socket:
                await socket.send("a")
                assert await socket.recv() == "a"
            assert server.gate is not None
            await settled(lambda: server.gate is not None and server.gate.here == 0)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("factory", LOOPS)
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_handshake_that_never_ends_takes_no_seat_for_long(
    tmp_path: Path, factory: Callable, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file, key = certificate(tmp_path)

    async def main() -> None:
        limits = HttpLimits(header_s=0.3)
        async with serving(Tls(certificate=file, key=key), limits) as server:
            host, port = server.address.split(":")
            callers = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
            for _, writer in callers:
                writer.write(sent)
            for reader, writer in callers:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()
            await settled(lambda: server.gate is not None and server.gate.here == 0)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    assert not caplog.records


@pytest.mark.parametrize("factory", LOOPS)
def test_beyond_the_limit_one_is_told_over_tls_too(tmp_path: Path, factory: Callable) -> None:
    file, key = certificate(tmp_path)

    async def main() -> None:
        limits = HttpLimits(connections=1)
        async with serving(Tls(certificate=file, key=key), limits) as server:
            host, port = server.address.split(":")
            _, first = await asyncio.open_connection(host, int(port))
            await settled(lambda: server.gate is not None and server.gate.here == 1)
            async with httpx.AsyncClient(verify=trusting(file)) as client:
                answer = await client.get(f"https://{server.address}/hello")
            assert answer.status_code == 503
            assert answer.json()["code"] == "CG506"
            first.close()
            await settled(lambda: server.gate is not None and server.gate.here == 0)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def test_it_stops_in_the_middle_of_handshakes(tmp_path: Path) -> None:
    file, key = certificate(tmp_path)

    async def main() -> None:
        async with serving(Tls(certificate=file, key=key)) as server:
            host, port = server.address.split(":")
            _, silent = await asyncio.open_connection(host, int(port))
            await settled(lambda: server.gate is not None and server.gate.here == 1)
        silent.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def test_old_tls_is_not_spoken(tmp_path: Path) -> None:
    file, key = certificate(tmp_path)
    assert Tls(certificate=file, key=key).context().minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, key = certificate(tmp_path)
    other, other_key = certificate(tmp_path / "other", "other")

    def subject(server: HttpServer) -> str:
        host, port = server.address.split(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((host, int(port)), 10) as raw:
            raw.settimeout(10)
            with context.wrap_socket(raw) as wrapped:
                return "other" if wrapped.getpeercert(True) == pem(other) else "matchmaker"

    def pem(path: Path) -> bytes:
        return ssl.PEM_cert_to_DER_cert(path.read_text())

    async def main() -> None:
        async with serving(Tls(certificate=file, key=key)) as server:
            assert await asyncio.to_thread(subject, server) == "matchmaker"
            replace(other, file)
            server._renew()
            assert "not taken" in caplog.text
            assert await asyncio.to_thread(subject, server) == "matchmaker"
            replace(other_key, key)
            server._renew()
            assert await asyncio.to_thread(subject, server) == "other"

    def replace(new: Path, old: Path) -> None:
        old.write_bytes(new.read_bytes())
        os.utime(old, ns=(1, 1))

    asyncio.run(main())


def test_files_that_do_not_fit_are_explained(tmp_path: Path) -> None:
    file, key = certificate(tmp_path)
    _, other = certificate(tmp_path, "other")
    _, locked = certificate(tmp_path, "locked", b"secret")
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("no PEM")
    for made, words in (
        (Tls(certificate=tmp_path / "missing", key=key), "missing cannot be read"),
        (Tls(certificate=file, key=tmp_path), "Is a directory"),
        (Tls(certificate=file, key=other), "the key belongs to another certificate"),
        (Tls(certificate=rubbish, key=key), "nothing of the kind"),
        (Tls(certificate=file, key=locked), "the key has a password"),
    ):
        with pytest.raises(SettingError, match=words) as error:
            made.context()
        assert error.value.advice
