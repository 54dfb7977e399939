"""Somebody who records every byte between volunteer and host learns nothing of what is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from crowdgrad.domain.routes import at
from crowdgrad.domain.work import Update
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.framing import MAGIC
from crowdgrad.net.messages import PROTOCOL, Exchange, Grant
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.volunteer.conversation import Conversation
from tests.net.between import (
    ADA,
    HOST,
    LOOPS,
    PIN,
    PROGRAM,
    Between,
    Host,
    Verdict,
    between,
    hosting,
    join,
    only_the_web,
    run,
    until,
)

WORD_BYTES = 8
"""Of what was sent: by chance nobody sees so many in a row."""


def anything(first: bytes) -> Verdict:
    return "pass"


async def a_whole_visit(talk: Conversation, host: Host) -> bytes:
    """Fetch a program, take a unit, send an update: the vector that was sent."""
    listening = asyncio.create_task(talk.run(beat_s=2.0, silence_s=20.0))
    job = host.training.job
    assert await talk.get(job.program, len(PROGRAM)) == PROGRAM
    into = np.zeros(host.training.spec.size, np.float32)
    update = np.linspace(0.125, 0.375, len(into)).astype(np.float32)
    answer = await talk.exchange(Exchange(), b"", as_bytes(into), as_bytes(into))
    assert isinstance(answer, Grant)
    done = Update(
        unit=answer.unit.id,
        base=answer.base,
        samples=host.training.book.samples(answer.unit),
        loss=1.0,
        metrics={},
        compute_s=0.1,
        link=answer.link,
    )
    await talk.exchange(Exchange(update=done), as_bytes(update), as_bytes(into), as_bytes(into))
    await until(lambda: host.training.ledger[ADA.id].units == 1)
    talk.connection.close()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    return bytes(as_bytes(update))


def words(data: bytes) -> set[bytes]:
    return {data[at : at + WORD_BYTES] for at in range(0, len(data) - WORD_BYTES + 1, WORD_BYTES)}


def secrets_of(host: Host, update: bytes) -> set[bytes]:
    """All that was said, in words that a listener could look for."""
    job = host.training.job
    frame = MAGIC + bytes(PROTOCOL)  # four bytes alone may come by chance
    said = {frame, job.title.encode(), job.id.encode(), b"someone", ADA.public, ADA.id.encode()}
    return said | words(PROGRAM[:400]) | words(update) | {job.program.encode(), job.recipe.encode()}


@pytest.mark.parametrize("lets", [anything, only_the_web], ids=["as it is", "by WebSocket"])
@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_that_was_said_is_on_the_wire(loop: str, lets: Callable[[bytes], Verdict]) -> None:
    async def main() -> None:
        async with hosting() as host, between((host.host, host.port), lets) as network:
            for pin in (PIN, ""):
                talk = await join(ADA, at("127.0.0.1", network.port, pin))
                assert talk.host_key == HOST.id
                update = await a_whole_visit(talk, host)
                await until(lambda: not host.members())
                host.training.ledger[ADA.id].units = 0
            for seen in (network.there, network.back):
                assert len(seen) > 500
                found = {word for word in secrets_of(host, update) if word in seen}
                assert found == set()
            assert len(network.back) > 2 * len(PROGRAM), "the program did come by"

    run(main(), loop)


def test_the_listener_would_have_found_it_in_plain_sight() -> None:
    """The same visit without TLS, as on one machine: so that the test above can fail."""

    async def main() -> None:
        async with hosting(always=False) as host, between((host.host, host.port)) as network:
            talk = await join(ADA, at("127.0.0.1", network.port), dialler=Dialler(key=ADA))
            update = await a_whole_visit(talk, host)
            seen = bytes(network.there) + bytes(network.back)
            found = {word for word in secrets_of(host, update) if word in seen}
            missing = secrets_of(host, update) - found
            assert missing == set()
            await until(lambda: not host.members())

    run(main())


def test_a_record_that_is_altered_on_the_way_ends_the_visit_and_changes_nothing() -> None:
    """The volunteer comes back and goes on; what was altered never counted."""

    class Meddling(Between):
        armed = False

        async def _copy(
            self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
        ) -> None:
            while data := await reader.read(1 << 16):
                if self.armed and kept is self.there:
                    self.armed = False
                    data = data[:-1] + bytes([data[-1] ^ 1])
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def main() -> None:
        async with hosting() as host:
            middle = Meddling((host.host, host.port), anything)
            server = await asyncio.start_server(middle.came, "127.0.0.1", 0)
            middle.port = server.sockets[0].getsockname()[1]
            talk = await join(ADA, at("127.0.0.1", middle.port, PIN))
            into = np.zeros(host.training.spec.size, np.float32)
            listening = asyncio.create_task(talk.run(beat_s=2.0, silence_s=20.0))
            version = host.training.parameters.version
            middle.armed = True
            asking = asyncio.create_task(
                talk.exchange(Exchange(), b"", as_bytes(into), as_bytes(into))
            )
            await until(lambda: not host.members())
            (account,) = host.training.ledger.everyone()
            assert "altered" in account.state
            assert host.training.parameters.version == version
            assert (account.units, account.samples) == (0, 0)
            results = await asyncio.gather(asking, listening, return_exceptions=True)
            assert all(isinstance(result, Exception) for result in results)
            talk.connection.close()
            again = await join(ADA, at("127.0.0.1", middle.port, PIN))
            await a_whole_visit(again, host)
            await until(lambda: not host.members())
            server.close()
            await middle.close()
            await server.wait_closed()

    run(main())
