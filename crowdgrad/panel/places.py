"""Paths that people type."""

from __future__ import annotations

import os
from pathlib import Path

from crowdgrad.errors import UserError


def place_of(text: str) -> Path:
    """With `~` put in. Raises UserError where no file can be called that."""
    try:
        found = Path(text).expanduser()
        sound = b"\0" not in os.fsencode(found)
    except (RuntimeError, UnicodeError):  # nobody's home; half a character
        sound = False
    if not sound:
        raise UserError(f"{text[:100]!r} is no path here.", advice="Type the whole path.")
    return found
