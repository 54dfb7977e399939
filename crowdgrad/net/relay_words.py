"""Everything that is said to a relay and by it before it splices.

A relay joins a host that nobody can dial with those who call it, and passes their bytes on as they
are. Every connection to it begins with `cgrl`, then come words: two bytes of length, little-endian,
and as many bytes of JSON.

    host       Hi, Serve      relay      Challenge, Registered  then frames: RelayKnock, Heartbeat
    volunteer  Hi, Call       relay      Challenge              and it knocks at the host
    host       Hi, Answer     relay      Spliced, to both       what follows is theirs alone
    anyone     Hi, Measure    relay      Challenge, Measuring   bytes down, bytes up, Measured

Whatever is asked for is signed together with the relay's challenge, which is fresh, and with the
name under which the relay was dialled: no signature serves twice, or at another relay.
"""

from __future__ import annotations

import struct
from typing import Annotated

import msgspec
from msgspec import Meta

from crowdgrad.domain.routes import Route, spelled
from crowdgrad.errors import (
    CrowdgradError,
    FrameError,
    MessageError,
    NotPutThrough,
    PeerError,
    VersionMismatch,
    one_line,
    tree,
)
from crowdgrad.net.framing import UPDATE_ADVICE
from crowdgrad.net.identity import Identity, signed_by
from crowdgrad.net.messages import MAX_WORDS, TICKET_BYTES
from crowdgrad.net.transport.base import Payload

MAGIC = b"cgrl"
VERSION = 1
MAX_WORD_BYTES = 2048
NONCE_BYTES = 32
MAX_AT = 262
MAX_JOB = 64
MAX_MEASURED_BYTES = 64 << 20
"""Nobody is asked for more each way, whatever a relay allows."""

_LENGTH = struct.Struct("<H")
_CONTEXT = b"crowdgrad relay 1\0"

Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
Pin = Annotated[str, Meta(min_length=16, max_length=64, pattern=r"^[0-9a-f]*\Z")]
At = Annotated[str, Meta(max_length=MAX_AT, pattern=r"^[!-~]*\Z")]
JobName = Annotated[str, Meta(max_length=MAX_JOB, pattern=r"^[A-Za-z0-9_.-]*\Z")]
Words = Annotated[str, Meta(max_length=MAX_WORDS)]
RelayId = Annotated[str, Meta(max_length=32, pattern=r"^[0-9a-f]*\Z")]


class Word(msgspec.Struct, frozen=True, kw_only=True, tag_field="say", tag=True):
    """Newer ones may say more; what we do not know we pass over."""


class Hi(Word, frozen=True):
    """Dialler: I speak this version of a relay's words."""

    version: Annotated[int, Meta(ge=0, le=1 << 20)]


class Challenge(Word, frozen=True):
    """Relay: So do I; sign this with whatever you ask for."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class Serve(Word, frozen=True):
    """Host: This is my key; knock here when somebody calls me."""

    key: Key
    signature: Signature
    at: At = ""
    """Under which name I have dialled you."""
    job: JobName = ""
    """For which of my jobs; one key may host several."""


class Registered(Word, frozen=True):
    """Relay: I will. This is how often we beat, and who I am."""

    heartbeat_s: Annotated[float, Meta(ge=0.05, le=600.0)]
    silence_s: Annotated[float, Meta(ge=0.1, le=3600.0)]
    relay: RelayId = ""
    """Who I am: whoever hears it twice has dialled one relay under two names."""


class Call(Word, frozen=True):
    """Volunteer: This is my key; I would like to speak with that host."""

    host: Pin
    key: Key
    signature: Signature
    at: At = ""
    job: JobName = ""


class Answer(Word, frozen=True):
    """Host: You knocked with this ticket; here I am."""

    ticket: Annotated[bytes, Meta(min_length=TICKET_BYTES, max_length=TICKET_BYTES)]

    def __repr__(self) -> str:
        """Without the ticket: it is a secret, and this may be logged."""
        return "Answer()"


class Spliced(Word, frozen=True):
    """Relay: Whatever follows is from the other one."""


class Measure(Word, frozen=True):
    """Anyone: How fast is it between us? Send me so many bytes, then I send you as many."""

    bytes: Annotated[int, Meta(ge=1, le=MAX_MEASURED_BYTES)]
    key: Key
    signature: Signature
    at: At = ""


class Measuring(Word, frozen=True):
    """Relay: So many bytes follow; then I expect as many from you."""

    bytes: Annotated[int, Meta(ge=1, le=MAX_MEASURED_BYTES)]


class Measured(Word, frozen=True):
    """Relay: All your bytes are here."""


class Refused(Word, frozen=True):
    """Relay: No, for this reason, and here is what to do next."""

    code: Annotated[str, Meta(max_length=8)]
    reason: Annotated[str, Meta(max_length=32)]
    """One word, for programs."""
    message: Words
    advice: Words = ""


FROM_DIALLER = Hi | Serve | Call | Answer | Measure
FROM_RELAY = Challenge | Registered | Spliced | Measuring | Measured | Refused
WORDS: tuple[type[Word], ...] = (
    Hi, Challenge, Serve, Registered, Call, Answer, Spliced, Measure, Measuring, Measured, Refused,
)  # fmt: skip

_ENCODER = msgspec.json.Encoder()
_from_dialler: msgspec.json.Decoder[FROM_DIALLER] = msgspec.json.Decoder(FROM_DIALLER)
_from_relay: msgspec.json.Decoder[FROM_RELAY] = msgspec.json.Decoder(FROM_RELAY)


def pack(word: Word) -> bytes:
    body = _ENCODER.encode(word)
    assert len(body) <= MAX_WORD_BYTES, f"{type(word).__name__} has {len(body)} bytes"
    return _LENGTH.pack(len(body)) + body


def refusal(error: CrowdgradError, reason: str) -> Refused:
    """What a relay says about an error."""
    message, advice = error.message[:MAX_WORDS], error.advice[:MAX_WORDS]
    if len(_ENCODER.encode([message, advice])) > MAX_WORD_BYTES - 200:  # not in our language
        message, advice = message[:100], advice[:100]
    return Refused(code=error.code, reason=reason, message=message, advice=advice)


def told(said: Refused) -> PeerError:
    """The error that a relay's refusal is for us: of the kind its code names."""
    kinds = {kind.code: kind for kind in tree(PeerError)}
    kind = kinds.get(said.code, NotPutThrough)
    return kind(f"The relay says: {one_line(said.message)}", advice=one_line(said.advice))


class Reader:
    """Takes words out of a stream; keeps no more than one of them."""

    def __init__(self, *, magic: bool) -> None:
        """`magic`: whether the stream begins with it, as a dialler's does."""
        self._held = bytearray()
        self._magic = magic

    def put(self, data: Payload) -> bytes:
        """What does not fit beside what is held: to be put again once a word was taken."""
        room = len(MAGIC) + _LENGTH.size + MAX_WORD_BYTES - len(self._held)
        view = memoryview(data)
        self._held += view[:room]
        return bytes(view[room:])

    def body(self) -> bytes | None:
        """The next word's JSON, if it is whole. Raises FrameError."""
        held = self._held
        if self._magic:
            if not MAGIC.startswith(bytes(held[: len(MAGIC)])):
                raise FrameError(
                    f"That is no word to a relay (it began with {bytes(held[:4])!r}).",
                    advice="Check the address and port.",
                )
            if len(held) < len(MAGIC):
                return None
            del held[: len(MAGIC)]
            self._magic = False
        if len(held) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(held)
        if length > MAX_WORD_BYTES:
            raise FrameError(f"A word of {length} bytes; they have at most {MAX_WORD_BYTES}.")
        end = _LENGTH.size + length
        if len(held) < end:
            return None
        body = bytes(held[_LENGTH.size : end])
        del held[:end]
        return body

    def rest(self) -> bytes:
        """What came behind the last word."""
        rest = bytes(self._held)
        self._held.clear()
        return rest


def of_dialler(body: bytes) -> FROM_DIALLER:
    """Raises MessageError."""
    try:
        return _from_dialler.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _senseless(error) from None


def of_relay(body: bytes) -> FROM_RELAY:
    """Raises MessageError."""
    try:
        return _from_relay.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _senseless(error) from None


def _senseless(error: Exception) -> MessageError:
    return MessageError(f"A word at a relay makes no sense: {one_line(str(error))[:200]}.")


def check_version(hi: Hi) -> None:
    """Raises VersionMismatch."""
    if hi.version != VERSION:
        raise VersionMismatch(
            f"The dialler speaks version {hi.version} of a relay's words, the relay {VERSION}.",
            advice=UPDATE_ADVICE,
        )


# -- signatures -----------------------------------------------------------------------------------


def at_of(route: Route) -> str:
    """Under which name a relay is dialled: what is signed for one serves at no other."""
    return spelled(route.host.lower(), route.port)


def serve_text(nonce: bytes, *, at: str, job: str) -> bytes:
    return _text("serve", nonce, at, job)


def call_text(nonce: bytes, *, at: str, host: str, job: str) -> bytes:
    return _text("call", nonce, at, host, job)


def measure_text(nonce: bytes, *, at: str, count: int) -> bytes:
    return _text("measure", nonce, at, str(count))


def _text(verb: str, nonce: bytes, *parts: str) -> bytes:
    """What is signed. No part holds a line break: words are checked where they arrive."""
    return _CONTEXT + "\n".join((verb, nonce.hex(), *parts)).encode()


def serve(key: Identity, nonce: bytes, *, at: str, job: str = "") -> Serve:
    signature = key.sign_text(serve_text(nonce, at=at, job=job))
    return Serve(key=key.public, signature=signature, at=at, job=job)


def call(key: Identity, nonce: bytes, *, at: str, host: str, job: str = "") -> Call:
    signature = key.sign_text(call_text(nonce, at=at, host=host, job=job))
    return Call(host=host, key=key.public, signature=signature, at=at, job=job)


def measure(key: Identity, nonce: bytes, *, at: str, count: int) -> Measure:
    signature = key.sign_text(measure_text(nonce, at=at, count=count))
    return Measure(bytes=count, key=key.public, signature=signature, at=at)


def is_signed(word: Serve | Call | Measure, nonce: bytes) -> bool:
    """Whether the key in it has signed exactly that, for this challenge."""
    if isinstance(word, Serve):
        text = serve_text(nonce, at=word.at, job=word.job)
    elif isinstance(word, Call):
        text = call_text(nonce, at=word.at, host=word.host, job=word.job)
    else:
        text = measure_text(nonce, at=word.at, count=word.bytes)
    return signed_by(word.key, text, word.signature)
