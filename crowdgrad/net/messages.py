"""Everything volunteers, hosts and servers say to each other, in the order in which they say it.

Each message is one sentence. It travels as the body of a frame; where the sentence mentions bytes,
they are the frame's payload. A message that is not in `MESSAGES` does not exist.
"""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

import msgspec

from crowdgrad.domain.data import ChunkHash, Seal, check_hash
from crowdgrad.domain.job import MAX_SERVERS, Job, JobId, Roster, ServerPlace, Volunteer
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.routes import MAX_ROUTES, route_of
from crowdgrad.domain.spreading import (
    MAX_CHUNKS,
    MAX_NEIGHBOURS,
    Flow,
    Neighbour,
    Spreading,
    check_set,
)
from crowdgrad.domain.work import (
    MAX_COUNT,
    MAX_WORD,
    LocalRule,
    LocalSteps,
    Unit,
    UnitId,
    Update,
    Version,
    VolunteerId,
)
from crowdgrad.errors import CrowdgradError, MessageError, PeerError, one_line, tree
from crowdgrad.net import introduction as introductions

PROTOCOL = (4, 2)
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
PROOF_BYTES = 32
"""Of HMAC-SHA256."""
TICKET_BYTES = 16
"""Of a call that a relay passes on."""
MAX_MEMORY_NUMBERS = 64
MAX_LANES = 64
MAX_CHUNKS_NAMED = 4096
MAX_SAMPLES = 1 << 63
"""That anybody can have given."""


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


def _check_rhythm(heartbeat_s: float, silence_s: float) -> None:
    if not (0.1 <= 2 * heartbeat_s <= silence_s <= MAX_SILENCE_S):
        raise ValueError(f"a heartbeat every {heartbeat_s} s, silence after {silence_s} s")


class Hello(Message, frozen=True):
    """Dialler: I speak this protocol and run this software; sign this challenge."""

    kind = 1
    protocol: tuple[int, int]
    software: str
    challenge: bytes = b""
    """Empty from a peer that need not be shown who we are."""

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
    introduction: str = ""
    """The matchmaker's word that it sent us here; empty where nobody did."""

    def __post_init__(self) -> None:
        if len(self.introduction) > introductions.MAX_CHARACTERS:
            raise ValueError(
                f"an introduction has at most {introductions.MAX_CHARACTERS} characters"
            )


class Admit(Message, frozen=True):
    """Host: You are in, at this place; program and manifest have so many bytes; beat like this."""

    kind = 5
    job: Job
    position: int
    program_bytes: int
    manifest_bytes: int
    heartbeat_s: float
    silence_s: float
    servers: tuple[ServerPlace, ...] = ()
    """Who holds the parameters, and which part of them; nobody: the host itself."""
    in_step: bool = False
    """Whether a unit must start from exactly its base: then parts are pulled once it is granted,
    with `since`, and what is pushed asks for nothing."""
    seal: Seal | None = None
    """Of the manifest, by the key the host has proven; None from one that has proven none."""
    spreading: Spreading | None = None
    """How the data spreads; None: every chunk is asked for here, by name."""

    def __post_init__(self) -> None:
        if len(self.servers) > MAX_SERVERS:
            raise ValueError(f"{len(self.servers)} servers; at most {MAX_SERVERS}")
        if min(self.position, self.program_bytes, self.manifest_bytes) < 0:
            raise ValueError("places and bytes count from zero")
        _check_rhythm(self.heartbeat_s, self.silence_s)


class RosterChanged(Message, frozen=True):
    """Host: These are the members now."""

    kind = 6
    roster: Roster


class Get(Message, frozen=True):
    """Volunteer, to a host or another volunteer: Please send me the bytes with this hash."""

    kind = 7
    hash: ChunkHash


class Blob(Message, frozen=True):
    """Host, or another volunteer: Here are the bytes with this hash."""

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
    yours: int = 0
    """Samples of yours that have counted so far, in all your visits."""
    given: int = 0
    """… of all members; 0 before anybody has given any, and from hosts that do not say."""

    def __post_init__(self) -> None:
        check_words(self.verdict)
        if not 0 <= self.rate < math.inf or self.link < 0:
            raise ValueError(f"a rate of {self.rate} at link {self.link}")
        _check_given(self.yours, self.given)


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
    rests: bool = False
    """My owner wants a pause: the unit is not to blame, and I ask again when it is over."""

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
    """Host: The job is over, for this reason; you gave so many samples of all. Thank you."""

    kind = 15
    reason: str
    samples: int
    credit: float
    given: int = 0
    """Samples of all members; 0 from hosts that do not say."""

    def __post_init__(self) -> None:
        check_words(self.reason)
        if not 0 <= self.credit < math.inf:
            raise ValueError(f"a credit of {self.credit}")
        _check_given(self.samples, self.given)


class Fetch(Message, frozen=True):
    """Volunteer: I am in the middle of a unit; please send me the newest parameters."""

    kind = 16
    ticket: int = 0


class Fresh(Message, frozen=True):
    """Host: Here are the bytes of the parameters now, of this version."""

    kind = 17
    base: Version
    ticket: int = 0


# -- servers: a volunteer and each of those that hold a part of the parameters --------------------


class Enter(Message, frozen=True):
    """Volunteer: I am this one, as the host's token proves; let me push and pull."""

    kind = 18
    volunteer: VolunteerId
    token: str
    admission: int = 0
    """The one the token is for."""

    def __post_init__(self) -> None:
        _check_volunteer(self.volunteer)
        if len(self.token) > 2 * PROOF_BYTES or not self.token.isprintable():
            raise ValueError(f"a token has at most {2 * PROOF_BYTES} characters")
        _check_admission(self.admission)

    def __repr__(self) -> str:
        """Without the token: it is a secret, and this may be logged."""
        return f"Enter(volunteer={self.volunteer!r}, admission={self.admission})"


class Entered(Message, frozen=True):
    """Server: You are in."""

    kind = 19


class Push(Message, frozen=True):
    """Volunteer: My update's part for this unit, if I have one; please send me your part."""

    kind = 20
    unit: UnitId | None = None
    """None: there is no update, only the parameters are wanted, at once."""
    granted: Version | None = None
    """What the unit starts from by the host's word: `base` of its `Grant`."""
    base: Version | None = None
    """What this server had sent for the unit: `base` of its `Pulled`."""
    since: Version | None = None
    """The answer is to be no older than this version, where it is of the same incarnation."""
    lane: int = 0
    link: int = 0
    """Units of the same chain before this one, as it was granted."""
    wants: bool = True
    """Whether the answer is to bring the parameters."""
    ticket: int = 0

    def __post_init__(self) -> None:
        if self.unit is not None and not 0 <= self.unit < MAX_COUNT:
            raise ValueError(f"a push for unit {self.unit}")
        if (self.unit is None) != (self.granted is None):
            raise ValueError("a push names a unit and what it was granted from, or neither")
        if not 0 <= self.lane < MAX_LANES or not 0 <= self.link < MAX_WORD:
            raise ValueError(f"a push from lane {self.lane}, link {self.link} of its chain")


class Pulled(Message, frozen=True):
    """Server: That is decided; here is my part of the parameters, if you want it."""

    kind = 21
    base: Version
    """Which version the part is of; this server's newest published one."""
    ticket: int = 0


# -- servers: the host and each of them -----------------------------------------------------------


class TakeCharge(Message, frozen=True):
    """Host: I am the host of this job and know our secret, as this proves."""

    kind = 22
    job: JobId
    proof: bytes

    def __post_init__(self) -> None:
        _check_proof(self.proof)
        if not 0 < len(self.job) <= 64 or not self.job.isprintable():
            raise ValueError(f"job {self.job[:70]!r}")


class InCharge(Message, frozen=True):
    """Server: So do I, as this proves; I serve nobody else now."""

    kind = 23
    proof: bytes

    def __post_init__(self) -> None:
        _check_proof(self.proof)


class Equip(Message, frozen=True):
    """Host: Hold a part of the parameters like this and change it by this rule."""

    kind = 24
    spec: ProgramSpec
    """Of the part alone, as if it were a program of its own."""
    local: LocalSteps
    rule: LocalRule
    heartbeat_s: float
    silence_s: float
    patience: float = 0.0
    decay: float = 0.0
    publish_every: int = 1
    half_backups: bool = False
    whole: bool = False
    """It is a copy of everything and changes by itself, not a part that changes with others."""
    admission: int = 0
    """The first that is not over."""

    def __post_init__(self) -> None:
        if not (0 <= self.patience < math.inf and 0 <= self.decay < math.inf):
            raise ValueError(f"a patience of {self.patience}, a decay of {self.decay}")
        _check_rhythm(self.heartbeat_s, self.silence_s)
        if not 1 <= self.publish_every < MAX_COUNT:
            raise ValueError(f"a version published every {self.publish_every} changes")
        _check_admission(self.admission)


class Equipped(Message, frozen=True):
    """Server: I am ready for the part's numbers."""

    kind = 25


class Staged(Message, frozen=True):
    """Server: My part of this volunteer's update for that unit is here, finite or not."""

    kind = 26
    push: int
    """My own number for it."""
    volunteer: VolunteerId
    unit: UnitId
    incarnation: int
    """Of the parameters here."""
    sound: bool
    """Whether all its numbers are finite and its counters credible."""
    admission: int = 0
    """The one under which it was pushed: what comes late is not taken for what follows it."""

    def __post_init__(self) -> None:
        _check_push(self.push)
        _check_volunteer(self.volunteer)
        if not 0 <= self.unit < MAX_COUNT or not 0 <= self.incarnation < MAX_COUNT:
            raise ValueError(f"what {self.volunteer} pushed for unit {self.unit}")
        _check_admission(self.admission)


class Apply(Message, frozen=True):
    """Host: Apply this push of yours as the next change; then answer who pushed it."""

    kind = 27
    push: int
    version: Version
    """Before the change: every server makes the same changes in the same order."""
    base: Version
    rate: float
    batches: int
    under_way: int

    def __post_init__(self) -> None:
        _check_push(self.push)
        if not 0 <= self.rate < math.inf or self.batches < 1 or self.under_way < 0:
            raise ValueError(
                f"a rate of {self.rate}, {self.batches} batches, {self.under_way} under way"
            )


class Refuse(Message, frozen=True):
    """Host: Forget this push of yours; then answer who pushed it."""

    kind = 28
    push: int

    def __post_init__(self) -> None:
        _check_push(self.push)


class Merge(Message, frozen=True):
    """Host: Add this push of yours to the round's mean; then answer who pushed it."""

    kind = 29
    push: int
    version: Version
    samples: int
    batches: int

    def __post_init__(self) -> None:
        _check_push(self.push)
        if not 0 < self.samples < MAX_COUNT or not 0 < self.batches < MAX_COUNT:
            raise ValueError(f"{self.samples} samples in {self.batches} batches")


class ApplyMerged(Message, frozen=True):
    """Host: Apply the round's mean, as the next change."""

    kind = 30
    version: Version
    """Before the change."""
    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate < math.inf:
            raise ValueError(f"a rate of {self.rate}")


class Save(Message, frozen=True):
    """Host: How is your part, after all I have told you so far? Send me a copy, if I want one."""

    kind = 31
    ticket: int
    state: bool = True
    """Send the numbers, not only whether they are finite."""
    memory: bool = True
    """Send also what the rule remembers."""


class Kept(Message, frozen=True):
    """Server: It is of that version, finite or not: the state, then what the rule remembers."""

    kind = 32
    ticket: int
    version: Version
    sound: bool
    """Whether all numbers of the state are finite."""
    numbers: dict[str, float] = {}
    """What the rule remembers besides vectors."""
    steps: int = 0

    def __post_init__(self) -> None:
        _check_memory(self.numbers, self.steps)


class GoBack(Message, frozen=True):
    """Host: Be this from now on, under that version; forget everything that is staged."""

    kind = 33
    version: Version
    numbers: dict[str, float] = {}
    steps: int = 0

    def __post_init__(self) -> None:
        _check_memory(self.numbers, self.steps)


class Shift(Message, frozen=True):
    """Host: Add this to your copy: it is where the mean of all copies lies from yours."""

    kind = 34


class Dismiss(Message, frozen=True):
    """Host: This volunteer's admission is over; let it go, and in only with a later one."""

    kind = 35
    volunteer: VolunteerId
    admission: int

    def __post_init__(self) -> None:
        _check_volunteer(self.volunteer)
        _check_admission(self.admission)


# -- a relay and the host that is served by it ----------------------------------------------------


class RelayKnock(Message, frozen=True):
    """Relay: Somebody calls; dial me and answer with this ticket."""

    kind = 36
    ticket: bytes

    def __post_init__(self) -> None:
        if len(self.ticket) != TICKET_BYTES:
            raise ValueError(f"a ticket has {TICKET_BYTES} bytes")

    def __repr__(self) -> str:
        """Without the ticket: whoever has it may answer in our place."""
        return "RelayKnock()"


# -- data that grows, which the host tells a volunteer before a unit of it ------------------------


class Grew(Message, frozen=True):
    """Host: The data has grown; this is its manifest now, with so many bytes, and my seal on it."""

    kind = 37
    manifest: ChunkHash
    manifest_bytes: int
    seal: Seal | None = None

    def __post_init__(self) -> None:
        check_hash(self.manifest)
        if self.manifest_bytes < 0:
            raise ValueError("bytes count from zero")


# -- data that spreads: a volunteer and its host --------------------------------------------------


class Shares(Message, frozen=True):
    """Volunteer: I exchange data with others; they may dial me there, or I dial them."""

    kind = 38
    port: int = 0
    """Where I listen; 0: I do not."""
    addresses: tuple[str, ...] = ()
    """Of mine, for members of the same network; others hear what the host sees of me."""
    gives: bool = True
    """Whether others get anything of me just now."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16 or len(self.addresses) > MAX_ROUTES:
            raise ValueError(f"port {self.port} at {len(self.addresses)} addresses")
        for address in self.addresses:
            route_of(address)


class Neighbours(Message, frozen=True):
    """Host: Exchange data with these members, and have these shards before you are asked."""

    kind = 39
    neighbours: tuple[Neighbour, ...] = ()
    source: int | None = None
    """Whom alone to ask, by place, in a tree; 0: me. None: any of them."""
    order: tuple[int, ...] = ()
    """In a tree: whom to serve, by place, the first first."""
    shards: tuple[tuple[int, int], ...] = ()
    """Ranges of numbers: the first, and the one after the last."""

    def __post_init__(self) -> None:
        if max(len(self.neighbours), len(self.order)) > MAX_NEIGHBOURS:
            raise ValueError(f"{len(self.neighbours)} neighbours; at most {MAX_NEIGHBOURS}")
        if len(self.shards) > MAX_SHARDS_NAMED:
            raise ValueError(f"{len(self.shards)} ranges of shards")
        if any(not 0 <= first <= stop < MAX_COUNT for first, stop in self.shards):
            raise ValueError("a range of shards ends before it begins")


class Feed(Message, frozen=True):
    """Volunteer: Send me up to so many chunks of those I want, whichever is best for all of us."""

    kind = 40
    until: int
    """How many in all since I joined: I raise it as they come."""
    wants: bytes | None = None
    """All I want; None: as said before, less what I hold."""
    urgent: tuple[int, ...] = ()
    """Of these, what a unit of mine waits for."""

    def __post_init__(self) -> None:
        if not 0 <= self.until < MAX_COUNT:
            raise ValueError(f"{self.until} chunks in all")
        check_set(self.wants or b"")
        _check_chunks(self.urgent)


class Holds(Message, frozen=True):
    """Volunteer: I hold these chunks, too, and not those any more; this came from whom."""

    kind = 41
    chunks: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    flows: tuple[Flow, ...] = ()
    whole: bytes | None = None
    """All I hold; None: what I said before with these changes."""

    def __post_init__(self) -> None:
        _check_chunks(self.chunks, self.lost)
        check_set(self.whole or b"")
        if len(self.flows) > MAX_CHUNKS_NAMED:
            raise ValueError(f"{len(self.flows)} flows")


# -- data that spreads: two volunteers ------------------------------------------------------------


class Meet(Message, frozen=True):
    """Dialler: I am this member of that job, as this proves; let us exchange data."""

    kind = 42
    job: JobId
    key: bytes
    signature: bytes
    """Over the listener's challenge."""

    def __post_init__(self) -> None:
        if (len(self.key), len(self.signature)) != (KEY_BYTES, SIGNATURE_BYTES):
            raise ValueError(f"a key of {len(self.key)} bytes, signed with {len(self.signature)}")
        if not 0 < len(self.job) <= 64:
            raise ValueError(f"job {self.job[:70]!r}")


class Met(Message, frozen=True):
    """Listener: Our host has told me of you; let us."""

    kind = 43


class Have(Message, frozen=True):
    """Either: I hold these chunks, too, and not those any more."""

    kind = 44
    chunks: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    whole: bytes | None = None
    """All I hold; None: what I said before with these changes."""

    def __post_init__(self) -> None:
        _check_chunks(self.chunks, self.lost)
        check_set(self.whole or b"")


class Unget(Message, frozen=True):
    """Either: I do not need the bytes with this hash any more."""

    kind = 45
    hash: ChunkHash


class Lack(Message, frozen=True):
    """Either: I cannot send you the bytes with this hash, for this reason."""

    kind = 46
    hash: ChunkHash
    reason: str

    def __post_init__(self) -> None:
        check_words(self.reason)


def _check_given(*samples: int) -> None:
    if not all(0 <= count < MAX_SAMPLES for count in samples):
        raise ValueError(f"{samples} samples")


def _check_chunks(*lists: tuple[int, ...]) -> None:
    for numbers in lists:
        if len(numbers) > MAX_CHUNKS_NAMED:
            raise ValueError(f"{len(numbers)} chunks; name at most {MAX_CHUNKS_NAMED}")
        if numbers and not (min(numbers) >= 0 and max(numbers) < MAX_CHUNKS):
            raise ValueError("chunks have numbers from zero")


def _check_volunteer(who: str) -> None:
    if not 0 < len(who) <= 64 or not who.isalnum():
        raise ValueError(f"volunteer id {who[:70]!r}")


def _check_admission(admission: int) -> None:
    if not 0 <= admission < MAX_COUNT:
        raise ValueError(f"admissions have numbers from zero, not {admission}")


def _check_push(push: int) -> None:
    if not 0 <= push < MAX_COUNT:
        raise ValueError(f"pushes have numbers from zero, not {push}")


def _check_proof(proof: bytes) -> None:
    if len(proof) != PROOF_BYTES:
        raise ValueError(f"a proof has {PROOF_BYTES} bytes")


def _check_memory(numbers: dict[str, float], steps: int) -> None:
    if len(numbers) > MAX_MEMORY_NUMBERS or any(len(name) > MAX_NAME for name in numbers):
        raise ValueError(f"a rule remembers at most {MAX_MEMORY_NUMBERS} numbers, by short names")
    if not 0 <= steps < MAX_COUNT:
        raise ValueError(f"a rule has stepped {steps} times")


MESSAGES: tuple[type[Message], ...] = (
    Hello, Welcome, Problem, Join, Admit, RosterChanged, Get, Blob, Exchange, Grant, Wait, GiveBack,
    Heartbeat, Leave, Finished, Fetch, Fresh, Enter, Entered, Push, Pulled, TakeCharge, InCharge,
    Equip, Equipped, Staged, Apply, Refuse, Merge, ApplyMerged, Save, Kept, GoBack, Shift,
    Dismiss, RelayKnock, Grew, Shares, Neighbours, Feed, Holds, Meet, Met, Have, Unget, Lack,
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
