"""The process: it takes a port, ends when told, and dies with whoever it is tied to."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from crowdgrad.net.matchmaker import publish, wait_for_job
from crowdgrad.net.ports import bind
from tests.matchmaker.running import Running, offer, volunteer, worker


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_politely_with_people_in_it(tmp_path: Path, how: signal.Signals) -> None:
    with Running(tmp_path) as matchmaker:

        async def scenario() -> None:
            host = await publish(matchmaker.url, offer(), worker=worker())
            match = await wait_for_job(matchmaker.url, volunteer("a"))
            out, err = await asyncio.to_thread(matchmaker.stop, how)
            async with asyncio.timeout(20):
                while host.connected or match.presence.connected:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert out == f"The matchmaker listens on {matchmaker.url}\n"
            assert err == "Stopped.\n"
            await match.presence.close()
            await host.close()

        asyncio.run(scenario())
        assert matchmaker.process.returncode == 0
        bind("127.0.0.1", int(matchmaker.url.rpartition(":")[2])).close()


def test_it_ends_with_someone_who_does_not_hang_up(tmp_path: Path) -> None:
    with Running(tmp_path) as matchmaker:
        host, port = matchmaker.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
            silent.settimeout(0.2)
            with pytest.raises(TimeoutError):
                silent.recv(1)
            matchmaker.stop(signal.SIGTERM)
        assert matchmaker.process.returncode == 0


def test_it_dies_with_its_owner(tmp_path: Path) -> None:
    with Running(tmp_path) as matchmaker:
        assert matchmaker.process.stdin is not None
        matchmaker.process.stdin.close()
        assert matchmaker.process.wait(20) == 0
