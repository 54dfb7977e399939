"""PCP, byte by byte and with a router that loses, refuses and lies."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import Grant
from crowdgrad.net.routers.pcp import MOST_BYTES, NONCE_BYTES, Mapped, Pcp, ask_port, read_port
from tests.net.routers.gateways import HASTY, SHORT, Gateway

NONCE = bytes(range(NONCE_BYTES))
LOCAL = "ffff c0a84d02"
ANSWER = bytes.fromhex(
    f"0281 0000 00000e10 00000005 {'00' * 12} {NONCE.hex()} 06000000 21fd 2200 "
    f"{'00' * 10} ffff cb007107"
)


def way_to(gateway: Gateway, nonce: bytes = NONCE) -> Pcp:
    return Pcp("127.0.0.1", "127.0.0.1", 8701, nonce=nonce, server_port=gateway.port, waits_s=SHORT)


def test_the_question_is_that_of_the_standard() -> None:
    said = ask_port(
        "192.168.77.2", 8701, external=8704, address="203.0.113.7", lifetime_s=3600, nonce=NONCE
    )
    assert said == bytes.fromhex(
        f"0201 0000 00000e10 {'00' * 10} {LOCAL} {NONCE.hex()} 06000000 21fd 2200 "
        f"{'00' * 10} ffff cb007107"
    )


def test_the_answer_is_that_of_the_standard() -> None:
    assert len(ANSWER) == 60
    expected = Mapped(address="203.0.113.7", external=8704, lifetime_s=3600)
    assert read_port(ANSWER, port=8701, nonce=NONCE) == expected
    assert read_port(ANSWER + b"\0" * 40, port=8701, nonce=NONCE) == expected  # with options
    assert read_port(ANSWER, port=8702, nonce=NONCE) is None
    assert read_port(ANSWER, port=8701, nonce=bytes(NONCE_BYTES)) is None
    udp = ANSWER[:36] + b"\x11" + ANSWER[37:]
    assert read_port(udp, port=8701, nonce=NONCE) is None
    assert read_port(ANSWER + bytes(MOST_BYTES), port=8701, nonce=NONCE) is None


def test_an_answer_of_ipv6_is_one() -> None:
    six = ANSWER[:44] + bytes.fromhex("20010db8") + bytes(11) + b"\x07"
    found = read_port(six, port=8701, nonce=NONCE)
    assert found is not None
    assert found.address == "2001:db8::7"


@pytest.mark.parametrize(
    ("result", "words"),
    [(2, "switched off"), (8, "no port left"), (10, "our share"), (12, "another router"),
     (77, "result 77")],
)  # fmt: skip
def test_a_refusal_has_its_reason_and_our_nonce(result: int, words: str) -> None:
    refusal = ANSWER[:3] + bytes([result]) + ANSWER[4:]
    with pytest.raises(RouterError, match=words):
        read_port(refusal, port=8701, nonce=NONCE)
    assert read_port(refusal, port=8701, nonce=bytes(NONCE_BYTES)) is None


@pytest.mark.parametrize("answer", ["0081 0001 00000005", "0180 0001", "0381 0001" + "00" * 56])
def test_a_router_of_another_version_says_so(answer: str) -> None:
    with pytest.raises(RouterError, match="does not speak PCP"):
        read_port(bytes.fromhex(answer), port=8701, nonce=NONCE)


@given(st.binary(max_size=1200))
def test_any_datagram_is_an_answer_a_refusal_or_nothing(data: bytes) -> None:
    with contextlib.suppress(RouterError):
        assert read_port(data, port=8701, nonce=NONCE) is None


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 255)), max_size=4))
def test_an_altered_answer_is_an_answer_a_refusal_or_nothing(
    changes: list[tuple[int, int]],
) -> None:
    data = bytearray(ANSWER)
    for place, value in changes:
        data[place] = value
    named = data[:2] + data[24:37] + data[40:42]  # version, nonce, transport, our port
    with contextlib.suppress(RouterError):
        found = read_port(bytes(data), port=8701, nonce=NONCE)
        assert (found is None) == (named != ANSWER[:2] + ANSWER[24:37] + ANSWER[40:42])


@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, (1 << 32) - 1),
       st.ip_addresses(v=4), st.binary(min_size=12, max_size=12))  # fmt: skip
def test_an_answer_is_read_as_it_was_meant(
    port: int, external: int, lifetime_s: int, address: object, nonce: bytes
) -> None:
    question = ask_port(
        "192.168.77.2", port, external=external, address=str(address), lifetime_s=lifetime_s,
        nonce=nonce,
    )  # fmt: skip
    answer = b"\x02\x81\0\0" + question[4:8] + bytes(16) + question[24:]
    found = read_port(answer, port=port, nonce=nonce)
    assert found == Mapped(address=str(address), external=external, lifetime_s=lifetime_s)


def test_a_port_is_opened_kept_and_given_back_though_questions_are_lost() -> None:
    async def main() -> None:
        async with Gateway(lose=2) as gateway:
            way = way_to(gateway)
            grant = await way.open(8701, 3600)
            assert grant == Grant(address="203.0.113.7", port=8701, lifetime_s=3600)
            assert gateway.heard == [gateway.heard[0]] * 3
            assert await way.open(grant.port, 3600) == grant
            assert gateway.heard[-1][44:] == ANSWER[44:]  # it asks for what it had
            await way.close(grant)
            assert gateway.open == {}
            assert gateway.heard[-1][4:8] == bytes(4)

    asyncio.run(main())


@pytest.mark.parametrize(("result", "words"), [(2, "switched off"), (8, "no port left")])
def test_a_router_that_refuses(result: int, words: str) -> None:
    async def main() -> None:
        async with Gateway(result=result) as gateway:
            with pytest.raises(RouterError, match=words):
                await way_to(gateway).open(8701, 3600)

    asyncio.run(main())


def test_answers_with_another_nonce_and_noise_change_nothing() -> None:
    lie = ANSWER[:24] + bytes(NONCE_BYTES) + ANSWER[36:]

    async def main() -> None:
        async with Gateway(before=(b"", b"\x02\x81", lie, bytes(1500))) as gateway:
            assert (await way_to(gateway).open(8701, 3600)).port == 8701

    asyncio.run(main())


def test_a_router_that_knows_only_nat_pmp_and_one_that_says_nothing() -> None:
    async def main() -> None:
        async with Gateway(pcp=False) as gateway:
            with pytest.raises(RouterError, match="does not speak PCP"):
                await way_to(gateway).open(8701, 3600)
        async with Gateway(silent=True) as gateway:
            way = Pcp("127.0.0.1", "127.0.0.1", 8701, nonce=NONCE, server_port=gateway.port,
                      waits_s=HASTY)  # fmt: skip
            with pytest.raises(RouterError, match="does not answer"):
                await way.open(8701, 3600)

    asyncio.run(main())
