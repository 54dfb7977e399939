"""The head of an HTTP answer: what somebody needs of it who fetches a file of known size.

A server is a stranger, so this knows only what servers of files send. No pieces of unknown length
(`Transfer-Encoding`), nothing packed (`Content-Encoding`), no lines that go on in the next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEAD_BYTES = 16 << 10
REDIRECTS = (301, 302, 303, 307, 308)
GONE = (401, 403, 404, 410)
"""Not there, or not for everybody: stores say 403 of what is not there."""

_STATUS = re.compile(r"HTTP/1\.([01]) ([2-5][0-9]{2})(?: [^\r\n]*)?")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_LENGTH = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    status: int
    length: int | None
    """Of the body, where that is known beforehand."""
    coding: str
    """How the body is packed or cut; empty: not at all."""
    location: str
    keep: bool
    """Whether the connection is there for more."""


def parse_head(raw: bytes) -> Head:
    """All up to the empty line, which may be there. Raises ValueError with words."""
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise ValueError("it does not begin as one of HTTP/1.1 does")
    fields: dict[str, set[str]] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise ValueError("its head has a line that is none")
        fields.setdefault(field[1].lower(), set()).add(field[2].strip())
    codings = fields.get("content-encoding", set()) | fields.get("transfer-encoding", set())
    wishes = {
        word.strip() for said in fields.get("connection", ()) for word in said.lower().split(",")
    }
    return Head(
        status=int(status[2]),
        length=_length(fields.get("content-length", set())),
        coding=", ".join(sorted(codings - {"identity", ""})),
        location=_only(fields.get("location", set())),
        keep="close" not in wishes and (status[1] == "1" or "keep-alive" in wishes),
    )


def _only(said: set[str]) -> str:
    if len(said) > 1:
        raise ValueError("it says two things at once")
    return next(iter(said), "")


def _length(said: set[str]) -> int | None:
    text = _only(said)
    if not said:
        return None
    if _LENGTH.fullmatch(text) is None:
        raise ValueError("the length it says is none")
    return int(text)
