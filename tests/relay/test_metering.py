"""Bytes are counted by key, and whoever has had enough waits or goes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import guest
from crowdgrad.planner.metering import Meter
from crowdgrad.relay.turns import Turns
from tests.relay.world import (
    AT,
    CALLER,
    HOST,
    Dialler,
    Host,
    call,
    relay,
    run,
    spliced,
    tally,
    until,
)

SOME = random.Random(2).randbytes(1_500_000)


def test_a_slow_limit_delays_bytes_and_loses_none() -> None:
    async def main() -> None:
        async with relay(key_bytes_per_s=2e6) as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            other, third = await spliced(running, host, guest("third"))
            for end in (theirs, other):
                end.write(SOME)
            both = asyncio.gather(
                ours.reader.readexactly(len(SOME)), third.reader.readexactly(len(SOME))
            )
            await until(lambda: len(running.board.turns) > 0)
            assert await both == [SOME, SOME]
            now, board = running.board.now(), running.board
            meter = board.meters.hold(HOST.id, now)
            assert meter.bytes == 2 * len(SOME), "both pairs are the host's"
            assert board.meters.hold(CALLER.id, now).bytes == len(SOME)
            assert board.meters.all.bytes == 2 * len(SOME)
            for each in (theirs, ours, other, third, host):
                each.close()

    run(main())


def test_after_its_allowance_a_pair_is_over_and_the_next_call_refused() -> None:
    async def main() -> None:
        async with relay(key_bytes_per_day=100_000) as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            theirs.write(SOME)
            assert await ours.reader.read() == SOME[:100_000], "to the byte"
            assert await theirs.over() == b""
            assert running.board.events.ends == {"allowance": 1}
            before = tally(running)
            said = await (await call(running)).refused("allowance")
            assert HOST.id in said.message
            assert tally(running) == before
            for each in (theirs, ours, host):
                each.close()

    run(main())


def test_what_a_pair_has_had_is_told_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            theirs.write(b"12345")
            ours.write(b"123")
            await ours.reader.readexactly(5)
            await theirs.reader.readexactly(3)
            theirs.close()
            ours.close()
            await until(lambda: not running.board.pairs)
            assert (running.board.events.to_hosts, running.board.events.to_callers) == (3, 5)
            host.close()

    caplog.set_level("INFO", "crowdgrad.relay")
    run(main())
    (line,) = [line for line in caplog.messages if line.startswith("pair over ")]
    assert f"host={HOST.id} caller={CALLER.id} to_host=3 to_caller=5 seconds=" in line


# -- turns, with a clock of our own -----------------------------------------------------------


class Clock:
    """As much of a loop as turns need."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, act: Callable[..., None], *args: object) -> Clock:
        self._due.append((self.now + delay_s, act, args))
        return self

    def cancel(self) -> None:
        return

    def pass_until(self, end: float) -> None:
        while self._due and min(self._due, key=lambda due: due[0])[0] <= end:
            due = min(self._due, key=lambda due: due[0])
            self._due.remove(due)
            self.now = max(self.now, due[0])
            due[1](*due[2])
        self.now = end


def test_those_who_share_a_limit_get_the_same_and_together_no_more_than_it() -> None:
    clock, passed = Clock(), [0] * 10
    meter, everybody = Meter(1e6, 0, 0.0), Meter(0.0, 0, 0.0)
    turns = Turns(clock, clock.time)  # type: ignore[arg-type]

    def wants(who: int) -> None:
        """Somebody greedy: whatever there is, it takes, and asks again."""
        room = turns.room((meter, everybody), lambda: wants(who))
        assert room >= 0
        if room:
            count = min(room, 64 << 10)
            for each in (meter, everybody):
                each.passed(count, clock.now)
            passed[who] += count
            clock.call_later(0.0, wants, who)

    for who in range(10):
        wants(who)
    clock.pass_until(20.0)
    total = sum(passed)
    assert 19e6 <= total <= 20.5e6 + 1
    assert max(passed) <= 1.2 * min(passed), passed
    assert everybody.bytes == meter.bytes == total
    assert len(turns) <= 10


def test_who_has_nothing_left_today_does_not_wait() -> None:
    clock = Clock()
    turns = Turns(clock, clock.time)  # type: ignore[arg-type]
    meter = Meter(1e6, 10, 0.0)
    meter.passed(10, 0.0)
    assert turns.room((meter,), lambda: None) == -1
    assert len(turns) == 0


def test_measuring_is_metered_too() -> None:
    async def main() -> None:
        async with relay(measure_bytes=50_000) as running:
            dialler = await Dialler.dial(running)
            dialler.say(words.measure(CALLER, dialler.nonce, at=AT, count=10_000_000))
            granted = await dialler.hear(words.Measuring)
            assert granted.bytes == 50_000
            other = await Dialler.dial(running)
            other.say(words.measure(HOST, other.nonce, at=AT, count=1))
            await other.refused("busy")
            await dialler.reader.readexactly(50_000)
            dialler.write(bytes(50_000))
            assert await dialler.hear(words.Measured)
            assert await dialler.reader.read() == b""
            board = running.board
            assert board.meters.hold(CALLER.id, board.now()).bytes == 100_000
            assert board.book.measures.all == 0
            dialler.close()

    run(main())
