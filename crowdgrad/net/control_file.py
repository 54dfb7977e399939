"""How commands on the same machine reach a running process: a small file with address and token.

It holds a secret, so nobody else may read it: whoever can read it may steer the process. One that
dies leaves it behind, and a folder may come from elsewhere; so a reader believes only addresses of
this machine, and sends the token only to whoever says first who it is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from crowdgrad.files import is_stream, write_whole

logger = logging.getLogger(__name__)

TOKEN_BYTES = 32
MAX_BYTES = 4096
_HERE = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Where a process takes wishes, and what proves that they are its owner's."""

    url: str
    token: str = field(repr=False)
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        found = _HERE.fullmatch(self.url)
        assert found is not None
        return found[1].strip("[]"), int(found[2])


def new_token() -> str:
    return secrets.token_hex(TOKEN_BYTES)


def announce(path: Path, url: str, token: str, pid: int) -> None:
    """Whole or not at all, for its owner's eyes only. A full disk is said and costs no work."""
    told = json.dumps({"url": url, "token": token, "pid": pid})
    try:
        write_whole(path, told.encode(), sync=False, private=True)
    except OSError as error:
        logger.warning("%s cannot be written, no command can steer it: %s", path, error.strerror)


def withdraw(path: Path) -> None:
    """The process goes; fine if the file is gone already. What it told a pipe stays told."""
    with contextlib.suppress(OSError):
        if not is_stream(path):
            path.unlink()


def read(path: Path) -> Entrance | None:
    """None where there is none, or none to be believed."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            told = json.loads(file.read(MAX_BYTES))
        found = Entrance(url=told["url"], token=told["token"], pid=told["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    sound = (
        isinstance(found.url, str)
        and _HERE.fullmatch(found.url) is not None
        and found.address[1] < 1 << 16
        and isinstance(found.token, str)
        and found.token.isalnum()
        and found.token.isascii()
        and isinstance(found.pid, int)
    )
    return found if sound else None
