"""Who somebody is: an Ed25519 key. The id is the beginning of the public key's sha256.

What is signed begins with what it is signed for, so that no signature serves for anything else.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import SettingError, TurnedAway

_CONTEXT = b"crowdgrad join 1\0"
_HOST_CONTEXT = b"crowdgrad host 1\0"
_SEED_CONTEXT = b"crowdgrad seed 1"


@dataclass(frozen=True, slots=True)
class Identity:
    _key: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    @property
    def id(self) -> VolunteerId:
        return id_of(self.public)

    def sign(self, challenge: bytes) -> bytes:
        """As a volunteer that joins."""
        return self._key.sign(_CONTEXT + challenge)

    def derive(self, purpose: str) -> bytes:
        """A secret that only we can make, the same each time."""
        return _digest(self._key.private_bytes_raw(), purpose.encode())

    def sign_as_host(self, theirs: bytes, ours: bytes) -> bytes:
        """Over the dialler's challenge and our own: fresh for both, and of this handshake only."""
        return self._key.sign(_HOST_CONTEXT + theirs + ours)


def guest(seed: str = "") -> Identity:
    """A key for this process only; from a seed, the same for whoever has that."""
    if seed:
        return Identity(Ed25519PrivateKey.from_private_bytes(_digest(seed.encode())))
    return Identity(Ed25519PrivateKey.generate())


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((_SEED_CONTEXT, *parts))).digest()


def load_or_make(home: Path) -> Identity:
    """The key kept in the home folder, made at the first start, readable by its owner only."""
    file = home / "key"
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return _make(home, file)
    except OSError as error:
        raise SettingError(
            f"The key {file} cannot be read: {error.strerror}.",
            advice="Mend it, or choose another folder with CROWDGRAD_HOME.",
        ) from None
    if len(raw) != 32:
        raise SettingError(
            f"The key {file} has {len(raw)} bytes instead of 32.",
            advice="Move it away and a new one is made.",
        )
    return Identity(Ed25519PrivateKey.from_private_bytes(raw))


def _make(home: Path, file: Path) -> Identity:
    key = Ed25519PrivateKey.generate()
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix="key.", dir=home)  # for its owner only
        try:
            with open(handle, "wb") as opened:
                opened.write(key.private_bytes_raw())
            os.link(draft, file)  # not replace: of two first starts at once, one key must win
        finally:
            os.unlink(draft)
    except FileExistsError:
        return load_or_make(home)
    except OSError as error:
        raise SettingError(
            f"No key can be made in {home}: {error.strerror}.",
            advice="Choose another folder with CROWDGRAD_HOME.",
        ) from None
    return Identity(key)


def id_of(public: bytes) -> VolunteerId:
    return VolunteerId(hashlib.sha256(public).hexdigest()[:16])


def verify(public: bytes, challenge: bytes, signature: bytes) -> VolunteerId:
    """The id of whoever signed the challenge. Raises TurnedAway."""
    if not _signed(public, _CONTEXT + challenge, signature):
        raise TurnedAway("The challenge was not signed with that key.")
    return id_of(public)


def verify_host(public: bytes, ours: bytes, theirs: bytes, signature: bytes) -> str:
    """The fingerprint of the host that signed both challenges. Raises TurnedAway."""
    if not _signed(public, _HOST_CONTEXT + ours + theirs, signature):
        raise TurnedAway(
            "The host names a key that it does not have.",
            advice="Somebody may stand between you and the host: ask whoever gave you the address.",
        )
    return id_of(public)


def _signed(public: bytes, text: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
