"""The first words: who can talk to whom, and what a silent or strange peer gets."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.errors import ConnectionLost, Impostor, MessageError, TurnedAway, VersionMismatch
from crowdgrad.net.handshake import HANDSHAKE_S, answer, compatible, greet, hear, say_problem
from crowdgrad.net.identity import guest, verify
from crowdgrad.net.messages import PROTOCOL, Hello, Leave, Problem, Welcome
from crowdgrad.net.transport.inproc import pair
from tests.virtual_time import run_virtual

OURS, THEIRS = b"o" * 32, b"t" * 32


@pytest.mark.parametrize(
    ("ours", "theirs", "fits", "older"),
    [
        ((1, 0), (1, 0), True, ""),
        ((1, 4), (1, 5), True, ""),
        ((1, 5), (1, 4), True, ""),
        ((1, 4), (1, 6), False, "1.4"),
        ((1, 6), (1, 4), False, "1.4"),
        ((1, 9), (2, 0), False, "1.9"),
        ((2, 0), (1, 9), False, "1.9"),
        ((1, 10), (1, 9), True, ""),
    ],
)
def test_who_can_talk_to_whom_and_who_must_update(
    ours: tuple[int, int], theirs: tuple[int, int], fits: bool, older: str
) -> None:
    can, why = compatible(ours, theirs)
    assert can is fits
    if fits:
        assert why == ""
    else:
        assert f"protocol {older} is too old" in why
        assert all(f"{major}.{minor}" in why for major, minor in (ours, theirs))


def test_two_of_a_kind_greet_each_other() -> None:
    async def main() -> None:
        near, far = pair()
        welcome, hello = await asyncio.gather(
            greet(near, "software 1", OURS), answer(far, "software 2", THEIRS, name="the lab")
        )
        assert hello == Hello(protocol=PROTOCOL, software="software 1", challenge=OURS)
        said = Welcome(protocol=PROTOCOL, software="software 2", challenge=THEIRS, name="the lab")
        assert welcome == (said, "")

    run_virtual(main())


def test_a_host_proves_its_key() -> None:
    key = guest()

    async def main() -> None:
        near, far = pair()
        (_, proven), _ = await asyncio.gather(
            greet(near, "x", OURS), answer(far, "y", THEIRS, key=key)
        )
        assert proven == key.id

    run_virtual(main())


def test_a_peer_of_the_last_protocol_that_proves_nothing_still_works() -> None:
    """It sends no challenge and passes over what it does not know; so do we."""
    old = (PROTOCOL[0], PROTOCOL[1] - 1)

    async def main() -> None:
        near, far = pair()
        await near.send(Hello(protocol=old, software="old"))
        await answer(far, "y", THEIRS, key=guest())
        said, _ = await near.receive()
        assert isinstance(said, Welcome)
        assert (said.key, said.signature) == (b"", b"")
        near, far = pair()
        await far.send(Welcome(protocol=old, software="old", challenge=THEIRS))
        assert (await greet(near, "x", OURS))[1] == ""

    run_virtual(main())


def test_a_key_somebody_else_has_proves_nothing() -> None:
    """Signatures of an earlier handshake, of a join and of another key are all refused."""
    key, thief = guest(), guest()
    lies = (
        key.sign_as_host(b"e" * 32, THEIRS),
        key.sign_as_host(OURS, b"e" * 32),
        key.sign_as_host(THEIRS, OURS),
        key.sign(OURS + THEIRS),
        key.sign_as_host(OURS, THEIRS, binding=key.public),
        thief.sign_as_host(OURS, THEIRS),
    )

    async def main() -> None:
        for lie in lies:
            near, far = pair()
            said = Welcome(
                protocol=PROTOCOL, software="x", challenge=THEIRS, key=key.public, signature=lie
            )
            await far.send(said)
            with pytest.raises(Impostor, match="a key that it does not have"):
                await greet(near, "x", OURS)

    run_virtual(main())


def test_a_hosts_signature_lets_nobody_join() -> None:
    key = guest()
    with pytest.raises(TurnedAway, match="not signed"):
        verify(key.public, OURS + THEIRS, key.sign_as_host(OURS, THEIRS))


def test_both_halves_refuse_a_version_that_does_not_fit() -> None:
    newer = (PROTOCOL[0], PROTOCOL[1] + 2)

    async def main() -> None:
        near, far = pair()
        await near.send(Hello(protocol=newer, software="x"))
        with pytest.raises(VersionMismatch, match="too old") as refused:
            await answer(far, "y", b"")
        assert "Update crowdgrad on the older side" in refused.value.advice
        near, far = pair()
        await far.send(Welcome(protocol=newer, software="x", challenge=b""))
        with pytest.raises(VersionMismatch, match="too old"):
            await greet(near, "y", OURS)

    run_virtual(main())


def test_a_silent_peer_is_given_up_in_time_and_the_connection_with_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for half in ("dialler", "listener"):
            near, _far = pair()
            start = loop.time()
            with pytest.raises(ConnectionLost, match="said nothing for 10 s"):
                await (greet(near, "x", OURS) if half == "dialler" else answer(near, "x", b""))
            assert loop.time() - start == pytest.approx(HANDSHAKE_S)
            with pytest.raises(ConnectionLost):
                await near.send(Leave(reason="note"))

    run_virtual(main())


def test_a_problem_instead_of_a_welcome_is_passed_on() -> None:
    async def main() -> None:
        near, far = pair()
        await say_problem(far, TurnedAway("The job is full.", advice="Try another."))
        with pytest.raises(TurnedAway, match=r"The other side says: The job is full\.") as refused:
            await greet(near, "x", OURS)
        assert refused.value.advice == "Try another."
        await far.send(Leave(reason="note"))
        with pytest.raises(MessageError, match="Expected Welcome, got Leave"):
            await greet(near, "x", OURS)

    run_virtual(main())


def test_a_problem_for_somebody_who_has_gone_is_nobodys_problem() -> None:
    async def main() -> None:
        near, far = pair()
        near.close()
        await near.wait_closed()
        await far.wait_closed()
        await say_problem(far, TurnedAway("Too late."))
        with pytest.raises(ConnectionLost, match="other side"):  # still what ended it
            await far.receive()

    run_virtual(main())


def test_hear_gives_what_comes_in_time() -> None:
    async def main() -> None:
        near, far = pair(there=lambda message: (9.0,))
        await near.send(Problem(code="CG506", message="x"))
        assert await hear(far) == Problem(code="CG506", message="x")

    run_virtual(main())
