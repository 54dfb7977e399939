"""An introduction: the matchmaker's word to a host that it sent this volunteer, for a short while.

The host checks it with the matchmaker's public key, which it learned when it published; nobody has
to be asked. It is worth nothing without the volunteer's own key, which the host checks as well.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import TurnedAway
from crowdgrad.net.identity import Identity, signed_by

MAX_CHARACTERS = 1024
VALID_S = 600.0
"""How long after it was written somebody may come with it."""
SKEW_S = 300.0
"""How far the clocks of host and matchmaker may be apart."""

_CONTEXT = b"crowdgrad introduction 1\0"


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    host: str
    """Fingerprint of the host's key."""
    volunteer: str
    position: int
    written_at: float


_decoder = msgspec.json.Decoder(Introduction)


def write(key: Identity, introduction: Introduction) -> str:
    body = msgspec.json.encode(introduction)
    signature = key.sign_text(_CONTEXT + body)
    return f"{_text(body)}.{_text(signature)}"


def check(
    text: str, *, public: bytes, job: JobId, host: str, volunteer: VolunteerId, now: float
) -> Introduction:
    """What it says. `public`: the matchmaker's key. Raises TurnedAway, saying what does not fit."""
    if not text:
        raise _refusal("you bring none")
    try:
        body, signature = (_raw(part) for part in text[:MAX_CHARACTERS].split("."))
        if not signed_by(public, _CONTEXT + body, signature):
            raise _refusal("it is not signed by our matchmaker")
        said = _decoder.decode(body)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise _refusal("it cannot be read") from None
    if (said.job, said.host, said.volunteer) != (job, host, volunteer):
        raise _refusal("it is for somebody else, or for another job")
    if not -SKEW_S <= now - said.written_at <= VALID_S + SKEW_S:
        raise _refusal("it is out of date")
    return said


def _refusal(why: str) -> TurnedAway:
    return TurnedAway(
        f"This host takes volunteers that its matchmaker introduces: {why}.",
        advice="Come with the job's code (`crowdgrad work CODE`), not with an address.",
    )


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _raw(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
