"""Everything volunteers and hosts say to each other, in the order in which they say it.

Each message is one sentence. It travels as the body of a frame; where the sentence mentions bytes,
they are the frame's payload. A message that is not in `MESSAGES` does not exist.
"""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

import msgspec

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.job import Job, Roster, Volunteer
from crowdgrad.domain.work import Unit, UnitId, Update, Version
from crowdgrad.errors import CrowdgradError, MessageError, PeerError, one_line, tree

PROTOCOL = (2, 1)
"""Major and minor. Peers one minor apart work together; majors must agree."""
MAX_BODY_BYTES = 1 << 20
MAX_WORDS = 500
"""Characters of a stranger's words that we repeat."""
MAX_SHARDS_NAMED = 1024
MAX_SOFTWARE = 64
MAX_SILENCE_S = 3600
CHALLENGE_BYTES = 32
KEY_BYTES, SIGNATURE_BYTES = 32, 64
"""Of Ed25519."""
MAX_NAME = 64


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Newer peers may say more in a known message; what we do not know we pass over."""

    kind: ClassVar[int] = 0


def check_words(*texts: str) -> None:
    """What a stranger says ends up on somebody's screen: one line, no terminal escapes."""
    for text in texts:
        if len(text) > MAX_WORDS or not text.isprintable():
            raise ValueError(f"words are one printable line of at most {MAX_WORDS} characters")


def _check_software(software: str) -> None:
    if len(software) > MAX_SOFTWARE or not software.isprintable():
        raise ValueError(f"software has a name of at most {MAX_SOFTWARE} printable characters")


class Hello(Message, frozen=True):
    """Dialler: I speak this protocol and run this software; sign this challenge."""

    kind = 1
    protocol: tuple[int, int]
    software: str
    challenge: bytes = b""
    """Empty from a peer that speaks 2.0, which cannot be shown who we are."""

    def __post_init__(self) -> None:
        _check_software(self.software)
        if len(self.challenge) not in (0, CHALLENGE_BYTES):
            raise ValueError(f"a challenge has {CHALLENGE_BYTES} bytes")


class Welcome(Message, frozen=True):
    """Listener: So do I; this is me, your challenge signed, and one for you to sign."""

    kind = 2
    protocol: tuple[int, int]
    software: str
    challenge: bytes
    key: bytes = b""
    signature: bytes = b""
    """Over both challenges. Empty, as the key, where the listener does not prove who it is."""
    name: str = ""
    """What the host calls itself: a word, not a proof."""

    def __post_init__(self) -> None:
        _check_software(self.software)
        if len(self.challenge) > CHALLENGE_BYTES:
            raise ValueError(f"a challenge has {CHALLENGE_BYTES} bytes")
        if (len(self.key), len(self.signature)) not in ((0, 0), (KEY_BYTES, SIGNATURE_BYTES)):
            raise ValueError(f"a key of {len(self.key)} bytes, signed with {len(self.signature)}")
        if len(self.name) > MAX_NAME or not self.name.isprintable():
            raise ValueError(f"a host's name has at most {MAX_NAME} printable characters")


class Problem(Message, frozen=True):
    """Either: This went wrong, with this code, and here is what to do next."""

    kind = 3
    code: str
    message: str
    advice: str = ""


class Join(Message, frozen=True):
    """Volunteer: I would like to help; this is me, my key and your challenge signed with it."""

    kind = 4
    volunteer: Volunteer
    key: bytes
    signature: bytes
    token: str = ""
    """The host's own worker proves itself with the token it was started with."""


class Admit(Message, frozen=True):
    """Host: You are in, at this place; program and manifest have so many bytes; beat like this."""

    kind = 5
    job: Job
    position: int
    program_bytes: int
    manifest_bytes: int
    heartbeat_s: float
    silence_s: float

    def __post_init__(self) -> None:
        if min(self.position, self.program_bytes, self.manifest_bytes) < 0:
            raise ValueError("places and bytes count from zero")
        if not (0.1 <= 2 * self.heartbeat_s <= self.silence_s <= MAX_SILENCE_S):
            raise ValueError(
                f"a heartbeat every {self.heartbeat_s} s, silence after {self.silence_s} s"
            )


class RosterChanged(Message, frozen=True):
    """Host: These are the members now."""

    kind = 6
    roster: Roster


class Get(Message, frozen=True):
    """Volunteer: Please send me the bytes with this hash."""

    kind = 7
    hash: ChunkHash


class Blob(Message, frozen=True):
    """Host: Here are the bytes with that hash."""

    kind = 8
    hash: ChunkHash


class Exchange(Message, frozen=True):
    """Volunteer: Here is my update, if I have one, its bytes following; may I have a unit?"""

    kind = 9
    update: Update | None = None
    shards: tuple[int, ...] = ()
    """Shards whose data I hold, first of all those I would like to work on."""
    ticket: int = 0
    """Comes back with the answer, so that each answer finds who asked."""

    def __post_init__(self) -> None:
        if len(self.shards) > MAX_SHARDS_NAMED:
            raise ValueError(f"{len(self.shards)} shards; name at most {MAX_SHARDS_NAMED}")


class Grant(Message, frozen=True):
    """Host: Your unit, and the bytes of the parameters to start from, unless you go on."""

    kind = 10
    unit: Unit
    base: Version
    rate: float
    """The learning rate of the local steps."""
    link: int = 0
    """Units of the same chain before this one: 0 starts from the bytes that come with it, otherwise
    the replica goes on from where the unit just sent has left it."""
    verdict: str = ""
    """What became of the update just received: empty, `accepted`, or why it was refused."""
    ticket: int = 0

    def __post_init__(self) -> None:
        check_words(self.verdict)
        if not 0 <= self.rate < math.inf or self.link < 0:
            raise ValueError(f"a rate of {self.rate} at link {self.link}")


class Wait(Message, frozen=True):
    """Host: There is nothing for you now, for this reason; ask again after so many seconds."""

    kind = 11
    reason: str
    seconds: float
    verdict: str = ""
    ticket: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < 1e9:
            raise ValueError(f"nobody can wait for {self.seconds} s")
        check_words(self.reason, self.verdict)


class GiveBack(Message, frozen=True):
    """Volunteer: I cannot finish this unit, for this reason; give it to another."""

    kind = 12
    unit: UnitId
    reason: str

    def __post_init__(self) -> None:
        check_words(self.reason)


class Heartbeat(Message, frozen=True):
    """Either: I am still here."""

    kind = 13


class Leave(Message, frozen=True):
    """Volunteer: I am going, for this reason."""

    kind = 14
    reason: str

    def __post_init__(self) -> None:
        check_words(self.reason)


class Finished(Message, frozen=True):
    """Host: The job is over, for this reason; you gave so many samples. Thank you."""

    kind = 15
    reason: str
    samples: int
    credit: float

    def __post_init__(self) -> None:
        check_words(self.reason)
        if not 0 <= self.samples < 1 << 63 or not 0 <= self.credit < math.inf:
            raise ValueError(f"{self.samples} samples for a credit of {self.credit}")


class Fetch(Message, frozen=True):
    """Volunteer: I am in the middle of a unit; please send me the newest parameters."""

    kind = 16
    ticket: int = 0


class Fresh(Message, frozen=True):
    """Host: Here are the bytes of the parameters now, of this version."""

    kind = 17
    base: Version
    ticket: int = 0


MESSAGES: tuple[type[Message], ...] = (
    Hello, Welcome, Problem, Join, Admit, RosterChanged, Get, Blob, Exchange, Grant, Wait, GiveBack,
    Heartbeat, Leave, Finished, Fetch, Fresh,
)  # fmt: skip

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {message.kind: msgspec.msgpack.Decoder(message) for message in MESSAGES}

M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    body = _ENCODER.encode(message)
    assert len(body) <= MAX_BODY_BYTES, f"{type(message).__name__} has {len(body)} bytes"
    return body


def decode(kind: int, body: bytes | bytearray | memoryview) -> Message:
    """Raises MessageError on anything that is not one of our messages, whole and sound."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MessageError(f"There is no message of kind {kind}.", advice="Update crowdgrad.")
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        name = next(message.__name__ for message in MESSAGES if message.kind == kind)
        why = one_line(str(error))[:MAX_WORDS]
        raise MessageError(f"A {name} message does not make sense: {why}.") from None


def problem(error: CrowdgradError) -> Problem:
    """What to tell the other side about an error of ours."""
    return Problem(
        code=error.code, message=error.message[:MAX_WORDS], advice=error.advice[:MAX_WORDS]
    )


def told(said: Problem) -> PeerError:
    """The error that the other side's Problem is for us: of the kind its code names."""
    kinds = {kind.code: kind for kind in tree(PeerError)}
    kind = kinds.get(said.code, PeerError)
    message, advice = one_line(said.message)[:MAX_WORDS], one_line(said.advice)[:MAX_WORDS]
    return kind(f"The other side says: {message}", advice=advice)


def expect(message: Message, wanted: type[M]) -> M:
    """The message if it is of the wanted type. Raises what a Problem says, or MessageError."""
    if isinstance(message, wanted):
        return message
    if isinstance(message, Problem):
        raise told(message)
    raise MessageError(f"Expected {wanted.__name__}, got {type(message).__name__}.")
