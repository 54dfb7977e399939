"""Dialling back: what is told of what is there, how many at a time, how long, and who is first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from crowdgrad.errors import ConnectionLost, FrameError, Impostor, PeerError, Unreachable
from crowdgrad.matchmaker.dialling import DIAL_S, GIVE_UP_S, NAME_S, WAIT_S, Dial, Dialling
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import rooms
from crowdgrad.net.identity import guest
from tests.virtual_time import run_virtual

ME = guest("somebody").public
HERE = "203.0.113.7"


async def nobody_knows(name: str) -> tuple[str, ...]:
    return ()


class Dialled:
    """A dial that remembers, and ends as it is told."""

    def __init__(self, error: BaseException | None = None, *, takes_s: float = 0.0) -> None:
        self.error = error
        self.takes_s = takes_s
        self.calls: list[tuple[str, int, bytes]] = []
        self.under_way = self.most = 0

    async def __call__(self, host: str, port: int, public: bytes) -> None:
        self.calls.append((host, port, public))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.under_way -= 1
        if self.error is not None:
            raise self.error


def dialling(
    dial: Dial,
    resolve: Callable[[str], Awaitable[Sequence[str]]] = nobody_knows,
    **options: object,
) -> Dialling:
    clock = asyncio.get_running_loop().time
    return Dialling(dial=dial, resolve=resolve, clock=clock, **options)  # type: ignore[arg-type]


def asked_once(dial: Dial, *addresses: str, observed: str = HERE) -> tuple[rooms.Tried, ...]:
    async def scenario() -> tuple[rooms.Tried, ...]:
        return await dialling(dial).reach(ME, observed, addresses, hosts=False)

    return run_virtual(scenario())


def refused_connection() -> Unreachable:
    """As an edge raises it, with or without what it came of."""
    try:
        try:
            raise ConnectionRefusedError
        except OSError:
            raise Unreachable("Nobody answers.") from None
    except Unreachable as error:
        return error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (None, ""),
        (Unreachable("no"), "nobody answers"),
        (TimeoutError(), "nobody answers"),
        (OSError("no route to host"), "nobody answers"),
        (ConnectionRefusedError(), "the connection is refused"),
        (refused_connection(), "the connection is refused"),
        (Impostor("secret words"), "somebody else answers (another key)"),
        (PeerError("secret words"), "what answers there does not speak TLS as nodes do"),
        (FrameError("secret words"), "what answers there does not speak TLS as nodes do"),
        (ConnectionLost("secret words"), "what answers there does not speak TLS as nodes do"),
    ],
    ids=["reached", "silent", "late", "no way", "refused", "refused by an edge", "another",
         "no node", "no frames", "hung up"],
)  # fmt: skip
def test_no_more_is_told_than_has_to_be(error: BaseException | None, why: str) -> None:
    dial = Dialled(error, takes_s=0.5)
    (tried,) = asked_once(dial, "*:8701")
    assert tried == rooms.Tried(address="*:8701", reached=error is None, why=why, ms=500.0)
    assert dial.calls == [(HERE, 8701, ME)]


def test_what_is_not_the_callers_is_not_dialled_and_the_rest_is() -> None:
    dial = Dialled()
    tried = asked_once(dial, "192.0.2.9:8701", "*:22", f"{HERE}:443", "nonsense")
    assert [one.reached for one in tried] == [False, False, True, False]
    assert dial.calls == [(HERE, 443, ME)]
    for one in (tried[0], tried[1], tried[3]):
        assert one.why.startswith("not dialled: ")
        assert one.ms == 0.0


def test_of_a_caller_whose_address_is_not_known_nothing_is_dialled() -> None:
    dial = Dialled()
    (tried,) = asked_once(dial, "*:8701", observed="")
    assert not tried.reached
    assert not dial.calls


def test_a_name_is_dialled_at_the_callers_address_and_never_elsewhere() -> None:
    async def scenario() -> None:
        asked: list[str] = []

        async def resolve(name: str) -> tuple[str, ...]:
            asked.append(name)
            return {"home.example.org": ("2001:db8::1", HERE)}.get(name, ("127.0.0.1",))

        dial = Dialled()
        places = ("home.example.org:8701", "localhost:8701", "db:5432", "home.example.org:22")
        tried = await dialling(dial, resolve).reach(ME, HERE, places, hosts=False)
        assert [one.reached for one in tried] == [True, False, False, False]
        assert dial.calls == [(HERE, 8701, ME)]
        assert sorted(asked) == ["db", "home.example.org", "localhost"]
        assert tried[1].why == tried[2].why, "what there is inside is not told"

    run_virtual(scenario())


def test_who_names_nothing_waits_for_nothing() -> None:
    dial = Dialled()
    assert asked_once(dial) == ()


def test_every_dial_ends_and_so_does_every_lookup() -> None:
    async def scenario() -> None:
        async def never(name: str) -> tuple[str, ...]:
            await asyncio.sleep(1e6)
            return (HERE,)

        began = asyncio.get_running_loop().time()
        look = dialling(Dialled(takes_s=1e6), never)
        tried = await look.reach(ME, HERE, ("*:8701", "home.example.org:8701"), hosts=False)
        assert [one.reached for one in tried] == [False, False]
        assert tried[0].why == "nobody answers"
        took_s = asyncio.get_running_loop().time() - began
        assert took_s <= max(GIVE_UP_S, NAME_S) + 0.1, "of the virtual clock"

    run_virtual(scenario())


def test_few_are_dialled_at_a_time_and_hosts_go_first() -> None:
    async def scenario() -> None:
        order: list[str] = []
        dial = Dialled(takes_s=1.0)
        look = dialling(dial, at_once=1, most_waiting=2)

        async def ask(name: str, hosts: bool) -> None:
            await look.reach(ME, HERE, ("*:8701", "*:8702"), hosts=hosts)
            order.append(name)

        tasks = []
        for name, hosts in (("a", False), ("b", False), ("c", False), ("host", True)):
            tasks.append(asyncio.create_task(ask(name, hosts)))
            await asyncio.sleep(0)
        assert look.figures() == {"dialling": 1, "dials_waiting": 3}
        with pytest.raises(Refusal) as refused:
            await ask("one too many", False)
        assert refused.value.status == 429
        assert refused.value.retry_after_s > 0
        await asyncio.gather(*tasks)
        assert order == ["a", "host", "b", "c"]
        assert dial.most == 2, "all addresses of one at once"
        assert look.figures() == {"dialling": 0, "dials_waiting": 0}

    run_virtual(scenario())


def test_who_waits_too_long_is_asked_to_come_again_and_who_goes_makes_room() -> None:
    async def scenario() -> None:
        look = dialling(Dialled(takes_s=DIAL_S - 0.5), at_once=1, most_waiting=3)

        async def ask() -> bool:
            tried = await look.reach(ME, HERE, ("*:8701",), hosts=False)
            return tried[0].reached

        tasks = [asyncio.create_task(ask()) for _ in range(4)]
        await asyncio.sleep(1.0)
        tasks[1].cancel()  # it has hung up
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert ended[0] is True
        assert isinstance(ended[1], asyncio.CancelledError)
        assert ended[2] is True, "it was its turn in time"
        assert isinstance(ended[3], Refusal)
        assert WAIT_S < 2 * (DIAL_S - 0.5)
        assert look.figures() == {"dialling": 0, "dials_waiting": 0}
        assert await ask()

    run_virtual(scenario())


def test_what_became_of_it_is_counted() -> None:
    async def scenario() -> None:
        told: list[tuple[str, object]] = []

        def tell(event: str, **fields: object) -> None:
            told.append((event, fields["result"]))

        look = dialling(Dialled(Impostor("x")), tell=tell)
        await look.reach(ME, HERE, ("*:8701", "*:1"), hosts=False)
        assert sorted(told, key=str) == [("dialled", "another"), ("dialled", "not_dialled")]

    run_virtual(scenario())
