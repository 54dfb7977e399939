"""Whoever may not is told why, it is written down, and nothing has changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdgrad.errors import Replaced
from crowdgrad.net import relay_words as words
from crowdgrad.net.addresses import Proxies
from crowdgrad.net.framing import pack
from crowdgrad.net.identity import digest_of, guest
from crowdgrad.net.messages import Heartbeat, Leave, Problem
from crowdgrad.planner.relaying import CALLS_AT_ONCE, Limits
from crowdgrad.relay.serve import relay_running
from crowdgrad.relay.switchboard import Rules
from tests.relay.world import (
    AT,
    CALLER,
    HOST,
    LOOPS,
    Dialler,
    Host,
    answer,
    call,
    changed,
    relay,
    run,
    spliced,
    tally,
    until,
)

OTHER = guest("other")
Ask = Callable[[bytes], words.Word]
ASKS: dict[str, tuple[Ask, str]] = {
    "a call signed by another": (
        lambda nonce: changed(words.call(CALLER, nonce, at=AT, host=HOST.id), key=OTHER.public),
        "bad-signature",
    ),
    "a host that signs by another": (
        lambda nonce: changed(words.serve(OTHER, nonce, at=AT), key=HOST.public),
        "bad-signature",
    ),
    "a signature for another challenge": (
        lambda nonce: words.serve(HOST, b"n" * 32, at=AT),
        "bad-signature",
    ),
    "a call turned into a place": (
        lambda nonce: words.Serve(
            key=HOST.public,
            signature=words.call(HOST, nonce, at=AT, host=HOST.id).signature,
            at=AT,
        ),
        "bad-signature",
    ),
    "a key that is none": (
        lambda nonce: changed(words.serve(HOST, nonce, at=AT), key=b"\xff" * 32),
        "bad-signature",
    ),
    "a host that is not here": (
        lambda nonce: words.call(CALLER, nonce, at=AT, host=OTHER.id),
        "unknown-host",
    ),
    "a job that is not here": (
        lambda nonce: words.call(CALLER, nonce, at=AT, host=HOST.id, job="another"),
        "unknown-host",
    ),
    "a pin that only begins alike": (
        lambda nonce: words.call(CALLER, nonce, at=AT, host=HOST.id + "0" * 48),
        "unknown-host",
    ),
    "a ticket that nobody issued": (lambda nonce: words.Answer(ticket=b"t" * 16), "unknown-ticket"),
    "a greeting too many": (lambda nonce: words.Hi(version=1), "bad-words"),
    "another version": (lambda nonce: words.Hi(version=9), "bad-words"),
}


@pytest.mark.parametrize("what", ASKS)
def test_it_is_refused_with_its_reason_and_nothing_changes(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    ask, reason = ASKS[what]

    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            before = tally(running)
            stranger = await Dialler.dial(running)
            stranger.say(ask(stranger.nonce))
            said = await stranger.refused(reason)
            assert said.message
            assert tally(running) == before
            assert running.board.events.refusals == {reason: 1}
            ours.write(b"undisturbed")
            assert await theirs.reader.readexactly(11) == b"undisturbed"
            for each in (theirs, ours, host):
                each.close()

    caplog.set_level(logging.INFO, "crowdgrad.relay")
    run(main())
    (line,) = [record for record in caplog.messages if record.startswith("refused ")]
    assert f"reason={reason}" in line


def test_a_signature_cannot_be_used_again() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            first = await Dialler.dial(running)
            asked = words.call(CALLER, first.nonce, at=AT, host=HOST.id)
            first.say(asked)
            await host.knock()
            again = await Dialler.dial(running)
            assert again.nonce != first.nonce
            again.say(asked)
            await again.refused("bad-signature")
            assert len(running.board.waiting) == 1
            first.close()
            host.close()

    run(main())


def test_a_ticket_is_good_once() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            caller = await call(running)
            ticket = await host.knock()
            theirs = await answer(running, ticket)
            await caller.hear(words.Spliced)
            before = tally(running)
            thief = await answer(running, ticket)
            await thief.refused("unknown-ticket")
            assert tally(running) == before
            for each in (theirs, caller, host):
                each.close()

    run(main())


def test_the_ticket_of_a_caller_that_gave_up_is_good_for_nothing() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            caller = await call(running)
            ticket = await host.knock()
            caller.close()
            await until(lambda: not running.board.waiting)
            late = await answer(running, ticket)
            await late.refused("unknown-ticket")
            assert running.board.book.pairs.all == 0
            host.close()

    run(main())


def test_a_caller_whose_host_does_not_answer_is_told_so() -> None:
    async def main() -> None:
        async with relay(answer_s=0.2) as running:
            host = await Host.serve(running)
            caller = await call(running)
            ticket = await host.knock()
            said = await caller.refused("not-answering")
            assert said.code == "CG510"
            late = await answer(running, ticket)
            await late.refused("unknown-ticket")
            assert tally(running)["counted"] == (1, 0, 0)
            host.close()

    run(main())


def test_who_goes_on_before_it_has_an_answer_is_refused() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            for late in (False, True):
                eager = await call(running, OTHER)
                if late:
                    await host.knock()
                eager.write(b"early")
                await eager.refused("bad-words")
            await until(lambda: not running.board.waiting)
            assert tally(running)["counted"] == (1, 0, 0)
            host.close()

    run(main())


def test_who_says_nothing_is_let_go() -> None:
    async def main() -> None:
        async with relay(preamble_s=1.0) as running:
            silent = await Dialler.dial(running, greet=False)
            slow = await Dialler.dial(running)
            await silent.refused("too-slow")
            await slow.refused("too-slow")
            await until(lambda: running.board.wires == 0)
            assert running.board.book.strangers.all == 0

    run(main())


def test_a_relay_with_a_name_is_nobody_elses() -> None:
    async def main() -> None:
        rules = Rules(names=("other.example.org", "relay.example.net:9"))
        async with relay_running(rules) as running:
            host = await Dialler.dial(running)
            host.say(words.serve(HOST, host.nonce, at=AT))
            said = await host.refused("elsewhere")
            assert "other.example.org" in said.message
            for at in ("OTHER.example.org:8702", "relay.example.net:9"):
                fine = await Dialler.dial(running)
                fine.say(words.serve(HOST, fine.nonce, at=at))
                await fine.hear(words.Registered)
                fine.close()

    run(main())


def test_only_hosts_that_are_named_may_serve() -> None:
    async def main() -> None:
        rules = Rules(allowed=(digest_of(HOST.public),))
        async with relay_running(rules) as running:
            stranger = await Dialler.dial(running)
            stranger.say(words.serve(OTHER, stranger.nonce, at=AT))
            await stranger.refused("not-allowed")
            host = await Host.serve(running)
            host.close()

    run(main())


@pytest.mark.parametrize(("limits", "reason"), [
    ({"pairs": 1}, "too-many-pairs"), ({"pairs_per_host": 1}, "host-full"),
    ({"pairs_per_caller": 1}, "too-many-calls"), ({"pairs_per_address": 1}, "too-many-calls"),
    ({"knocks_per_host": 1}, "not-answering"),
], ids=repr)  # fmt: skip
def test_when_it_is_full_the_next_is_refused_and_the_one_after_that_let_in(
    limits: dict[str, int], reason: str
) -> None:
    async def main() -> None:
        async with relay(**limits) as running:
            host = await Host.serve(running)
            first = await call(running)
            await host.knock()
            second = await call(running)
            await second.refused(reason)
            first.close()
            await until(lambda: not running.board.waiting)
            third = await call(running)
            await host.knock()
            third.close()
            host.close()

    run(main())


def test_hosts_of_one_address_are_bounded() -> None:
    async def main() -> None:
        async with relay(hosts_per_address=1) as running:
            host = await Host.serve(running)
            second = await Dialler.dial(running)
            second.say(words.serve(OTHER, second.nonce, at=AT))
            await second.refused("too-many-hosts")
            again = await Host.serve(running)
            assert list(running.board.hosts) == [HOST.id]
            host.close()
            again.close()

    run(main())


def test_connections_of_one_address_are_bounded() -> None:
    async def main() -> None:
        async with relay(strangers_per_address=2) as running:
            two = [await Dialler.dial(running) for _ in range(2)]
            third = await Dialler.dial(running, greet=False)
            assert await third.over() == b""
            two[0].close()
            await until(lambda: running.board.book.strangers.all == 1)
            fourth = await Dialler.dial(running)
            for each in (two[1], third, fourth):
                each.close()
            assert running.board.events.refusals == {"too-many-from-address": 1}

    run(main())


# -- hosts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_host_that_comes_again_takes_its_own_place(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            old = await Host.serve(running)
            new = await Host.serve(running)
            said = await old.message()
            assert isinstance(said, Problem)
            assert said.code == Replaced.code
            with pytest.raises(EOFError):
                await old.message()
            old.close()
            theirs, ours = await spliced(running, new)
            assert tally(running)["counted"] == (1, 1, 0)
            for each in (theirs, ours, new):
                each.close()

    run(main(), loop)


def test_who_waited_for_a_half_open_host_is_told_to_the_new_connection() -> None:
    async def main() -> None:
        async with relay() as running:
            dead = await Host.serve(running)
            caller = await call(running)
            await until(lambda: bool(running.board.waiting))
            new = await Host.serve(running)
            theirs = await answer(running, await new.knock())
            await caller.hear(words.Spliced)
            for each in (theirs, caller, dead, new):
                each.close()

    run(main())


def test_a_pair_outlives_its_hosts_place() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            host.close()
            await until(lambda: not running.board.hosts)
            ours.write(b"still here")
            assert await theirs.reader.readexactly(10) == b"still here"
            theirs.close()
            ours.close()

    run(main())


def test_one_key_may_host_several_jobs() -> None:
    async def main() -> None:
        async with relay() as running:
            one = await Host.serve(running, job="digits-1")
            two = await Host.serve(running, job="digits-2")
            caller = await call(running, job="digits-2")
            await two.knock()
            assert sorted(running.board.hosts) == [f"{HOST.id}/digits-1", f"{HOST.id}/digits-2"]
            for each in (one, two, caller):
                each.close()

    run(main())


def test_a_host_that_dials_a_relay_by_two_names_is_called_at_the_newest_that_is_there() -> None:
    async def main() -> None:
        async with relay() as running:
            one = await Host.serve(running)
            two = await Host.serve(running, at="relay.example.org:443")
            assert one.granted.relay == two.granted.relay != ""
            first = await call(running)
            await two.knock()
            two.close()
            await until(lambda: running.board.book.hosts.all == 1)
            second = await call(running)
            await one.knock()
            again = await Host.serve(running)
            assert isinstance(await one.message(), Problem), "under one name there is one"
            await again.knock()  # for whoever waits
            for each in (one, again, first, second):
                each.close()
            await until(lambda: not running.board.hosts)
            assert running.board.book.hosts.all == 0

    run(main())


def test_calls_that_hang_up_at_once_keep_nobody_else_from_the_host() -> None:
    """Each makes the host dial; what it dials then does not count against it."""

    async def main() -> None:
        async with relay(arrivals_per_s=0.001, calls_per_s=0.001) as running:  # five thousandths
            book = running.board.book
            assert book.calls(HOST.id, "ada", "192.0.2.1", running.board.now())
            refused = book.calls(HOST.id, "ada", "192.0.2.1", running.board.now())
            assert (refused.reason, bool(refused)) == ("too-often", False)
        async with relay(calls_per_s=0.001) as running:
            host = await Host.serve(running)
            for _ in range(CALLS_AT_ONCE):
                caller = await call(running)
                await host.knock()
                caller.close()
                await until(lambda: not running.board.waiting)
            await (await call(running)).refused("too-often")
            other = await call(running, OTHER)
            before = running.board.book._arrivals.of("127.0.0.1", running.board.now()).level
            level = before(running.board.now())
            answering = await answer(running, await host.knock())
            await answering.hear(words.Spliced)
            assert before(running.board.now()) >= level, "it came when it was called"
            for each in (host, other, answering):
                each.close()

    run(main())


def test_behind_a_proxy_only_those_by_websocket_are_somebody_elses() -> None:
    async def main() -> None:
        rules = Rules(limits=Limits(strangers_per_address=2), proxies=Proxies(["127.0.0.1"]))
        async with relay_running(rules) as running:
            first = [await Dialler.dial(running) for _ in range(2)]
            third = await Dialler.dial(running, greet=False)
            third.write(words.MAGIC)
            assert b"too many of one address" in await third.over()
            for each in (*first, third):
                each.close()

    run(main())


def test_a_relay_that_starts_again_is_another() -> None:
    async def main() -> None:
        said = set()
        for _ in range(2):
            async with relay() as running:
                host = await Host.serve(running)
                said.add(host.granted.relay)
                host.close()
        assert len(said) == 2

    run(main())


def test_both_beat_and_a_silent_host_has_gone() -> None:
    async def main() -> None:
        async with relay(heartbeat_s=0.1, silence_s=1.5) as running:
            host = await Host.serve(running)
            assert host.granted.heartbeat_s == 0.1
            hearing = asyncio.create_task(host.message())
            while host.beats < 5:
                host.write(pack(Heartbeat()))
                await asyncio.sleep(0.05)
            with pytest.raises(EOFError):
                await hearing
            assert not running.board.hosts
            assert running.board.book.hosts.all == 0
            host.close()

    run(main())


def test_a_host_has_nothing_else_to_say_to_a_relay() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            host.write(pack(Leave(reason="x")))
            said = await host.message()
            assert isinstance(said, Problem)
            await until(lambda: not running.board.hosts)
            host.close()

    run(main())


def test_a_host_that_does_not_read_is_not_knocked_at_for_ever() -> None:
    async def main() -> None:
        limits = {"knocks_per_host": 10**6, "pairs_per_caller": 10**6, "pairs_per_address": 10**6}
        async with relay(**limits, heartbeat_s=600.0, silence_s=1200.0) as running:
            host = await Host.serve(running)
            (served,) = running.board.hosts[HOST.id].values()
            served.wire.send(bytes(32 << 20))  # as if it had been told much
            assert served.wire.kept
            caller = await call(running)
            await caller.refused("not-answering")
            assert not running.board.waiting
            host.writer.transport.abort()

    run(main())


# -- strangers' bytes -------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.just(words.MAGIC),
            st.just(words.pack(words.Hi(version=1))),
            st.just(words.pack(words.serve(HOST, b"n" * 32, at=AT))),
            st.just(b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"),
            st.just(b"\r\n"),
        ),
        max_size=6,
    )
)
def test_whatever_strangers_send_the_relay_goes_on(pieces: list[bytes]) -> None:
    async def main() -> None:
        async with relay() as running:
            for at_once in (True, False):
                stranger = await Dialler.dial(running, greet=False)
                with contextlib.suppress(OSError, RuntimeError):  # it may have been refused by now
                    for piece in [b"".join(pieces)] if at_once else pieces:
                        stranger.write(piece)
                        await asyncio.sleep(0)
                    stranger.writer.write_eof()
                assert len(await stranger.over()) < 10_000
                stranger.close()
            host = await Host.serve(running)
            assert list(running.board.hosts) == [HOST.id]
            host.close()

    run(main())


def test_when_descriptors_run_out_it_accepts_again_as_soon_as_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with relay() as running:
            entrance = running._entrance
            real, failing = entrance._listening, [True]

            class Full:
                """A socket that has nothing left to accept with, the first time."""

                def fileno(self) -> int:
                    return real.fileno()

                def accept(self) -> tuple[socket.socket, object]:
                    if failing:
                        failing.pop()
                        raise OSError(24, "Too many open files")
                    return real.accept()

                def close(self) -> None:
                    real.close()

            monkeypatch.setattr(entrance, "_listening", Full())
            entrance._loop.remove_reader(real)
            entrance._listen()
            host = await Host.serve(running)
            assert running.board.events.refusals == {"out-of-descriptors": 1}
            host.close()

    run(main())


# -- behind a proxy ---------------------------------------------------------------------------


def upgrade(forwarded: str) -> bytes:
    return (
        "GET /relay HTTP/1.1\r\nHost: relay.example.org\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Sec-WebSocket-Protocol: crowdgrad.tls\r\nX-Forwarded-For: {forwarded}\r\n\r\n"
    ).encode()


def test_behind_a_proxy_it_counts_those_for_whom_that_speaks() -> None:
    async def main() -> None:
        limits = Limits(strangers_per_address=1)
        rules = Rules(limits=limits, proxies=Proxies(["127.0.0.1"]))
        async with relay_running(rules) as running:
            opened = []
            for number in (1, 2):
                web = await Dialler.dial(running, greet=False)
                web.write(upgrade(f"203.0.113.{number}"))
                assert (await web.reader.readline()).startswith(b"HTTP/1.1 101")
                opened.append(web)
            assert running.board.book.strangers["203.0.113.1"] == 1
            again = await Dialler.dial(running, greet=False)
            again.write(upgrade("203.0.113.1"))
            assert (await again.over()).startswith(b"HTTP/1.1 403")
            for web in (*opened, again):
                web.close()
            await until(lambda: running.board.wires == 0)
            assert running.board.book.strangers.all == 0

    run(main())
