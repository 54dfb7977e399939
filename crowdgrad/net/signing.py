"""Requests to a matchmaker, signed: who asks, for what, of whom, when, and only once.

What is signed names the method, the matchmaker (as the caller addressed it), the path, the hash of
the body, the time and a nonce. So a signature serves for one request at one matchmaker: changed,
sent elsewhere, sent again or sent later it is refused. In HTTP it travels in a header, over a
WebSocket in the first message, since browsers cannot set headers there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import TurnedAway
from crowdgrad.net import bodies
from crowdgrad.net.identity import Identity, signed_by

HEADER = "Authorization"
SCHEME = "Crowdgrad"
SOCKET = "GET"
"""The method of a WebSocket's first message: that of its handshake."""

_CONTEXT = b"crowdgrad request 1\0"
_CREDIT_CONTEXT = b"crowdgrad credit 1\0"
_HEADER = re.compile(
    r"Crowdgrad key=([0-9a-f]{64}),time=([0-9]{1,16}),nonce=([0-9a-f]{32}),"
    r"signature=([0-9a-f]{128})"
)


class Proof(bodies.Body, frozen=True):
    """Who signed a request, and when."""

    key: bodies.PublicKey
    time_ms: bodies.Milliseconds
    nonce: bodies.Nonce
    signature: bodies.Signature


def request_text(
    method: str, authority: str, path: str, body: bytes, time_ms: int, nonce: str
) -> bytes:
    """What is signed. `authority`: host:port as addressed; `path`: with the query."""
    parts = (
        method.upper(),
        authority.lower(),
        path,
        hashlib.sha256(body).hexdigest(),
        str(time_ms),
        nonce,
    )
    return _CONTEXT + "\n".join(parts).encode()


def sign(
    key: Identity,
    *,
    method: str,
    authority: str,
    path: str,
    body: bytes,
    time_ms: int,
    random_bytes: Callable[[int], bytes],
) -> Proof:
    nonce = random_bytes(16).hex()
    text = request_text(method, authority, path, body, time_ms, nonce)
    return Proof(
        key=key.public.hex(), time_ms=time_ms, nonce=nonce, signature=key.sign_text(text).hex()
    )


def verify(proof: Proof, *, method: str, authority: str, path: str, body: bytes) -> bool:
    """Whether the key named in it has signed exactly this request."""
    text = request_text(method, authority, path, body, proof.time_ms, proof.nonce)
    return signed_by(bytes.fromhex(proof.key), text, bytes.fromhex(proof.signature))


def to_header(proof: Proof) -> str:
    return (
        f"{SCHEME} key={proof.key},time={proof.time_ms},nonce={proof.nonce},"
        f"signature={proof.signature}"
    )


def from_header(text: str) -> Proof:
    """Raises TurnedAway."""
    found = _HEADER.fullmatch(text)
    if found is None:
        raise TurnedAway(
            "The request is not signed.",
            advice=f"How the header {HEADER} is made is described in docs/matchmaker.md.",
        )
    key, time_ms, nonce, signature = found.groups()
    return Proof(key=key, time_ms=int(time_ms), nonce=nonce, signature=signature)


def credit_text(job: JobId, host: str, volunteer: VolunteerId, gift: Gift) -> bytes:
    """What a volunteer countersigns; of the FLOP the whole ones."""
    parts = (job, host, volunteer, str(gift.units), str(gift.samples), str(int(gift.flop)))
    return _CREDIT_CONTEXT + "\n".join(parts).encode()
