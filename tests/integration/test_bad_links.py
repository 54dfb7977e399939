"""Links that break or go half-open: volunteers come back by themselves, with what they hold."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import TurnedAway
from crowdgrad.host.job import Prepared
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.messages import Get
from crowdgrad.net.transport import tcp
from crowdgrad.settings import Settings
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.probe import describe
from tests.integration.conftest import Stage, children_of, job_with


class Proxy:
    """A wire that can be cut (both ends hear of it) or go dead (nobody hears anything)."""

    def __init__(self, target: str) -> None:
        self.host, port = target.split(":")
        self.port = int(port)
        self.address = ""
        self.accepted = 0
        self._wires: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._dead: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for pair in self._wires:
            for writer in pair:
                writer.transport.abort()
        self._wires.clear()

    def go_dead(self) -> None:
        for pair in self._wires:
            self._dead.update(pair)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self.host, self.port)
        self.accepted += 1
        self._wires.append((writer, back))
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                if sink not in self._dead:
                    sink.write(data)
                    await sink.drain()
            if sink not in self._dead:
                sink.close()


@pytest.mark.parametrize("how", [pytest.param("cut", marks=pytest.mark.slow), "go_dead"])
def test_a_volunteer_comes_back_over_a_bad_link(
    digits: Prepared, settings: Settings, tmp_path: Path, how: str
) -> None:
    async def scenario() -> None:
        endless = job_with(digits, stop=StoppingRule(epochs=100_000))
        async with Stage(endless, settings, tmp_path) as stage:
            assert stage.here is not None
            async with Proxy(stage.here.address) as wire:
                ada = stage.volunteer("ada", via=wire.address)
                await stage.until("ada works", lambda: stage.units_of("ada") > 3)
                trainers = children_of(ada.pid)
                getattr(wire, how)()
                await stage.until("ada dials again", lambda: wire.accepted == 2)
                before = stage.units_of("ada")
                await stage.until("ada is back", lambda: stage.units_of("ada") > before + 5)
                assert children_of(ada.pid) == trainers, "its trainer and data were kept"
                (member,) = (m for m in stage.status.members if m.name == "ada")
                assert member.position == 1, "a place in the roster stays its owner's"
                stage.stop.set()
                outcome = await stage.outcome()
        assert sum(m.units for m in outcome.status.members) == outcome.status.updates

    asyncio.run(scenario())


async def join(stage: Stage, name: str, key: Identity) -> Conversation:
    """A volunteer in this process, joined and nothing more."""
    assert stage.here is not None
    host, port = stage.here.address.split(":")
    talk = Conversation(await tcp.connect(host, int(port)))
    await talk.join(describe(key, name), key)
    return talk


def test_one_who_does_not_read_holds_up_nobody_else(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    largest = max(digits.blobs, key=lambda name: len(digits.blobs[name]))
    wanted = 64 << 20  # far more than two sockets hold

    async def scenario() -> None:
        endless = job_with(digits, stop=StoppingRule(epochs=100_000))
        async with Stage(endless, settings, tmp_path) as stage:
            deaf = await join(stage, "deaf", guest())
            assert isinstance(deaf.connection, tcp.TcpConnection)
            deaf.connection._pause_reading()
            for _ in range(wanted // len(digits.blobs[largest])):
                await deaf.connection.send(Get(hash=largest))
            stage.volunteer("ada")
            await stage.until("ada works", lambda: stage.units_of("ada") > 3)
            deaf.connection.close()

    asyncio.run(scenario())


def test_the_same_key_twice_is_told_so(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    async def scenario() -> None:
        endless = job_with(digits, stop=StoppingRule(epochs=100_000))
        async with Stage(endless, settings, tmp_path) as stage:
            key = guest()
            first = await join(stage, "twin", key)
            second = await join(stage, "twin", key)
            with pytest.raises(TurnedAway, match="same key"):
                await first.run(beat_s=0.5, silence_s=3.0)
            assert [m.name for m in stage.status.members].count("twin") == 1
            second.connection.close()

    asyncio.run(scenario())
