"""TLS without a socket: whatever is done to the bytes in between, only what was sent is read."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.errors import ConnectionLost, FrameError, Impostor, PeerError
from crowdgrad.net.identity import Identity, digest_of, guest
from crowdgrad.net.transport import tls
from crowdgrad.net.transport.tls import ALPN, MOST_SESSIONS, Sessions, Tls

KEY, OTHER = guest("a listener"), guest("somebody else")
PIN = digest_of(KEY.public)
RECORD_HEADER_BYTES = 5
attacked = settings(max_examples=60, deadline=None)


def carry(one: Tls, other: Tls) -> bool:
    """What one has to say by now, to the other; whether it was anything."""
    said = one.take()
    if said:
        other.feed(memoryview(said))
    return bool(said)


def agree(near: Tls, far: Tls) -> tuple[Tls, Tls]:
    """The dialler and the listener, through their handshake. Raises PeerError."""
    near.begin()
    far.begin()
    while carry(near, far) or carry(far, near):
        pass
    return near, far


def pair(pin: str = PIN, key: Identity = KEY, sessions: Sessions | None = None) -> tuple[Tls, Tls]:
    return agree(tls.dialler(pin, sessions=sessions), tls.listener(key))


def all_of(end: Tls, piece: int = 1 << 16) -> bytes:
    room, found = memoryview(bytearray(piece)), bytearray()
    while count := end.read_into(room):
        found += room[:count]
    return bytes(found)


def heard(end: Tls, chunks: Iterable[bytes]) -> tuple[bytes, PeerError | None]:
    """What comes out of all that is fed, and what ended it."""
    found = b""
    try:
        for chunk in chunks:
            end.feed(memoryview(chunk))
            found += all_of(end)
    except PeerError as error:
        return found, error
    return found, None


def records(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = RECORD_HEADER_BYTES + int.from_bytes(data[3:5], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """In chunks of these sizes, the rest as one."""
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


def text(count: int, seed: int = 0) -> bytes:
    """Bytes in which every place looks like itself."""
    return b"".join((seed + n).to_bytes(4, "little") for n in range(count // 4 + 1))[:count]


# -- the handshake --------------------------------------------------------------------------------


def test_who_dials_learns_the_key_and_both_are_bound_to_it() -> None:
    near, far = pair(pin="")
    assert near.ready
    assert far.ready
    assert near.key == far.key == KEY.public
    assert not near.resumed


@pytest.mark.parametrize("digits", [16, 32, 64])
def test_a_pin_may_be_short_or_whole(digits: int) -> None:
    near, _ = pair(PIN[:digits])
    assert near.ready


@pytest.mark.parametrize(
    "pin",
    [digest_of(OTHER.public), PIN[:15], PIN[:-1] + "x", PIN + "0", "-"],
    ids=["another", "too short", "altered", "too long", "none"],
)
def test_somebody_else_is_noticed_before_a_byte_of_ours_is_sent(pin: str) -> None:
    near, far = tls.dialler(pin), tls.listener(KEY)
    with pytest.raises(Impostor, match="Somebody else answers there") as refused:
        agree(near, far)
    assert KEY.id in refused.value.message
    assert not near.ready
    assert near.take() == b"", "not even the last word of the handshake"
    assert not far.ready
    with pytest.raises(ConnectionLost):
        near.write(b"a frame")


def test_nothing_can_be_read_before_both_agree() -> None:
    near, far = tls.dialler(PIN), tls.listener(KEY)
    near.begin()
    carry(near, far)
    assert far.read_into(memoryview(bytearray(9))) == 0
    assert not far.ready, "the dialler has not answered yet"


def context_of(
    private: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, folder: Path
) -> ssl.SSLContext:
    """A server as there are many, with a certificate of its own."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "crowdgrad")])
    builder = x509.CertificateBuilder(
        subject_name=name,
        issuer_name=name,
        public_key=private.public_key(),
        serial_number=1,
        not_valid_before=tls._FROM,
        not_valid_after=tls._UNTIL,
    )
    file = folder / "both.pem"
    file.write_bytes(
        builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.set_alpn_protocols([ALPN])
    return context


KEYS: dict[str, Callable[[], ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]] = {
    "elliptic": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


@pytest.mark.parametrize("pin", [PIN, ""], ids=["pinned", "not"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_certificate_of_another_kind_is_no_host(kind: str, pin: str, tmp_path: Path) -> None:
    far = Tls(context_of(KEYS[kind](), tmp_path), own=KEY.public)
    near = tls.dialler(pin)
    with pytest.raises(PeerError, match="no Ed25519 key"):
        agree(near, far)
    assert not near.ready


def plain_client(**changes: object) -> ssl.SSLContext:
    """A TLS client that is not ours."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def test_an_older_tls_is_refused_by_both() -> None:
    context = plain_client(maximum_version=ssl.TLSVersion.TLSv1_2)
    context.set_alpn_protocols([ALPN])
    near, far = Tls(context), tls.listener(KEY)
    with pytest.raises(PeerError, match="No encrypted connection came about"):
        agree(near, far)
    assert not far.ready
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    near = tls.dialler(PIN)
    with pytest.raises(PeerError, match="No encrypted connection came about"):
        agree(near, Tls(old, own=KEY.public))
    assert not near.ready


@pytest.mark.parametrize("said", [(), ("h2", "http/1.1")])
def test_who_speaks_tls_but_not_crowdgrad_is_refused_by_both(said: tuple[str, ...]) -> None:
    context = plain_client()
    context.set_alpn_protocols(list(said))
    far = tls.listener(KEY)
    with pytest.raises(PeerError, match=r"not crowdgrad|came about"):
        agree(Tls(context), far)
    assert not far.ready
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tls._as_file(tls._certificate(KEY)) as path:
        other.load_cert_chain(path)
    other.set_alpn_protocols(list(said))
    near = tls.dialler(PIN)
    with pytest.raises(PeerError, match="not crowdgrad"):
        agree(near, Tls(other, own=KEY.public))
    assert not near.ready


# -- former sessions ------------------------------------------------------------------------------


def talked(near: Tls, far: Tls) -> tuple[Tls, Tls]:
    """A word from the listener: sessions are kept with the first."""
    far.write(b"welcome")
    carry(far, near)
    assert all_of(near) == b"welcome"
    return near, far


def test_who_comes_back_goes_on_and_the_key_is_compared_again() -> None:
    sessions = Sessions()
    near, _ = talked(*pair(sessions=sessions))
    assert not near.resumed
    for _ in range(3):
        near, far = talked(*pair(sessions=sessions))
        assert near.resumed
        assert far.resumed
        assert near.key == KEY.public
    kept = sessions.of(PIN)
    assert kept is not None
    sessions.keep("1" * 64, kept)  # as if somebody had mixed them up
    with pytest.raises(Impostor):
        pair("1" * 64, sessions=sessions)


def test_a_session_is_of_one_pin_only() -> None:
    sessions = Sessions()
    talked(*pair(sessions=sessions))
    near, _ = talked(*pair(PIN[:32], sessions=sessions))
    assert not near.resumed, "another pin, though of the same key"
    near, _ = talked(*pair(digest_of(OTHER.public), OTHER, sessions=sessions))
    assert not near.resumed
    with pytest.raises(Impostor):
        pair(PIN, OTHER, sessions=sessions)


def test_without_a_pin_no_session_is_kept() -> None:
    sessions = Sessions()
    talked(*pair("", sessions=sessions))
    near, _ = talked(*pair("", sessions=sessions))
    assert not near.resumed
    assert sessions.of("") is None


def test_a_listener_that_was_started_again_agrees_anew() -> None:
    sessions = Sessions()
    talked(*pair(sessions=sessions))
    near, _ = talked(*pair(key=guest("a listener"), sessions=sessions))
    assert near.ready
    assert not near.resumed, "it does not know the former one's sessions"
    near, _ = pair(key=guest("a listener"), sessions=sessions)
    assert not near.resumed, "each has a context of its own"


def test_the_least_recent_sessions_are_forgotten() -> None:
    sessions = Sessions()
    talked(*pair(sessions=sessions))
    kept = sessions.of(PIN)
    assert kept is not None
    for number in range(MOST_SESSIONS):
        sessions.keep(str(number), kept)
    assert sessions.of(PIN) is None
    assert sum(sessions.of(str(number)) is not None for number in range(99)) == MOST_SESSIONS
    sessions.keep("none", None)
    assert sessions.of("none") is None


# -- what is written arrives ----------------------------------------------------------------------

sizes = st.lists(st.integers(0, 40_000), max_size=6)
chunkings = st.lists(st.integers(0, 3000), max_size=40)


@attacked
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40_000)), max_size=6), chunkings)
def test_whatever_is_written_arrives_in_any_chunks(
    writes: list[tuple[bool, int]], chunks: list[int]
) -> None:
    """Both ways, also during the handshake."""
    near, far = tls.dialler(PIN), tls.listener(KEY)
    near.begin()
    chunk = itertools.chain(chunks, itertools.repeat(1 << 20))
    for _ in range(4):
        for one, other in ((near, far), (far, near)):
            for part in cut(one.take(), [next(chunk), next(chunk)]):
                other.feed(memoryview(part))
    assert near.ready
    assert far.ready
    sent: dict[Tls, bytes] = {near: b"", far: b""}
    got: dict[Tls, bytes] = {near: b"", far: b""}
    for number, (there, size) in enumerate(writes):
        one, other = (near, far) if there else (far, near)
        words = text(size, number << 16)
        one.write(memoryview(words))
        sent[one] += words
        for part in cut(one.take(), [next(chunk) for _ in range(4)]):
            other.feed(memoryview(part))
            got[one] += all_of(other, 1 + next(chunk) % 5000)
    assert got == sent
    near.end()
    carry(near, far)
    assert all_of(far) == b""
    assert far.closed
    assert not near.closed
    near.end()
    with pytest.raises(ConnectionLost):
        near.write(b"more")


# -- attacks --------------------------------------------------------------------------------------

Attack = Callable[[list[bytes], list[bytes]], list[bytes]]
"""On the records of a direction, with others that an attacker has seen elsewhere."""
place = st.integers(0, 1 << 20)


def _at(records: list[bytes], number: int) -> int:
    return number % len(records)


def flip(number: int, bit: int) -> Attack:
    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = _at(own, number)
        hit = bytearray(own[at])
        hit[bit // 8 % len(hit)] ^= 1 << bit % 8
        return [*own[:at], bytes(hit), *own[at + 1 :]]

    return done


def truncate(number: int, keep: int) -> Attack:
    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = _at(own, number)
        return [*own[:at], own[at][: keep % len(own[at])]]

    return done


def shorten(number: int, keep: int) -> Attack:
    """One record loses its end; those after it come all the same."""

    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = _at(own, number)
        return [*own[:at], own[at][: keep % len(own[at])], *own[at + 1 :]]

    return done


def drop(number: int, count: int) -> Attack:
    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = _at(own, number)
        return own[:at] + own[at + 1 + count % 3 :]

    return done


def twice(number: int, where: int) -> Attack:
    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = where % (len(own) + 1)
        return [*own[:at], own[_at(own, number)], *own[at:]]

    return done


def swap(number: int, with_: int) -> Attack:
    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        changed = list(own)
        one, other = _at(own, number), _at(own, with_)
        changed[one], changed[other] = changed[other], changed[one]
        return changed

    return done


def splice(number: int, where: int) -> Attack:
    """A record of another direction, or of another connection, or in plain sight."""

    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = where % (len(own) + 1)
        return [*own[:at], others[_at(others, number)], *own[at:]]

    return done


def instead(number: int, where: int) -> Attack:
    def done(own: list[bytes], others: list[bytes]) -> list[bytes]:
        at = _at(own, where)
        return [*own[:at], others[_at(others, number)], *own[at + 1 :]]

    return done


ATTACKS = {
    attack.__name__: attack
    for attack in (flip, truncate, shorten, drop, twice, swap, splice, instead)
}
attacks = st.lists(
    st.builds(
        lambda name, one, two: ATTACKS[name](one, two),
        st.sampled_from(sorted(ATTACKS)),
        place,
        place,
    ),
    min_size=1,
    max_size=3,
)
PLAIN = [
    b"cgrd" + bytes(20),
    b"\x17\x03\x03\x00\x04cgrd",
    b"\x15\x03\x03\x00\x02\x01\x00",  # "good-bye", said by nobody
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x14\x03\x03\x00\x01\x01",
    b"\x16\x03\x03\x00\x04\x00\x00\x00\x00",
    b"\x18\x03\x03\x00\x03\x01\xff\xff",
]


@settings(max_examples=250, deadline=None)
@given(
    attacks,
    st.lists(st.integers(1, 20_000), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    chunkings,
)
def test_an_attacker_can_only_cut_off(
    todo: list[Attack], writes: list[int], upwards: bool, farewell: bool, chunks: list[int]
) -> None:
    """The receiver has read a beginning of what was sent, or hears that it was altered; and that it
    was all is believed only where it was."""
    near, far = pair()
    here, there = (near, far) if upwards else (far, near)
    if here is far:  # its ticket comes first: it is not what is attacked
        carry(far, near)
    third, fourth = pair()
    carry(fourth, third)
    sent = b"".join(text(size, n << 16) for n, size in enumerate(writes))
    for n, size in enumerate(writes):
        here.write(text(size, n << 16))
    if farewell:
        here.end()
    own = records(here.take())
    there.write(text(20_000))
    third.write(text(20_000))
    fourth.write(text(20_000))
    seen = [record for end in (there, third, fourth) for record in records(end.take())]
    wire = own
    for attack in todo:
        wire = [record for record in attack(wire, seen + PLAIN + own) if record] or [b"\x17"]
    got, error = heard(there, cut(b"".join(wire), chunks))
    assert sent.startswith(got)
    if b"".join(wire) == b"".join(own):
        assert (got, error) == (sent, None)
        assert there.closed is farewell
    if there.closed:
        assert got == sent
        assert farewell
    if error is not None:
        assert isinstance(error, FrameError)
        assert "altered" in error.message
        with pytest.raises(ConnectionLost):
            there.write(b"more")
        there.end()
        again, _ = heard(there, own)
        assert again == b"", "nothing is believed any more"


@settings(max_examples=150, deadline=None)
@given(place, st.integers(0, 7), st.sampled_from(["there", "back"]), st.integers(0, 2))
def test_nobody_can_meddle_with_the_handshake(at: int, bit: int, way: str, turn: int) -> None:
    """Either nothing comes of it, or all is as if nobody had: the same key, the same bytes."""
    near, far = tls.dialler(PIN), tls.listener(KEY)
    near.begin()
    said: list[tuple[Tls, Tls, bytes]] = []
    error: PeerError | None = None
    try:
        for number in range(3):
            for one, other, name in ((near, far, "there"), (far, near, "back")):
                data = bytearray(one.take())
                if data and name == way and turn == number:
                    data[at % len(data)] ^= 1 << bit
                said.append((one, other, bytes(data)))
                other.feed(memoryview(data))
    except PeerError as failed:
        error = failed
    for end in (near, far):
        if end.ready:
            assert end.key == KEY.public
    if error is not None or not (near.ready and far.ready):
        return
    for one, other in ((near, far), (far, near)):
        one.write(text(1000))
        got, _ = heard(other, [one.take()])
        assert text(1000).startswith(got)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.booleans(), st.booleans(), chunkings)
def test_any_bytes_at_any_time_are_refused_or_waited_for(
    data: bytes, listens: bool, begun: bool, chunks: list[int]
) -> None:
    near, far = tls.dialler(PIN), tls.listener(KEY)
    near.begin()
    end = far if listens else near
    if begun:
        carry(near, far)
        if not listens:
            carry(far, near)
    ready = end.ready
    got, error = heard(end, cut(bytes([tls.FIRST_BYTE]) + data, chunks))
    assert got == b""
    assert end.ready is ready or error is None
    if not ready:
        assert not end.ready


def test_the_end_is_only_believed_from_the_other_side() -> None:
    near, far = pair()
    near.write(b"half of it")
    carry(near, far)
    far.feed(memoryview(b"\x15\x03\x03\x00\x02\x01\x00"))  # an attacker's good-bye
    with pytest.raises(FrameError, match="altered"):
        all_of(far)
    assert not far.closed


def test_the_key_is_nowhere_on_the_disk() -> None:
    with tls._as_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
    assert not Path(path).exists()
