"""Who gets through to a host, and who does not: every attack over real sockets.

Whoever is refused hears why where it can be told; the reason is in the log, nothing has changed,
and the next who comes properly is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import weakref
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest

from crowdgrad.domain.routes import at
from crowdgrad.errors import (
    ConnectionLost,
    FrameError,
    Impostor,
    PeerError,
    TurnedAway,
    VersionMismatch,
)
from crowdgrad.host.door import Door
from crowdgrad.net import handshake
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.framing import HEADER_BYTES, pack, unpack
from crowdgrad.net.identity import digest_of, guest, verify_host
from crowdgrad.net.introduction import SKEW_S, VALID_S, Introduction, write
from crowdgrad.net.messages import (
    PROTOCOL,
    Hello,
    Join,
    Leave,
    Message,
    Problem,
    Welcome,
    decode,
    expect,
)
from crowdgrad.net.transport import secure, stream, tcp, tls, websocket
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.layers import Layer, Stack, innermost
from tests.host import small
from tests.net.between import (
    ADA,
    BEN,
    HOST,
    LOOPS,
    MALLORY,
    PIN,
    Host,
    Raw,
    hosting,
    join,
    leave,
    mallory,
    run,
    still_serves,
    until,
)
from tests.net.certificates import certificate

CHALLENGE = b"c" * 32
HELLO = Hello(protocol=PROTOCOL, software="test", challenge=CHALLENGE)
on_both_loops = pytest.mark.parametrize("loop", LOOPS)


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


# -- a man in the middle --------------------------------------------------------------------------


@on_both_loops
def test_who_knows_the_key_says_nothing_to_somebody_in_between(loop: str) -> None:
    async def main() -> None:
        async with hosting() as host, mallory(host) as between:
            for pin in (PIN[:16], PIN[:32], PIN):
                with pytest.raises(Impostor, match=f"its key is {MALLORY.id}"):
                    await join(ADA, at(*between.where, pin))
                with pytest.raises(Impostor):
                    await secure.knock(*between.where, HOST.public)
            assert between.heard == []
            assert host.training.ledger.everyone() == []
            await still_serves(host)

    run(main(), loop)


@on_both_loops
def test_who_was_only_told_an_address_notices_by_the_proof(loop: str) -> None:
    """The proof that is passed on was made for another certificate."""

    async def main() -> None:
        async with hosting() as host, mallory(host) as between:
            before = host.state()
            with pytest.raises(Impostor, match="a key that it does not have"):
                await join(ADA, at(*between.where))
            assert [type(message) for message in between.heard] == [Hello], "and no Join"
            assert host.state() == before
            await still_serves(host)

    run(main(), loop)


def _without_proof(message: Message) -> Message:
    if isinstance(message, Welcome):
        return msgspec.structs.replace(message, key=b"", signature=b"")
    return message


def _with_its_own(message: Message) -> Message:
    if isinstance(message, Welcome):
        # Mallory knows the dialler's challenge: it is always the same in this test.
        own = MALLORY.sign_as_host(CHALLENGE, message.challenge, MALLORY.public)
        return msgspec.structs.replace(message, key=MALLORY.public, signature=own)
    return message


@pytest.mark.parametrize("alter", [_without_proof, _with_its_own])
def test_what_somebody_in_between_collects_is_worth_nothing_at_the_host(
    alter: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows nothing of the host may talk to somebody else, but not as itself to the host;
    and it is told whose key it was."""
    monkeypatch.setattr("crowdgrad.volunteer.conversation.secrets.token_bytes", lambda n: CHALLENGE)

    async def main() -> None:
        async with hosting() as host, mallory(host, alter) as between:  # type: ignore[arg-type]
            before = host.state()
            connection = await Dialler(key=ADA, always=True)(at(*between.where))
            _, proven = await handshake.greet(connection, "test", CHALLENGE)
            assert proven == MALLORY.id
            connection.close()
            with pytest.raises(TurnedAway, match="not signed with that key, for this connection"):
                await join(ADA, at(*between.where))
            assert isinstance(between.heard[-1], Join)
            assert host.state() == before
            await still_serves(host)

    run(main())
    assert "not signed with that key, for this connection" in caplog.text


def test_a_key_vouches_for_no_other_certificate() -> None:
    """Not even where its owner has signed for it."""
    signature = HOST.sign_as_host(CHALLENGE, CHALLENGE, MALLORY.public)
    with pytest.raises(Impostor):
        verify_host(HOST.public, CHALLENGE, CHALLENGE, signature, MALLORY.public)


def test_a_pin_holds_where_nothing_is_encrypted() -> None:
    """Also for the key that the first words prove."""

    async def main() -> None:
        async with hosting(always=False) as host:
            for pin, fits in ((PIN, True), (digest_of(MALLORY.public), False)):
                connection = await Dialler(key=ADA)(host.open_address)
                assert connection.binding == b""
                if fits:
                    assert (await handshake.greet(connection, "t", CHALLENGE, pin))[1] == HOST.id
                else:
                    with pytest.raises(Impostor, match=f"its key is {HOST.id}"):
                        await handshake.greet(connection, "t", CHALLENGE, pin)
                connection.close()

    run(main())


# -- words taken from elsewhere -------------------------------------------------------------------


async def greeted(host: Host, *, plain: bool = False) -> tuple[Connection, Welcome]:
    connection = await Dialler(key=MALLORY, always=not plain)(host.open_address)
    await connection.send(HELLO)
    return connection, expect(await handshake.hear(connection), Welcome)


@pytest.mark.parametrize("plain", [False, True], ids=["from tls", "from loopback"])
@on_both_loops
def test_a_join_that_was_signed_for_another_connection_is_refused(
    loop: str, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with hosting(always=False) as host:
            sent: list[Join] = []
            connection = await Dialler(key=ADA, always=not plain)(host.open_address)
            send = connection.send

            async def noted(message: Message, payload: bytes = b"") -> None:
                if isinstance(message, Join):
                    sent.append(message)
                await send(message, payload)

            connection.send = noted  # type: ignore[method-assign,assignment]

            async def dialled(where: object) -> Connection:
                return connection

            talk = await join(ADA, host.open_address, dialler=dialled)  # type: ignore[arg-type]
            (stolen,) = sent
            before = host.state()
            for also_plain in (False, True):
                thief, _ = await greeted(host, plain=also_plain)
                await thief.send(stolen)
                with pytest.raises(TurnedAway, match="not signed with that key"):
                    expect(await handshake.hear(thief), Join)
                await thief.wait_closed()
            assert host.state() == before, "also she who said it first is still here"
            await leave(host, talk)

    run(main(), loop)
    assert caplog.text.count("not signed with that key, for this connection") >= 2


def test_a_signature_for_the_certificate_of_another_host_is_refused() -> None:
    """A host that passes on the challenge of another, as its own."""

    async def main() -> None:
        async with hosting() as host:
            me = replace(small.volunteer("someone"), id=ADA.id)
            before = host.state()
            for binding in (MALLORY.public, b"", HOST.public[::-1]):
                thief, welcome = await greeted(host)
                signature = ADA.sign(welcome.challenge, binding)
                await thief.send(Join(volunteer=me, key=ADA.public, signature=signature))
                with pytest.raises(TurnedAway, match="not signed"):
                    expect(await handshake.hear(thief), Join)
                thief.close()
            assert host.state() == before

    run(main())


MATCHMAKER = guest("the matchmaker")
NOW = 1e9
GOOD = Introduction(job="small-1", host=HOST.id, volunteer=ADA.id, position=1, written_at=NOW)


@pytest.mark.parametrize(
    ("who", "by", "changes", "why"),
    [
        ("ben", MATCHMAKER, {}, "for somebody else"),
        ("ada", MATCHMAKER, {"job": "small-2"}, "for another job"),
        ("ada", MATCHMAKER, {"host": MALLORY.id}, "for another job"),
        ("ada", MATCHMAKER, {"volunteer": BEN.id}, "for somebody else"),
        ("ada", MATCHMAKER, {"written_at": NOW - VALID_S - SKEW_S - 1}, "out of date"),
        ("ada", MALLORY, {}, "not signed by our matchmaker"),
        ("ada", HOST, {}, "not signed by our matchmaker"),
        ("ada", None, {}, "you bring none"),
    ],
    ids=["stolen", "job", "host", "volunteer", "expired", "other matchmaker", "host's own", "none"],
)
def test_an_introduction_that_does_not_hold_is_refused(
    who: str, by: object, changes: dict[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        known: set[str] = set()
        door = Door(
            job=GOOD.job,  # type: ignore[arg-type]
            host=HOST.id,
            known=known,  # type: ignore[arg-type]
            matchmaker=lambda: MATCHMAKER.public,
            wall=lambda: NOW,
        )
        async with hosting(door) as host:
            before = host.state()
            words = "" if by is None else write(by, msgspec.structs.replace(GOOD, **changes))  # type: ignore[arg-type]
            for _ in range(2):
                with pytest.raises(TurnedAway, match=why):
                    await join({"ada": ADA, "ben": BEN}[who], host.where, introduction=words)
            assert host.state() == before
            talk = await join(ADA, host.where, introduction=write(MATCHMAKER, GOOD))
            await leave(host, talk)

    run(main())
    assert why in caplog.text


# -- older ways of talking ------------------------------------------------------------------------


def client(
    *, alpn: str = tls.ALPN, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


async def says_by_tls(host: Host, context: ssl.SSLContext, data: bytes) -> bytes:
    """What is answered to that, until it ends; nothing where it never comes to that."""
    try:
        reader, writer = await asyncio.open_connection(host.host, host.port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return b""
    raw = Raw(reader, writer)
    try:
        writer.write(data)
        return await raw.rest()
    except ssl.SSLError:
        return b""
    finally:
        writer.transport.abort()


def problem_in(answer: bytes) -> Problem:
    message = decode(unpack(answer[:HEADER_BYTES]).kind, answer[HEADER_BYTES:])
    assert isinstance(message, Problem)
    return message


@pytest.mark.parametrize(
    ("context", "logged"),
    [
        (client(newest=ssl.TLSVersion.TLSv1_2), "No encrypted connection came about (unsupported"),
        (client(alpn=""), "The other side speaks TLS, but not crowdgrad."),
        (client(alpn="h2"), "No encrypted connection came about"),
    ],
    ids=["tls 1.2", "no alpn", "another alpn"],
)
@on_both_loops
def test_another_tls_is_refused(
    loop: str, context: ssl.SSLContext, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with hosting() as host:
            before = host.state()
            if logged.startswith("No") and "unsupported" not in logged:
                # A server that knows none of what is offered may say so, or say nothing of it.
                await says_by_tls(host, context, pack(HELLO))
                await until(lambda: "has not come in" in caplog.text)
            else:
                assert await says_by_tls(host, context, pack(HELLO)) == b""
                await until(lambda: logged in caplog.text)
            assert host.state() == before
            await still_serves(host)

    run(main(), loop)


def older(frame: bytes) -> bytes:
    """As the last major version made it."""
    return frame[:4] + bytes([PROTOCOL[0] - 1]) + frame[5:]


@pytest.mark.parametrize(
    ("data", "logged"),
    [
        (older(pack(HELLO)), f"speaks protocol {PROTOCOL[0] - 1}.{PROTOCOL[1]}"),
        (pack(msgspec.structs.replace(HELLO, protocol=(2, 9))), "protocol 2.9 is too old"),
        (
            pack(msgspec.structs.replace(HELLO, protocol=(PROTOCOL[0] + 1, 0))),
            "too old for the one that speaks",
        ),
    ],
    ids=["frame", "hello", "newer"],
)
def test_another_protocol_inside_is_refused(
    data: bytes, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with hosting() as host:
            before = host.state()
            said = problem_in(await says_by_tls(host, client(), data))
            assert said.code == VersionMismatch.code
            assert "Update crowdgrad" in said.advice
            await until(lambda: logged in caplog.text)
            assert host.state() == before
            await still_serves(host)

    run(main())


@on_both_loops
def test_plain_frames_from_elsewhere_are_refused(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with hosting() as host:
            before = host.state()
            where = (host.host, host.port)
            for frame in (pack(HELLO), older(pack(HELLO)), b"cgrd"):
                raw = await Raw.dial(where, frame)
                said = problem_in(await raw.rest())
                assert said.code == TurnedAway.code
                assert "Only encrypted connections" in said.message
                await raw.close()
            inside = websocket.Dialling(f"ws://x{websocket.PATH}", websocket.FRAMES_INSIDE)
            with pytest.raises(PeerError, match="403"):
                await tcp.connect(*where, layer=inside)
            assert host.state() == before
            await still_serves(host)

    run(main(), loop)
    assert caplog.text.count("Only encrypted connections are taken") == 4


@pytest.mark.parametrize(
    ("data", "heard", "logged"),
    [
        (b"SSH-2.0-x\r\n", b"does not speak crowdgrad", "does not speak crowdgrad"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"426 Upgrade Required", "none of ours"),
        (b"GET /\r\n\r\n", b"", "no web request"),
        (b"\x16\x03\x01\x00\x05hello", b"\x15", "No encrypted connection came about"),
        (b"\x16\x03\x01\xff\xff", b"", "No encrypted connection came about"),
        (bytes(100), b"does not speak crowdgrad", "does not speak crowdgrad"),
    ],
    ids=["ssh", "a browser", "no request", "no hello", "a long record", "zeros"],
)
@on_both_loops
def test_strangers_hear_why_where_it_can_be_told(
    loop: str, data: bytes, heard: bytes, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with hosting() as host:
            raw = await Raw.dial((host.host, host.port), data)
            answer = await raw.rest()
            assert heard in answer
            assert answer.startswith((b"HTTP", b"cgrd", b"\x15") if heard else b"")
            assert b"HTTP" not in answer or b"cgrd" not in answer, "one language at a time"
            await raw.close()
            await until(lambda: logged in caplog.text)
            await still_serves(host)

    run(main(), loop)


def test_a_server_of_the_web_is_no_host(tmp_path: Path) -> None:
    """A certificate of another kind, though somebody listens and speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    context.set_alpn_protocols([tls.ALPN])
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.transport.abort()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        where = server.sockets[0].getsockname()[:2]
        for pin in ("", PIN):
            with pytest.raises(PeerError, match="no Ed25519 key"):
                await tcp.connect(*where, layer=tls.dialler(pin))
        server.close()
        await server.wait_closed()

    run(main(), "asyncio")
    assert set(heard) <= {b""}


# -- those who never get there --------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n", b"cg"],
    ids=["nothing", "a byte", "half a hello", "half a request", "half a frame"],
)
@on_both_loops
def test_who_never_agrees_is_let_go(
    loop: str, first: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream, "AGREEING_S", 0.03)

    async def main() -> None:
        async with hosting() as host:
            raw = await Raw.dial((host.host, host.port), first)
            assert await raw.rest() == b""
            await raw.close()

    run(main(), loop)
    assert "Nothing was agreed on within 0.03 s" in caplog.text


@on_both_loops
def test_many_who_never_agree_keep_nobody_out(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has taken longest makes room."""
    monkeypatch.setattr(tcp, "MOST_AGREEING", 8)

    async def main() -> None:
        async with hosting() as host:
            where = (host.host, host.port)
            at_once = [socket.create_connection(where) for _ in range(30)]  # before a turn of ours
            idle = [await Raw.dial(where, b"GE") for _ in range(12)]
            for _ in range(3):
                await still_serves(host)
            for raw in idle[:4]:
                assert await raw.rest() == b""
            for each in at_once:
                each.setblocking(False)
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.get_running_loop().sock_recv(each, 1) == b""
                each.close()
            idle[-1].writer.write(b"T / HTTP/1.1\r\n\r\n")
            assert b"426" in await idle[-1].rest(), "there is room for some"
            for raw in idle:
                await raw.close()

    run(main(), loop)


async def for_ever(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Say it over and over. Raises ConnectionError."""
    while True:
        writer.write(data)
        await writer.drain()


@on_both_loops
def test_who_wants_answers_and_reads_none_is_let_go(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A WebSocket's pings are answered; not for ever, to somebody who does not read."""
    near = websocket.Dialling(f"ws://x{websocket.PATH}")
    ping = b"\x89\xfd" + bytes(4 + 125)

    async def main() -> None:
        async with hosting() as host:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (host.host, host.port))
            reader, writer = await asyncio.open_connection(sock=sock, limit=256)
            near.begin()
            writer.write(near.take())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101")
            with pytest.raises(ConnectionError):
                await for_ever(writer, ping * 1000)
            writer.transport.abort()
            await still_serves(host)

    run(main(), loop)
    assert "wants answers and does not read them" in caplog.text


@pytest.mark.parametrize("by_web", [False, True])
@on_both_loops
def test_after_a_good_bye_nothing_more_is_heard_or_kept(loop: str, by_web: bool) -> None:
    """TLS says good-bye inside a connection, which may go on for ever."""

    async def main() -> None:
        ended = asyncio.Event()
        made: list[tcp.TcpConnection] = []

        async def serve(connection: Connection) -> None:
            made.append(cast(tcp.TcpConnection, connection))
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await connection.receive()
            ended.set()
            await connection.wait_closed()

        listener = await secure.listen("127.0.0.1", 0, serve, HOST, always=True)
        web = websocket.Dialling(f"ws://x{websocket.PATH}")
        layer: Layer = Stack(web, tls.dialler(PIN)) if by_web else tls.dialler(PIN)
        reader, writer = await asyncio.open_connection(*listener.address)
        layer.begin()
        while not layer.ready:
            writer.write(layer.take())
            layer.feed(memoryview(await reader.read(4096)))
        top = innermost(layer)
        assert isinstance(top, tls.Tls)
        top.end()  # of TLS alone
        writer.write(layer.take())
        more = bytes(1 << 16)
        if by_web:
            web.write(more)
            more = web.take()
        with pytest.raises(ConnectionError):
            await for_ever(writer, more)
        await ended.wait()
        (connection,) = made
        kept = innermost(connection._layer)
        assert isinstance(kept, tls.Tls)
        assert kept._in.pending <= stream.READ_BYTES
        writer.transport.abort()
        await connection.wait_closed()
        await listener.close()

    run(main(), loop)


def test_a_refusal_in_the_middle_of_a_large_payload_does_not_encrypt_the_rest_of_it() -> None:
    async def main() -> None:
        sending: list[tcp.TcpConnection] = []

        async def serve(connection: Connection) -> None:
            sending.append(cast(tcp.TcpConnection, connection))
            with pytest.raises(PeerError):
                await connection.send(Leave(reason="much"), bytes(64 << 20))
            await connection.wait_closed()

        listener = await secure.listen("127.0.0.1", 0, serve, HOST, always=True)
        near = await Dialler(key=ADA, always=True)(at(*listener.address, PIN))
        await until(lambda: bool(sending) and not sending[0].free)
        (far,) = sending
        far.refuse(FrameError("That was nonsense."))
        assert far._transport is not None
        assert far._transport.get_write_buffer_size() < 8 << 20
        near.close()
        await far.wait_closed()
        await listener.close()

    run(main())


def test_who_was_let_go_is_not_kept_by_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "AGREEING_S", 3600.0)

    async def main() -> None:
        made: list[weakref.ref[tcp.TcpConnection]] = []
        layer_for = secure.served(HOST, always=True)

        class Kept(tcp.TcpConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(weakref.ref(self))
                super().connection_made(transport)

        monkeypatch.setattr(tcp, "TcpConnection", Kept)
        listener = await tcp.listen("127.0.0.1", 0, refuse_all, layer=layer_for)
        for _ in range(5):
            raw = await Raw.dial(listener.address, b"\x16\x03\x01\x02\x00\x01")
            raw.writer.transport.abort()
        await until(lambda: len(made) == 5)
        await until(lambda: gc.collect() >= 0 and not any(one() is not None for one in made))
        await listener.close()

    run(main())


async def refuse_all(connection: Connection) -> None:
    raise AssertionError("nobody has agreed on anything")


@pytest.mark.parametrize("inside", [websocket.TLS_INSIDE, websocket.FRAMES_INSIDE])
def test_a_web_page_does_not_come_in_from_wherever_it_is(inside: str) -> None:
    """A browser on the host's own machine says whose page asks: none of them is ours."""
    near = websocket.Dialling(f"ws://x{websocket.PATH}", inside)
    near.begin()
    asked = near.take()

    async def main() -> None:
        async with hosting(always=False) as host:
            for origin in (b"https://evil.example", b"http://localhost:8701", b"null"):
                paged = asked.replace(b"\r\n\r\n", b"\r\nOrigin: " + origin + b"\r\n\r\n")
                raw = await Raw.dial((host.host, host.port), paged)
                assert (await raw.rest()).startswith(b"HTTP/1.1 403")
                await raw.close()

    run(main())


@on_both_loops
def test_a_dialler_that_is_cancelled_the_moment_it_is_through_leaves_nothing_open(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[PeerError] = []

    async def handler(connection: Connection) -> None:
        try:
            await connection.receive()
        except PeerError as error:
            ended.append(error)
            raise

    async def main() -> None:
        listener = await secure.listen("127.0.0.1", 0, handler, HOST)
        reached = tcp.TcpConnection._reached

        def just_then(connection: tcp.TcpConnection) -> None:
            reached(connection)
            if connection._on_made is None:
                dialling.cancel()

        monkeypatch.setattr(tcp.TcpConnection, "_reached", just_then)
        dialling = asyncio.create_task(tcp.connect(*listener.address, layer=tls.dialler(PIN)))
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await until(lambda: bool(ended))
        await listener.close()

    run(main(), loop)
    assert isinstance(ended[0], ConnectionLost)


# -- former sessions ------------------------------------------------------------------------------


def resumed(talk_connection: Connection) -> bool:
    layer = talk_connection._layer  # type: ignore[attr-defined]
    while isinstance(layer, Stack):
        layer = layer.top
    assert isinstance(layer, tls.Tls)
    return layer.resumed


@on_both_loops
def test_who_comes_back_resumes_and_a_host_that_was_started_again_is_met_anew(loop: str) -> None:
    async def main() -> None:
        dialler = Dialler(key=ADA, always=True)
        async with hosting() as host:
            found = []
            for _ in range(3):
                talk = await join(ADA, host.where, dialler=dialler)
                found.append(resumed(talk.connection))
                assert talk.host_key == HOST.id
                await leave(host, talk)
            assert found == [False, True, True]
        port = host.port
        async with hosting(key=guest("the host"), port=port) as host:
            found = []
            for _ in range(2):
                talk = await join(ADA, host.where, dialler=dialler)
                found.append(resumed(talk.connection))
                await leave(host, talk)
            assert found == [False, True]
        async with hosting(key=MALLORY, port=port) as host:
            with pytest.raises(Impostor, match=MALLORY.id):
                await join(ADA, host.where, dialler=dialler)
            talk = await join(ADA, at(host.host, port, digest_of(MALLORY.public)), dialler=dialler)
            assert not resumed(talk.connection), "another pin's session is never used"
            await leave(host, talk)

    run(main(), loop)
