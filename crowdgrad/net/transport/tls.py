"""TLS 1.3 between two who know each other by their keys, not by names.

The certificate is self-signed and made of the listener's Ed25519 key; nothing in it counts but that
key. Whoever dials compares it with the pin it was given, before a byte of its own is sent; whoever
was given none learns it here. No authority is asked, and none can vouch for somebody else.

A dialler that comes back goes on with its former session: the handshake is shorter then, and proves
the same key.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from typing import cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import NameOID

from crowdgrad.errors import ConnectionLost, FrameError, Impostor, PeerError
from crowdgrad.net.identity import Identity, fits, id_of
from crowdgrad.net.transport.base import Payload

ALPN = "crowdgrad"
"""Said by both: no server of another kind can be made to answer for us."""
FIRST_BYTE = 0x16
MOST_SESSIONS = 64
_FROM = datetime.datetime(2020, 1, 1)
_UNTIL = datetime.datetime(2120, 1, 1)
"""A pinned key does not go out of date, and many clocks are wrong."""


class Tls:
    """One end of an encrypted stream: a `Layer`."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        own: bytes = b"",
        pin: str = "",
        sessions: Sessions | None = None,
        whom: str = "",
    ) -> None:
        """`own`: our public key, as a listener; empty: we dial, and expect the key `pin` begins.

        `sessions`: former ones, by `whom`.
        """
        self.ready = False
        self.closed = False
        """The other side has said that it sends no more."""
        self.key = own
        """The listener's public key: its certificate's, once it is ready."""
        self._pin, self._sessions, self._whom = pin, sessions, whom
        self._dials = not own
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = sessions.of(whom) if sessions is not None else None
        self._tls = context.wrap_bio(self._in, self._out, server_side=bool(own), session=session)
        self._broken = False
        self._kept = sessions is None

    @property
    def resumed(self) -> bool:
        return bool(self._tls.session_reused)

    def begin(self) -> None:
        self._agree()

    def feed(self, data: memoryview) -> None:
        if self.closed:  # nothing takes it out any more
            return
        self._in.write(data)
        if not self.ready:
            self._agree()

    def _agree(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._broken = True
            raise _refusal(error) from None
        if self._dials:
            self.key = _key_of(self._tls.getpeercert(binary_form=True))
            if self._pin and not fits(self._pin, self.key):
                self._broken = True
                self._out.read()  # not even that we agree
                raise impostor(self._pin, self.key)
        if self._tls.selected_alpn_protocol() != ALPN:
            self._broken = True
            raise PeerError(
                "The other side speaks TLS, but not crowdgrad.", advice="Check address and port."
            )
        self.ready = True

    def read_into(self, room: memoryview) -> int:
        if not self.ready:
            return 0
        count, whole = 0, len(room)
        try:
            while count < whole:  # a record has 16 kB at most
                got = cast(int, self._tls.read(whole - count, room[count:]))
                if not got:
                    self.closed = True
                    break
                count += got
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._broken = True
            raise FrameError(
                "What arrived was altered, or put in another order, on its way.",
                advice="Connect again; if it happens often, somebody stands in between.",
            ) from None
        if count and not self._kept:  # tickets come before anything else
            self._kept = True
            assert self._sessions is not None
            self._sessions.keep(self._whom, self._tls.session)
        return count

    def write(self, data: Payload) -> None:
        if self._broken:
            raise ConnectionLost("The encrypted connection is broken.")
        view = memoryview(data)
        try:
            while len(view):
                view = view[self._tls.write(view) :]
        except ssl.SSLError:
            self._broken = True
            raise ConnectionLost("The encrypted connection is broken.") from None

    def take(self) -> bytes:
        return self._out.read()

    def end(self) -> None:
        if not self.ready or self._broken:
            return
        self._broken = True
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()


class Sessions:
    """Former sessions of a dialler, by whom they were with; the least recent are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, ssl.SSLSession] = OrderedDict()

    def of(self, whom: str) -> ssl.SSLSession | None:
        return self._kept.get(whom)

    def keep(self, whom: str, session: ssl.SSLSession | None) -> None:
        if session is None or not session.has_ticket:
            return
        self._kept[whom] = session
        self._kept.move_to_end(whom)
        if len(self._kept) > MOST_SESSIONS:
            self._kept.popitem(last=False)


def dialler(pin: str = "", *, sessions: Sessions | None = None) -> Tls:
    """For whoever dials. `pin`: of the key the other side must have; empty: any."""
    return Tls(_dialling(), pin=pin, sessions=sessions if pin else None, whom=pin)


def listener(key: Identity) -> Tls:
    """For whoever listens, as whoever has this key."""
    return Tls(_listening(key), own=key.public)


def impostor(pin: str, public: bytes) -> Impostor:
    whose = f"its key is {id_of(public)}" if public else "it proves no key"
    return Impostor(
        f"Somebody else answers there: {whose}, we look for {pin[:16]}.",
        advice="The link may be out of date, or somebody stands in between: ask the host anew.",
    )


@functools.cache
def _dialling() -> ssl.SSLContext:
    context = _modern(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the key is compared, by `Tls`
    return context


@functools.lru_cache(maxsize=8)
def _listening(key: Identity) -> ssl.SSLContext:
    """One a key: the tickets of sessions are only good in the context that gave them."""
    context = _modern(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 1
    with _as_file(_certificate(key)) as path:
        context.load_cert_chain(path)
    return context


def _modern(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([ALPN])
    return context


def _certificate(key: Identity) -> bytes:
    """With the private key, as PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "crowdgrad")])
    public = Ed25519PublicKey.from_public_bytes(key.public)
    builder = x509.CertificateBuilder(
        subject_name=name,
        issuer_name=name,
        public_key=public,
        serial_number=1,
        not_valid_before=_FROM,
        not_valid_after=_UNTIL,
    )
    signed = key.sign_certificate(builder)
    return signed.public_bytes(serialization.Encoding.PEM) + key.pem()


@contextlib.contextmanager
def _as_file(secret: bytes) -> Iterator[str]:
    """OpenSSL's Python face reads keys from files only: one that has no name where possible."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        handle = os.memfd_create("certificate")
        try:
            os.write(handle, secret)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    handle, path = tempfile.mkstemp()  # for its owner only
    try:
        with open(handle, "wb") as file:
            file.write(secret)
        yield path
    finally:
        os.unlink(path)


def _key_of(certificate: bytes | None) -> bytes:
    """Raises PeerError."""
    try:
        public = x509.load_der_x509_certificate(certificate or b"").public_key()
        if isinstance(public, Ed25519PublicKey):
            return public.public_bytes_raw()
    except (ValueError, UnsupportedAlgorithm):
        pass
    raise PeerError(
        "The other side's certificate has no Ed25519 key: it is no crowdgrad host.",
        advice="Check the address; a proxy that reads along may be in between.",
    )


def _refusal(error: ssl.SSLError) -> PeerError:
    reason = (error.reason or "").lower().replace("_", " ") or "no reason given"
    return PeerError(
        f"No encrypted connection came about ({reason}).",
        advice="Is it a crowdgrad host, of a version as new as this one?",
    )
