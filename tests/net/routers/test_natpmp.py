"""NAT-PMP, byte by byte and with a router that loses, refuses and lies."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import Grant
from crowdgrad.net.routers.natpmp import Mapped, NatPmp, ask_port, read_address, read_port
from tests.net.routers.gateways import HASTY, SHORT, Gateway

PORTS = st.integers(0, (1 << 16) - 1)
LIFETIMES = st.integers(0, (1 << 32) - 1)


def test_the_questions_are_those_of_the_standard() -> None:
    assert ask_port(8701, 8701, 3600) == bytes.fromhex("0002 0000 21fd 21fd 00000e10")


def test_the_answers_are_those_of_the_standard() -> None:
    assert read_address(bytes.fromhex("0080 0000 00000005 cb007107")) == "203.0.113.7"
    answer = bytes.fromhex("0082 0000 00000005 21fd 2200 00000e10")
    assert read_port(answer, 8701) == Mapped(external=8704, lifetime_s=3600)
    assert read_port(answer, 8702) is None  # somebody else's


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("0082 0001", "another version"),
        ("0082 0002 00000005", "switched off"),
        ("0082 0003 00000005 21fd 0000 00000000", "not connected"),
        ("0082 0004", "no port left"),
        ("0082 0005", "does not know the request"),
        ("0082 0063", "result 99"),
    ],
)
def test_a_refusal_has_its_reason(answer: str, words: str) -> None:
    with pytest.raises(RouterError, match=words):
        read_port(bytes.fromhex(answer), 8701)


@pytest.mark.parametrize(
    "noise",
    ["", "00", "0082 0000", "0182 0000 00000005 21fd 2200 00000e10", "0002 0002 21fd 21fd 00000e10",
     "0080 0000 00000005 cb007107", "0082 0000 00000005 21fd 2200 00000e10 00", "0080 0002"],
)  # fmt: skip
def test_what_is_no_answer_is_passed_over(noise: str) -> None:
    assert read_port(bytes.fromhex(noise), 8701) is None


@given(st.binary(max_size=40), PORTS)
def test_any_datagram_is_an_answer_a_refusal_or_nothing(data: bytes, port: int) -> None:
    for read in (read_address, lambda data: read_port(data, port)):
        with contextlib.suppress(RouterError):
            found = read(data)
            assert found is None or isinstance(found, str | Mapped)


@given(PORTS, PORTS, LIFETIMES)
def test_an_answer_is_read_as_it_was_meant(port: int, external: int, lifetime_s: int) -> None:
    question = ask_port(port, external, lifetime_s)
    answer = bytes.fromhex("0082 0000 12345678") + question[4:]
    assert read_port(answer, port) == Mapped(external=external, lifetime_s=lifetime_s)


def test_a_port_is_opened_kept_and_given_back_though_questions_are_lost() -> None:
    async def main() -> None:
        async with Gateway(lose=2) as gateway:
            way = NatPmp("127.0.0.1", 8701, server_port=gateway.port, waits_s=SHORT)
            grant = await way.open(8701, 3600)
            assert grant == Grant(address="203.0.113.7", port=8701, lifetime_s=3600)
            assert gateway.heard[0] == gateway.heard[1] == gateway.heard[2]
            gateway.address = "203.0.113.8"
            assert (await way.open(grant.port, 3600)).address == "203.0.113.8"
            await way.close(grant)
            assert gateway.open == {}

    asyncio.run(main())


def test_the_port_outside_is_the_one_the_router_says() -> None:
    async def main() -> None:
        async with Gateway(lifetime_s=120) as gateway:
            gateway.taken = {8701, 8702}
            way = NatPmp("127.0.0.1", 8701, server_port=gateway.port, waits_s=SHORT)
            grant = await way.open(8701, 3600)
            assert (grant.port, grant.lifetime_s) == (8703, 120)

    asyncio.run(main())


@pytest.mark.parametrize(("result", "words"), [(2, "switched off"), (4, "no port left")])
def test_a_router_that_refuses(result: int, words: str) -> None:
    async def main() -> None:
        async with Gateway(result=result) as gateway:
            way = NatPmp("127.0.0.1", 8701, server_port=gateway.port, waits_s=SHORT)
            with pytest.raises(RouterError, match=words):
                await way.open(8701, 3600)

    asyncio.run(main())


def test_noise_before_the_answer_changes_nothing() -> None:
    noise = (b"", b"\0", b"\0\x82\0\0", b"HTTP/1.1 200 OK", bytes(1500))

    async def main() -> None:
        async with Gateway(before=noise) as gateway:
            way = NatPmp("127.0.0.1", 8701, server_port=gateway.port, waits_s=SHORT)
            assert (await way.open(8701, 3600)).port == 8701

    asyncio.run(main())


def test_a_router_that_says_nothing_and_one_that_is_none() -> None:
    async def main() -> None:
        async with Gateway(silent=True) as gateway:
            port = gateway.port
            way = NatPmp("127.0.0.1", 8701, server_port=port, waits_s=HASTY)
            with pytest.raises(RouterError, match="does not answer"):
                await way.open(8701, 3600)
            assert len(gateway.heard) == len(HASTY)
        way = NatPmp("127.0.0.1", 8701, server_port=port, waits_s=SHORT)
        with pytest.raises(RouterError, match="nobody listens"):
            await way.open(8701, 3600)

    asyncio.run(main())


def test_an_answer_from_elsewhere_is_not_heard() -> None:
    """Whoever guesses our port and answers in the router's place has not the router's address."""

    class Elsewhere(Gateway):
        telling: asyncio.Task[None]

        async def __aenter__(self) -> Elsewhere:
            await super().__aenter__()
            return self

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            self.heard.append(data)
            loop = asyncio.get_running_loop()
            self.telling = loop.create_task(self.tell(self._nat_pmp(data), addr))

        async def tell(self, answer: bytes, addr: tuple[str, int]) -> None:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
            )
            transport.sendto(answer, addr)
            transport.close()

    async def main() -> None:
        async with Elsewhere() as gateway:
            way = NatPmp("127.0.0.1", 8701, server_port=gateway.port, waits_s=(0.1, 0.1))
            with pytest.raises(RouterError, match="does not answer"):
                await way.open(8701, 3600)
            await gateway.telling

    asyncio.run(main())
