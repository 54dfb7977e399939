"""A host's key as twelve letters that can be read aloud: `K7Q2-MPX4-9RTM`.

Where a matchmaker is, it gives out codes and vouches for the key behind each. Where there is none,
the code is made from the key itself, so that whoever typed it can tell the right host on the local
network from any other. The fingerprint of a key (the sha256 of its public half) is read as a
fraction of one, 0.f₁f₂f₃…; its first eleven digits to base 30 are the first eleven letters. The
first 16 hexadecimal digits settle them, so a code can be held against any pin there is. 30¹¹ is
about 2⁵⁴: nobody at the next table makes a key with the same code.

The twelfth letter checks the others (Luhn's formula, to base 30): whatever single letter is
mistyped is noticed at once, as are two neighbours that changed places, but for `2Z` and `Z2`.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType

from crowdgrad.domain.matching import CODE_ALPHABET

LocalCode = NewType("LocalCode", str)
"""What a person types to find a host on the local network: `K7Q2-MPX4-9RTM`."""

LETTERS, CARRYING, GROUP = 12, 11, 4
_BASE = len(CODE_ALPHABET)
_DIGITS = 16
_FINGERPRINT = re.compile(r"[0-9a-f]{16,64}")
_GROUPS = re.compile(r"[A-Z0-9]{3,5}(?:[- ]+[A-Z0-9]{3,5}){2}")


def local_code(public: bytes) -> LocalCode:
    """The code of whoever has this public key."""
    return code_of(hashlib.sha256(public).hexdigest())


def code_of(fingerprint: str) -> LocalCode:
    """The code of a key by its fingerprint, or by the first 16 digits of it or more.

    Raises ValueError for what is none.
    """
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError(f"a fingerprint has 16 to 64 hexadecimal digits: {fingerprint[:70]!r}")
    number = int(fingerprint[:_DIGITS], 16) * _BASE**CARRYING >> 4 * _DIGITS
    letters = ""
    for _ in range(CARRYING):
        number, digit = divmod(number, _BASE)
        letters = CODE_ALPHABET[digit] + letters
    return _spelt(letters + _check_letter(letters))


def code_fits(code: LocalCode, fingerprint: str) -> bool:
    """Whether the key with this fingerprint (16 digits of it or more) is the one with the code."""
    return _FINGERPRINT.fullmatch(fingerprint) is not None and code_of(fingerprint) == code


def as_local_code(text: str) -> LocalCode | None:
    """The code a person meant: case, spaces and dashes do not matter; None: it is no such code.

    Raises ValueError, with the reason, for what was meant as one but was mistyped.
    """
    upper = text.strip().upper()
    letters = "".join(c for c in upper if c not in "- ")
    strange = sorted(set(letters) - set(CODE_ALPHABET))
    whole = len(letters) == LETTERS and not strange
    nearly = _GROUPS.fullmatch(upper) is not None and abs(len(letters) - LETTERS) <= 1
    if not whole and not nearly:
        return None
    if strange:
        raise ValueError(f"no code has the sign {strange[0]}")
    if not whole:
        raise ValueError(f"it has {len(letters)} letters and digits instead of {LETTERS}")
    if letters[-1] != _check_letter(letters[:-1]):
        raise ValueError("a letter is wrong, or two have changed places")
    return _spelt(letters)


def _spelt(letters: str) -> LocalCode:
    return LocalCode("-".join(letters[i : i + GROUP] for i in range(0, len(letters), GROUP)))


def _check_letter(letters: str) -> str:
    """Every second value counts twice, the last one too; its two digits to base 30 are added."""
    total = 0
    for place, letter in enumerate(reversed(letters)):
        value = CODE_ALPHABET.index(letter) * (2 if place % 2 == 0 else 1)
        total += value // _BASE + value % _BASE
    return CODE_ALPHABET[-total % _BASE]
