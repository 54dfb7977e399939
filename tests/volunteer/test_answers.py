"""Messages from the trainer's pipe, however they are cut, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

import pytest

from crowdgrad.errors import MessageError
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.answers import Answers

READY = talk.encode(talk.Ready(engine="a" * 60))
FAILED = talk.encode(talk.Failed(code="CG100", message="no"))


def with_answers(test: Callable[[Answers, int], Awaitable[None]]) -> None:
    async def run() -> None:
        answers = Answers()
        child = os.dup(answers.theirs)
        answers.begun()
        try:
            await test(answers, child)
        finally:
            answers.close()
            os.close(child)

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize("cut", [1, 3, 4, 5, len(READY) - 1, len(READY), len(READY) + 2])
def test_messages_come_whole_and_in_order_however_they_are_cut(cut: int) -> None:
    async def test(answers: Answers, child: int) -> None:
        data = READY + FAILED + READY
        os.write(child, data[:cut])
        first = asyncio.create_task(answers.next())
        await asyncio.sleep(0.01)
        os.write(child, data[cut:])
        found = [await first, await answers.next(), await answers.next()]
        assert found == [READY[4:], FAILED[4:], READY[4:]]

    with_answers(test)


def test_what_was_said_before_the_end_is_heard() -> None:
    async def test(answers: Answers, child: int) -> None:
        os.write(child, READY + READY[:7])
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, child)  # closes the pipe, keeps the number
        os.close(nowhere)
        assert await answers.next() == READY[4:]
        with pytest.raises(EOFError):
            await answers.next()

    with_answers(test)


def test_whoever_waits_is_woken_when_it_is_closed() -> None:
    async def test(answers: Answers, child: int) -> None:
        waiting = asyncio.create_task(answers.next())
        await asyncio.sleep(0.01)
        answers.close()
        answers.close()
        with pytest.raises(EOFError):
            await waiting

    with_answers(test)


def test_a_length_nobody_would_send_is_refused() -> None:
    async def test(answers: Answers, child: int) -> None:
        os.write(child, talk.LENGTH.pack(talk.MAX_ANSWER_BYTES + 1))
        with pytest.raises(MessageError, match="a message of"):
            await answers.next()

    with_answers(test)


def test_a_flood_is_not_drunk() -> None:
    async def test(answers: Answers, child: int) -> None:
        os.set_blocking(child, False)
        written = 0
        with contextlib.suppress(BlockingIOError):
            for _ in range(10_000):
                written += os.write(child, bytes(4096))
                await asyncio.sleep(0)
        assert written < 1 << 20, "it waits, instead of filling our memory"
        assert answers.waiting
        with pytest.raises(MessageError, match="floods its pipe"):
            await answers.next()

    with_answers(test)
