"""Volunteers that break the rules are told why, and the job goes on without harm."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.domain.work import Update
from crowdgrad.errors import PeerError, TurnedAway, VersionMismatch
from crowdgrad.host.job import Prepared
from crowdgrad.net.framing import pack
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Grant
from crowdgrad.net.transport import tcp
from crowdgrad.numerics.vectors import as_bytes
from crowdgrad.planner.batches import plan
from crowdgrad.settings import Settings
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.probe import describe
from tests.integration.conftest import Stage, job_with

Attack = Callable[[tuple[str, int], Prepared], Awaitable[str]]


async def join(
    where: tuple[str, int], job: Prepared
) -> tuple[Conversation, Grant, Update, np.ndarray]:
    """An honest beginning: joined, a unit in hand, and what an honest update would say."""
    size = job.program.spec.size
    key = guest()
    talk = Conversation(await tcp.connect(*where))
    await talk.join(describe(key, "mallory"), key)
    listening = asyncio.create_task(talk.run(beat_s=0.5, silence_s=3.0))
    listening.add_done_callback(lambda task: task.cancelled() or task.exception())
    into = np.empty(size, np.float32)
    answer = await talk.exchange(Exchange(), b"", as_bytes(into))
    assert isinstance(answer, Grant)
    batches = plan(job.manifest, "train", job.job.local.batch_size)
    update = Update(
        unit=answer.unit.id,
        base=answer.base,
        samples=batches.samples(answer.unit.first_batch, answer.unit.batches),
        loss=1.0,
        metrics={},
        compute_s=0.1,
    )
    return talk, answer, update, into


async def send_nan(where: tuple[str, int], job: Prepared) -> str:
    talk, _, update, into = await join(where, job)
    bad = np.full(job.program.spec.size, np.nan, np.float32)
    answer = await talk.exchange(Exchange(update=update), as_bytes(bad), as_bytes(into))
    talk.connection.close()
    return answer.verdict


async def send_wrong_size(where: tuple[str, int], job: Prepared) -> str:
    talk, _, update, into = await join(where, job)
    short = np.zeros(job.program.spec.size - 1, np.float32)
    with pytest.raises(PeerError) as refused:
        await talk.exchange(Exchange(update=update), as_bytes(short), as_bytes(into))
    return str(refused.value)


async def send_huge(where: tuple[str, int], job: Prepared) -> str:
    talk, _, update, _ = await join(where, job)
    head = pack(Exchange(update=update), 1 << 60)
    assert isinstance(talk.connection, tcp.TcpConnection)
    talk.connection._transport.write(head)  # type: ignore[union-attr]
    with pytest.raises(PeerError) as refused:
        await talk.exchange(Exchange(), b"", memoryview(b""))
    return str(refused.value)


async def speak_another_version(where: tuple[str, int], job: Prepared) -> str:
    reader, writer = await asyncio.open_connection(*where)
    fields = struct.pack("<4sBBHIQ", b"cgrd", 9, 3, 1, 0, 0)
    writer.write(fields + struct.pack("<I", zlib.crc32(fields)))
    return await _answer(reader, writer)


async def speak_http(where: tuple[str, int], job: Prepared) -> str:
    reader, writer = await asyncio.open_connection(*where)
    writer.write(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")
    return await _answer(reader, writer)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    said = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return said.decode(errors="replace")


async def lie_about_the_key(where: tuple[str, int], job: Prepared) -> str:
    talk = Conversation(await tcp.connect(*where))
    with pytest.raises(TurnedAway) as refused:
        await talk.join(describe(guest(), "mallory"), guest())
    return str(refused.value)


async def answer_anothers_unit(where: tuple[str, int], job: Prepared) -> str:
    first, _, update, _ = await join(where, job)
    second, _, _, into = await join(where, job)
    ones = np.ones(job.program.spec.size, np.float32)
    answer = await second.exchange(Exchange(update=update), as_bytes(ones), as_bytes(into))
    for talk in (first, second):
        talk.connection.close()
    return answer.verdict


@pytest.mark.parametrize(
    ("attack", "reply"),
    [
        (send_nan, "not_finite"),
        (send_wrong_size, "An update has 19236 bytes; this program's have 19240"),
        (send_huge, f"{1 << 60} bytes"),
        (speak_another_version, "speaks protocol 9.3, we speak 4.2"),
        (speak_http, "HTTP/1.1 426"),
        (lie_about_the_key, "That key belongs to"),
        (answer_anothers_unit, "not_yours"),
    ],
)
def test_it_is_refused_with_a_reason(
    digits: Prepared, settings: Settings, tmp_path: Path, attack: Attack, reply: str
) -> None:
    async def scenario() -> None:
        endless = job_with(digits, stop=StoppingRule(epochs=100_000))
        async with Stage(endless, settings, tmp_path) as stage:
            await stage.until("it works", lambda: stage.status.updates > 3)
            assert stage.here is not None
            host, port = stage.here.address.split(":")
            said = await attack((host, int(port)), digits)
            assert reply in said
            before = stage.status.updates
            await stage.until("it goes on", lambda: stage.status.updates > before + 20)
            mallory = [m for m in stage.status.members if m.name == "mallory"]
            assert all(m.samples == 0 for m in mallory)
            vector, _ = await stage.run.training.parameters.copy()
            assert np.isfinite(vector).all()

    asyncio.run(scenario())


def test_an_older_host_is_named_in_our_own_error() -> None:
    """The other direction: we dial something that speaks another version."""

    async def scenario() -> None:
        fields = struct.pack("<4sBBHIQ", b"cgrd", 2, 3, 2, 0, 0)
        alien = fields + struct.pack("<I", zlib.crc32(fields))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(alien)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        key = guest()
        talk = Conversation(await tcp.connect("127.0.0.1", port))
        with pytest.raises(VersionMismatch, match=r"speaks protocol 2\.3.*pip install -U"):
            await talk.join(describe(key, "ada"), key)
        await talk.connection.wait_closed()
        server.close()

    asyncio.run(scenario())
