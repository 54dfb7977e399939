"""What host and servers prove to each other: that they know one secret, without saying it.

Each proof is an HMAC of what it is for, so that none serves for anything else.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import SettingError
from crowdgrad.net.identity import Identity, from_seed

LEAST_SECRET_BYTES = 16
MAX_SECRET_BYTES = 4096


def of_host(secret: bytes, job: JobId, hosts: bytes, servers: bytes) -> bytes:
    """A host's proof, over both challenges."""
    return _proof(secret, b"host", job.encode(), hosts, servers)


def of_server(secret: bytes, job: JobId, hosts: bytes, servers: bytes) -> bytes:
    return _proof(secret, b"server", job.encode(), hosts, servers)


def token(secret: bytes, job: JobId, volunteer: VolunteerId, admission: int) -> str:
    """What lets a volunteer in, at every server of the job, while that admission lasts."""
    parts = b"volunteer", job.encode(), volunteer.encode(), admission.to_bytes(8, "big")
    return _proof(secret, *parts).hex()


def key_of(secret: bytes) -> Identity:
    """The key of every server that has the secret: whoever knows it knows whom it must prove."""
    return from_seed(_proof(secret, b"key"))


def same(one: bytes | str, other: bytes | str) -> bool:
    """Compared in a time that tells nothing."""
    ours, theirs = (text.encode() if isinstance(text, str) else text for text in (one, other))
    return hmac.compare_digest(ours, theirs)


def read_secret(file: Path) -> bytes:
    """Raises SettingError."""
    try:
        found = file.read_bytes().strip()
    except OSError as error:
        raise SettingError(
            f"The secret {file} cannot be read: {error.strerror}.",
            advice="Make one with `openssl rand -hex 32`, the same file for host and servers.",
        ) from None
    return checked(found, str(file))


def checked(secret: bytes, where: str) -> bytes:
    """Raises SettingError where it is too short to be one. `where`: it was found."""
    if not LEAST_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        raise SettingError(
            f"The secret {where} has {len(secret)} bytes.",
            advice=f"Give {LEAST_SECRET_BYTES} to {MAX_SECRET_BYTES}: `openssl rand -hex 32`.",
        )
    return secret


def _proof(secret: bytes, *parts: bytes) -> bytes:
    text = b"crowdgrad server 1" + b"".join(len(p).to_bytes(4, "big") + p for p in parts)
    return hmac.digest(secret, text, hashlib.sha256)
