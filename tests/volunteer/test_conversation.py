"""Answers find who asked, also when several arrive in one piece."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.work import Unit, UnitId, Version
from crowdgrad.errors import FrameError, PeerError
from crowdgrad.net import handshake
from crowdgrad.net.framing import pack
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import (
    Admit,
    Blob,
    Exchange,
    Fetch,
    Finished,
    Fresh,
    Grant,
    Message,
    Wait,
)
from crowdgrad.net.transport.inproc import InprocConnection, pair
from crowdgrad.volunteer.conversation import Conversation
from tests.net.message_examples import EXAMPLES, VOLUNTEER
from tests.virtual_time import run_virtual

ADMIT = next(example for example in EXAMPLES if isinstance(example, Admit))
BASE = Version(incarnation=0, count=0)


def grant(ticket: int, link: int = 0) -> Grant:
    unit = Unit(id=UnitId(ticket), kind="train", epoch=0, shard=0, first_batch=0, batches=1)
    return Grant(ticket=ticket, unit=unit, base=BASE, rate=0.1, link=link)


async def asked(count: int) -> tuple[Conversation, InprocConnection, list[bytearray], list]:
    near, far = pair()
    talk = Conversation(near)
    slots = [bytearray(4) for _ in range(count)]
    waiting = [
        asyncio.create_task(talk.exchange(Exchange(), b"", memoryview(slot))) for slot in slots
    ]
    for _ in range(count):
        await far.receive()
    return talk, far, slots, waiting


def in_one_piece(connection: InprocConnection, *frames: tuple[Message, bytes]) -> None:
    data = b"".join(pack(message, len(payload)) + payload for message, payload in frames)
    assert connection._twin is not None
    connection._twin._arrive(data)


@pytest.mark.parametrize("proves", [True, False])
def test_who_hosts_is_known_once_we_have_joined(proves: bool) -> None:
    key, challenges = guest(), []

    async def host(connection: InprocConnection) -> None:
        hello = await handshake.answer(
            connection, "x", b"t" * 32, key=key if proves else None, name="the lab"
        )
        challenges.append(hello.challenge)
        await handshake.hear(connection)
        await connection.send(ADMIT)

    async def main() -> None:
        for _ in range(2):
            near, far = pair()
            talk = Conversation(near)
            assert talk.host_key == ""
            admit, _ = await asyncio.gather(talk.join(VOLUNTEER, guest()), host(far))
            assert admit == ADMIT
            assert (talk.host_key, talk.host_name) == (key.id if proves else "", "the lab")
        assert len(set(challenges)) == 2  # never the same twice

    run_virtual(main())


def test_two_answers_in_one_read_go_to_two_slots() -> None:
    async def main() -> None:
        talk, far, slots, waiting = await asked(2)
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        in_one_piece(far, (grant(1), b"AAAA"), (grant(2), b"BBBB"))
        assert [answer.unit.id for answer in await asyncio.gather(*waiting)] == [1, 2]
        assert slots == [b"AAAA", b"BBBB"]
        listening.cancel()

    run_virtual(main())


def test_a_wait_before_a_grant_does_not_shift_the_slots() -> None:
    async def main() -> None:
        talk, far, slots, waiting = await asked(2)
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        in_one_piece(far, (Wait(ticket=1, reason="nothing", seconds=1), b""), (grant(2), b"BBBB"))
        first, second = await asyncio.gather(*waiting)
        assert (type(first), second.unit.id) == (Wait, 2)
        assert slots == [bytes(4), b"BBBB"]
        listening.cancel()

    run_virtual(main())


def test_a_unit_that_goes_on_comes_alone_and_leaves_the_slot_as_it_is() -> None:
    async def main() -> None:
        talk, far, slots, waiting = await asked(2)
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        slots[0][:] = b"mine"
        in_one_piece(far, (grant(1, link=3), b""), (grant(2), b"BBBB"))
        assert [answer.link for answer in await asyncio.gather(*waiting)] == [3, 0]
        assert slots == [b"mine", b"BBBB"]
        listening.cancel()

    run_virtual(main())


def test_a_fetch_between_exchanges_finds_its_own_slot() -> None:
    async def main() -> None:
        talk, far, slots, waiting = await asked(1)
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        here = bytearray(4)
        fetching = asyncio.create_task(talk.fetch(memoryview(here)))
        assert (await far.receive())[0] == Fetch(ticket=2)
        newer = Version(incarnation=0, count=8)
        in_one_piece(far, (Fresh(ticket=2, base=newer), b"NEW!"), (grant(1), b"AAAA"))
        assert (await fetching).base == newer
        assert (await waiting[0]).unit.id == 1
        assert (bytes(here), slots) == (b"NEW!", [b"AAAA"])
        listening.cancel()

    run_virtual(main())


@pytest.mark.parametrize(
    "frame",
    [
        (Fresh(ticket=2, base=BASE), b""),
        (Fresh(ticket=2, base=BASE), b"AAA"),
        (Fresh(ticket=1, base=BASE), b"AAAA"),  # that was an exchange
        (grant(2), b"AAAA"),  # and that a fetch
        (grant(2, link=1), b""),
        (Wait(ticket=2, reason="", seconds=1), b""),
    ],
)
def test_a_fetch_is_answered_by_fresh_parameters_only(frame: tuple[Message, bytes]) -> None:
    async def main() -> None:
        talk, far, _, waiting = await asked(1)
        fetching = asyncio.create_task(talk.fetch(memoryview(bytearray(4))))
        await far.receive()
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        in_one_piece(far, frame)
        with pytest.raises(FrameError):
            await listening
        for asking in (fetching, waiting[0]):
            with pytest.raises(PeerError):
                await asking

    run_virtual(main())


@pytest.mark.parametrize(
    "frame",
    [
        (grant(9), b"AAAA"),
        (grant(9, link=1), b""),
        (grant(1, link=1), b"AAAA"),
        (Fresh(ticket=1, base=BASE), b"AAAA"),
        (grant(1), b"AAA"),
        (grant(1), b""),
        (Wait(ticket=9, reason="", seconds=1), b""),
        (Blob(hash=ChunkHash("0" * 64)), b"unasked"),
        (Exchange(), b""),
    ],
)
def test_what_was_not_asked_for_ends_the_conversation(frame: tuple[Message, bytes]) -> None:
    async def main() -> None:
        talk, far, _, waiting = await asked(1)
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        in_one_piece(far, frame)
        with pytest.raises(FrameError):
            await listening
        with pytest.raises(PeerError):
            await waiting[0]

    run_virtual(main())


@pytest.mark.parametrize("fetched", [False, True])
def test_a_second_answer_does_not_change_what_the_first_brought(fetched: bool) -> None:
    async def main() -> None:
        talk, far, slots, waiting = await asked(1)
        frames: list[tuple[Message, bytes]] = [(grant(1), b"AAAA"), (grant(1), b"BBBB")]
        if fetched:
            slots.append(bytearray(4))
            waiting.append(asyncio.create_task(talk.fetch(memoryview(slots[1]))))
            await far.receive()
            fresh = Fresh(ticket=2, base=BASE)
            frames = [(grant(1), b"AAAA"), (fresh, b"AAAA"), (fresh, b"BBBB")]
        listening = asyncio.create_task(talk.run(beat_s=1, silence_s=10))
        in_one_piece(far, *frames)
        with pytest.raises(FrameError):
            await listening
        assert slots == [b"AAAA"] * len(slots)
        await asyncio.gather(*waiting, return_exceptions=True)

    run_virtual(main())


def test_whoever_waits_when_the_job_ends_is_told() -> None:
    async def main() -> None:
        talk, far, _, waiting = await asked(1)
        in_one_piece(far, (Finished(reason="done", samples=1, credit=2.0), b""))
        assert (await talk.run(beat_s=1, silence_s=10)).reason == "done"
        with pytest.raises(PeerError, match="over"):
            await waiting[0]

    run_virtual(main())
