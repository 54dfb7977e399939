"""A host at a relay: kept there, whatever happens, and with a reason when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from crowdgrad.domain.routes import route_of
from crowdgrad.errors import (
    ConnectionLost,
    MessageError,
    PeerError,
    Replaced,
    TurnedAway,
    Unreachable,
)
from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Leave, Message, RelayKnock, problem
from crowdgrad.net.relay_words import pack
from crowdgrad.net.relayed import CAP_S, MOST_ANSWERING, REPLACED_S, AtRelay
from crowdgrad.net.transport import inproc
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.layers import Layer
from tests.virtual_time import run_virtual

KEY = guest("host")
ROUTE = route_of("relay:relay.example.org:8702")
GRANTED = words.Registered(heartbeat_s=5.0, silence_s=20.0)


class Relay:
    """Played by hand: what it says to whoever dials is the test's to choose."""

    def __init__(self) -> None:
        self.dialled: asyncio.Queue[Connection] = asyncio.Queue()
        self.down = False
        self.tickets: list[bytes] = []
        self.dials: list[float] = []
        self.answer: Callable[[], Awaitable[None]] | None = None
        self.at = AtRelay(
            ROUTE,
            KEY,
            open_control=self._control,
            open_answer=self._answer,
            random01=lambda: 0.999,
            on_change=lambda: self.changes.append(self.at.connected),
        )
        self.changes: list[bool] = []

    async def _control(self, layer: Layer) -> Connection:
        self.dials.append(asyncio.get_running_loop().time())
        if self.down:
            raise Unreachable("Nobody answers.")
        layer.begin()
        layer.feed(memoryview(pack(words.Challenge(nonce=b"n" * 32)) + pack(GRANTED)))
        assert layer.ready
        ours, theirs = inproc.pair()
        await self.dialled.put(theirs)
        return ours

    async def _answer(self, layer: Layer) -> None:
        layer.begin()
        reader = words.Reader(magic=True)
        reader.put(layer.take())
        reader.body()
        said = words.of_dialler(reader.body() or b"")
        assert isinstance(said, words.Answer)
        self.tickets.append(said.ticket)
        if self.answer is not None:
            await self.answer()


def played(script: Callable[[Relay], Awaitable[None]]) -> Relay:
    async def main() -> Relay:
        relay = Relay()
        keeping = asyncio.create_task(relay.at.run())
        try:
            await script(relay)
            assert not keeping.done()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        assert not relay.at.connected
        return relay

    return run_virtual(main())


async def settled(seconds: float = 0.01) -> None:
    await asyncio.sleep(seconds)


def test_every_knock_is_answered_with_its_ticket() -> None:
    async def script(relay: Relay) -> None:
        control = await relay.dialled.get()
        await settled()
        assert (relay.at.connected, relay.at.failure, relay.changes) == (True, None, [True])
        for number in range(3):
            await control.send(RelayKnock(ticket=bytes([number]) * 16))
        await settled()

    assert played(script).tickets == [bytes([number]) * 16 for number in range(3)]


def test_a_call_that_comes_to_nothing_disturbs_nobody() -> None:
    async def script(relay: Relay) -> None:
        async def refused() -> None:
            raise TurnedAway("The caller has gone.")

        control = await relay.dialled.get()
        relay.answer = refused
        await control.send(RelayKnock(ticket=b"1" * 16))
        await settled()
        relay.answer = None
        await control.send(RelayKnock(ticket=b"2" * 16))
        await settled()
        assert relay.at.connected
        assert relay.tickets == [b"1" * 16, b"2" * 16]

    played(script)


def test_a_relay_cannot_make_us_dial_without_end() -> None:
    async def script(relay: Relay) -> None:
        relay.answer = asyncio.Event().wait  # type: ignore[assignment]
        control = await relay.dialled.get()
        for number in range(MOST_ANSWERING + 10):
            await control.send(RelayKnock(ticket=number.to_bytes(16, "big")))
        await settled()
        assert len(relay.tickets) == MOST_ANSWERING

    played(script)


def test_it_comes_back_with_growing_pauses_and_says_why_it_is_not_there() -> None:
    async def script(relay: Relay) -> None:
        control = await relay.dialled.get()
        relay.down = True
        control.close()
        await settled(60.0)
        assert not relay.at.connected
        assert isinstance(relay.at.failure, Unreachable)
        pauses = [b - a for a, b in zip(relay.dials, relay.dials[1:], strict=False)]
        assert pauses == sorted(pauses)
        assert pauses[-1] <= CAP_S
        relay.down = False
        await relay.dialled.get()
        await settled()
        assert (relay.at.connected, relay.at.failure) == (True, None)
        assert relay.changes == [True, False, False, True], "lost, unreachable, back"

    played(script)


def test_a_host_that_has_moved_comes_anew_without_waiting_for_silence() -> None:
    async def script(relay: Relay) -> None:
        await relay.dialled.get()
        await settled()
        relay.at.come_anew()
        await relay.dialled.get()
        await settled()
        assert relay.changes == [True, False, True]
        assert relay.dials[1] - relay.dials[0] < 1.0, "on a clock that nothing else holds up"
        relay.down = True
        relay.at.come_anew()
        await settled(1.0)
        relay.at.come_anew()  # while there is nothing to leave

    played(script)


def test_a_relay_that_falls_silent_is_left() -> None:
    async def script(relay: Relay) -> None:
        silent = await relay.dialled.get()
        await settled(15.0)
        assert relay.at.connected, "it may still come"
        assert silent.heard_at > 0, "and we have beaten"
        await relay.dialled.get()
        assert False in relay.changes

    played(script)


@pytest.mark.parametrize(("said", "kind"), [
    (Leave(reason="x"), MessageError), (problem(TurnedAway("The relay stops.")), TurnedAway),
], ids=["Leave", "Problem"])  # fmt: skip
def test_what_a_relay_says_besides_ends_it(said: Message, kind: type[PeerError]) -> None:
    async def script(relay: Relay) -> None:
        relay.down = False
        control = await relay.dialled.get()
        await settled()
        relay.down = True
        failures = []
        relay.at._on_change = lambda: failures.append(relay.at.failure)
        await control.send(said)
        await settled()
        assert isinstance(failures[0], kind)

    played(script)


def test_two_with_one_key_do_not_throw_each_other_out_for_ever() -> None:
    async def script(relay: Relay) -> None:
        control = await relay.dialled.get()
        await control.send(problem(Replaced("Again.")))
        await settled()
        assert isinstance(relay.at.failure, Replaced)
        await relay.dialled.get()
        assert relay.dials[1] - relay.dials[0] >= REPLACED_S

    played(script)


def test_a_lost_connection_is_the_failure() -> None:
    async def script(relay: Relay) -> None:
        control = await relay.dialled.get()
        await settled()
        control.close()
        await settled()
        assert isinstance(relay.at.failure, ConnectionLost)

    played(script)
