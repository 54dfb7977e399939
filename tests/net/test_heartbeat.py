"""A connection whose other side has gone is given up; one that is only slow is not."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import ConnectionLost, FrameError
from crowdgrad.net.heartbeat import Look, keep_alive, next_action
from crowdgrad.net.messages import Heartbeat, Leave, Message
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocConnection, Route, pair, straight
from crowdgrad.planner.membership import judge
from crowdgrad.simulator.virtual_time import Node, VirtualLoop
from tests.virtual_time import run_virtual

BEAT_S, SILENCE_S = 2.0, 10.0


@pytest.mark.parametrize(
    ("heard_ago", "sent_ago", "action"),
    [(0, 0, "rest"), (9.9, 0, "rest"), (0, 2, "beat"), (10.0, 2, "beat"), (10.1, 0, "give_up"),
     (10.1, 5, "give_up"), (0, 1.7, "rest"), (0, 1.9, "beat")],
)  # fmt: skip
def test_what_to_do_about_a_connection(heard_ago: float, sent_ago: float, action: str) -> None:
    now = 1000.0
    found, reason = next_action(
        now, heard_at=now - heard_ago, sent_at=now - sent_ago, beat_s=BEAT_S, silence_s=SILENCE_S
    )
    assert found == action
    assert reason


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_silence_alone_decides_on_giving_up(heard_ago: float, sent_ago: float) -> None:
    now = 2e6
    action, _ = next_action(
        now, heard_at=now - heard_ago, sent_at=now - sent_ago, beat_s=BEAT_S, silence_s=SILENCE_S
    )
    assert (action == "give_up") == (now - (now - heard_ago) > SILENCE_S)


async def swallow(connection: Connection) -> None:
    """Read until it ends, as the loop of a conversation does."""
    with contextlib.suppress(ConnectionLost):
        while True:
            await connection.receive()


def live(seconds: float, there: Route, back: Route) -> tuple[InprocConnection, float | None]:
    """Keep both ends alive for so long; the first end, and when it was given up (None: never)."""

    async def main() -> tuple[InprocConnection, float | None]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        near, far = pair(there=there, back=back)
        tasks = [
            asyncio.ensure_future(keep_alive(end, beat_s=BEAT_S, silence_s=SILENCE_S))
            for end in (near, far)
        ]
        reading = asyncio.gather(swallow(near), swallow(far))
        await asyncio.wait([asyncio.ensure_future(near.wait_closed())], timeout=seconds)
        ended = loop.time() - start if near._closed.is_set() else None
        for task in (*tasks, reading):
            task.cancel()
        await asyncio.gather(*tasks, reading, return_exceptions=True)
        return near, ended

    return run_virtual(main())


def test_a_half_open_connection_is_given_up_once_it_was_silent_for_too_long() -> None:
    near, ended = live(3600, lambda message: (), lambda message: ())
    assert ended is not None
    assert SILENCE_S < ended <= SILENCE_S + BEAT_S

    async def what_callers_hear() -> None:
        with pytest.raises(ConnectionLost, match=r"silent: nothing heard for 1\d s"):
            await near.receive()

    run_virtual(what_callers_hear())


def test_a_route_that_dies_later_is_noticed_as_soon() -> None:
    def dies(message: Message) -> tuple[float, ...]:
        return (0.0,) if asyncio.get_running_loop().time() < 1100 else ()

    _, ended = live(3600, dies, dies)
    assert ended is not None
    assert 100 + SILENCE_S - BEAT_S < ended <= 100 + SILENCE_S + BEAT_S


def test_a_slow_connection_that_loses_every_other_frame_lives_for_ever() -> None:
    def lossy() -> Route:
        turn = itertools.count()
        return lambda message: () if next(turn) % 2 else (8.0,)

    assert live(3600, lossy(), lossy())[1] is None


def test_a_half_open_connection_is_in_doubt_before_it_is_given_up() -> None:
    """And looked at when silence can have changed anything, not a beat later."""
    looks: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        near, _far = pair(there=lambda message: (), back=lambda message: ())
        start = loop.time()

        def looked(look: Look) -> None:
            presence, _ = judge(
                look.now, heard_at=look.heard_at, silence_s=SILENCE_S, asleep_s=look.asleep_s
            )
            looks.append((look.now - start, presence == "suspect"))

        beating = keep_alive(near, beat_s=BEAT_S, silence_s=SILENCE_S, looked=looked)
        await beating
        assert loop.time() - start == pytest.approx(SILENCE_S, abs=0.2)

    run_virtual(main())
    first = next(at for at, suspect in looks if suspect)
    assert first == pytest.approx(SILENCE_S / 2, abs=0.2)


def test_our_own_sleep_is_not_held_against_the_other_side() -> None:
    asleep = False

    async def main() -> None:
        nonlocal asleep
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        near, far = pair(back=lambda message: () if asleep else (0.0,))
        here = Node("here")
        tasks = [
            here.spawn(keep_alive(near, beat_s=BEAT_S, silence_s=SILENCE_S)),
            asyncio.create_task(keep_alive(far, beat_s=BEAT_S, silence_s=1e6)),
        ]
        reading = asyncio.gather(swallow(near), swallow(far))
        for _ in range(5):
            await asyncio.sleep(7.3)
            loop.freeze(here)
            asleep = True
            await asyncio.sleep(600.0)
            loop.thaw(here)
            await asyncio.sleep(SILENCE_S / 4)  # the last thing heard was long ago
            asleep = False
        await asyncio.sleep(7.3)
        assert not near._closed.is_set()
        asleep, before = True, loop.time()  # now it is the other side: noticed as ever
        await near.wait_closed()
        assert SILENCE_S - BEAT_S < loop.time() - before < SILENCE_S + BEAT_S
        for task in (*tasks, reading):
            task.cancel()
        await asyncio.gather(*tasks, reading, return_exceptions=True)

    run_virtual(main())


def test_whoever_speaks_anyway_needs_no_heartbeat() -> None:
    beats = 0

    def count(message: Message) -> tuple[float, ...]:
        nonlocal beats
        beats += isinstance(message, Heartbeat)
        return straight(message)

    async def main() -> None:
        near, far = pair(there=count)
        beating = asyncio.ensure_future(keep_alive(near, beat_s=BEAT_S, silence_s=SILENCE_S))
        reading = asyncio.ensure_future(swallow(far))
        for _ in range(100):
            await near.send(Leave(reason="chatting"))
            await far.send(Leave(reason="too"))
            await near.receive()
            await asyncio.sleep(1.0)
        beating.cancel()
        reading.cancel()

    run_virtual(main())
    assert beats == 0


def test_a_connection_that_ended_for_another_reason_leaves_no_stray_error() -> None:
    stray: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: stray.append(what))
        near, _far = pair()
        beating = asyncio.ensure_future(keep_alive(near, beat_s=BEAT_S, silence_s=SILENCE_S))
        await asyncio.sleep(1)
        near.close(FrameError("It spoke nonsense."))
        await beating

    run_virtual(main())
    assert stray == []
