"""Who somebody is: an Ed25519 key. The id is the beginning of the public key's sha256.

A key is made at the first start and kept in the home folder; with its words (`net.phrase`) it can
be brought back on any machine. What is signed begins with what it is signed for, so that no
signature serves for anything else.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import Impostor, SettingError, TurnedAway
from crowdgrad.net import phrase

_CONTEXT = b"crowdgrad join 2\0"
_HOST_CONTEXT = b"crowdgrad host 2\0"
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

    @property
    def phrase(self) -> tuple[str, ...]:
        """The whole key as 24 words: whoever has them is us."""
        return phrase.of_key(self._key.private_bytes_raw())

    def sign(self, challenge: bytes, binding: bytes = b"") -> bytes:
        """As a volunteer that joins, over a connection bound to that key (`Connection.binding`)."""
        return self._key.sign(_CONTEXT + challenge + binding)

    def sign_text(self, text: bytes) -> bytes:
        """`text` begins with what it is signed for."""
        return self._key.sign(text)

    def derive(self, purpose: str) -> bytes:
        """A secret that only we can make, the same each time."""
        return _digest(self._key.private_bytes_raw(), purpose.encode())

    def pem(self) -> bytes:
        """The private key, as a TLS library wants it."""
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign_certificate(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self._key, None)

    def sign_as_host(self, theirs: bytes, ours: bytes, binding: bytes = b"") -> bytes:
        """Over the dialler's challenge and our own: fresh for both, and of this handshake and this
        connection only."""
        return self._key.sign(_HOST_CONTEXT + theirs + ours + binding)


def new_seed() -> bytes:
    """What a new key is made of: its 32 secret bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def from_seed(seed: bytes) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(seed))


def guest(seed: str = "") -> Identity:
    """A key for this process only; from a seed, the same for whoever has that."""
    if seed:
        return Identity(Ed25519PrivateKey.from_private_bytes(_digest(seed.encode())))
    return Identity(Ed25519PrivateKey.generate())


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((_SEED_CONTEXT, *parts))).digest()


def file_of(home: Path) -> Path:
    """Where the key is kept."""
    return home / "key"


def load_or_make(home: Path) -> Identity:
    """The key kept in the home folder, made at the first start, readable by its owner only."""
    raw = _read(file_of(home))
    if raw is None:
        try:
            return _place(home, Ed25519PrivateKey.generate())
        except FileExistsError:
            return load_or_make(home)
    if len(raw) != 32:
        raise SettingError(
            f"The key {file_of(home)} has {len(raw)} bytes instead of 32.",
            advice="Move it away and a new one is made; or `crowdgrad key recover --replace`.",
        )
    return Identity(Ed25519PrivateKey.from_private_bytes(raw))


def recover(home: Path, words: str, *, replace: bool = False) -> Identity:
    """Keep the key that the words stand for. `replace`: another one is kept beside, as `key.old`.

    Raises TargetError for words that are no key; SettingError where another key is in the way.
    """
    raw = phrase.to_key(words)
    key = Ed25519PrivateKey.from_private_bytes(raw)
    there = _read(file_of(home))
    if there == raw:
        return Identity(key)
    try:
        if there is not None and not replace:
            raise FileExistsError
        return _place(home, key, instead=there is not None)
    except FileExistsError:
        raise SettingError(
            f"Another key is kept in {file_of(home)} already.",
            advice="With --replace it is put beside, as key.old.",
        ) from None


def _read(file: Path) -> bytes | None:
    """None: there is none yet. Raises SettingError."""
    try:
        with file.open("rb") as opened:
            return opened.read(4096)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingError(
            f"The key {file} cannot be read: {error.strerror}.",
            advice="Mend it, or choose another folder with CROWDGRAD_HOME.",
        ) from None


def _place(home: Path, key: Ed25519PrivateKey, *, instead: bool = False) -> Identity:
    """Write a key, all of it or nothing. `instead`: of the one that is there.

    Raises FileExistsError where somebody else was quicker; SettingError.
    """
    file = file_of(home)
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix="key.", dir=home)  # for its owner only
        try:
            with open(handle, "wb") as opened:
                opened.write(key.private_bytes_raw())
                opened.flush()
                os.fsync(opened.fileno())
            if instead:
                _keep_old(file)
                os.replace(draft, file)
            else:
                os.link(draft, file)  # not replace: of two first starts at once, one key must win
        finally:
            Path(draft).unlink(missing_ok=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise SettingError(
            f"No key can be made in {home}: {error.strerror}.",
            advice="Choose another folder with CROWDGRAD_HOME.",
        ) from None
    return Identity(key)


def _keep_old(file: Path) -> None:
    """Under a name of its own: what was kept before stays too."""
    for number in itertools.count(1):
        try:
            os.link(file, file.with_name("key.old" if number == 1 else f"key.old-{number}"))
        except FileExistsError:
            continue
        return


PIN_DIGITS = 16
"""Of the shortest pin: what rosters carry and screens show."""


def digest_of(public: bytes) -> str:
    """The whole fingerprint of a key: 64 hexadecimal digits."""
    return hashlib.sha256(public).hexdigest()


def id_of(public: bytes) -> VolunteerId:
    return VolunteerId(digest_of(public)[:PIN_DIGITS])


def fits(pin: str, public: bytes) -> bool:
    """Whether a key is the one pinned: a pin is how its fingerprint begins, 16 digits or more."""
    return len(pin) >= PIN_DIGITS and digest_of(public).startswith(pin)


def verify(public: bytes, challenge: bytes, signature: bytes, binding: bytes = b"") -> VolunteerId:
    """The id of whoever signed the challenge, for this connection. Raises TurnedAway."""
    if not signed_by(public, _CONTEXT + challenge + binding, signature):
        raise TurnedAway("The challenge was not signed with that key, for this connection.")
    return id_of(public)


def verify_host(
    public: bytes, ours: bytes, theirs: bytes, signature: bytes, binding: bytes = b""
) -> None:
    """Whether the host with that key signed both challenges, for this connection.

    Raises Impostor.
    """
    bound = not binding or binding == public
    if not bound or not signed_by(public, _HOST_CONTEXT + ours + theirs + binding, signature):
        raise Impostor(
            "The host names a key that it does not have.",
            advice="Somebody may stand between you and the host: ask whoever gave you the address.",
        )


def signed_by(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether that key has signed exactly this."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
