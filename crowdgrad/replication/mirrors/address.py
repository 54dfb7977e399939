"""The address of a mirror, as a job file has it: read strictly, since strangers write them, too.

    https://example.org/data/people.prepared          any web server
    http://192.168.1.7:8000                           … one without TLS: every byte is verified
    s3://bucket/people.prepared                       a public bucket, by fsspec and s3fs
    gs://bucket/people.prepared                       … by gcsfs
    abfs://container@account.dfs.core.windows.net/p   … by adlfs

An address is all a mirror needs, so it holds no password, no token and no question.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

MAX_ADDRESS = 500
WEB = {"http": 80, "https": 443}
"""Schemes that need nothing but the standard library, and their ports."""
STORES = ("s3", "gs", "abfs")
LOW_PORTS = (80, 443)
"""Others below 1024 are not the web's: nobody is to be led to say something to a mail server."""

_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = rf"(?=[^/:]{{1,253}}(?:[:/]|$)){_LABEL}(?:\.{_LABEL})*"
_PATH = r"(?P<path>(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*)"
_WEB = re.compile(
    rf"(?P<host>{_NAME}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?{_PATH}"
)
_BUCKET = re.compile(rf"(?P<host>[a-z0-9][a-z0-9._-]{{1,220}}[a-z0-9]){_PATH}")
_CONTAINER = re.compile(
    rf"(?P<host>[a-z0-9$][a-z0-9-]{{1,62}}@[a-z0-9]{{3,24}}\.(?:dfs|blob)\.core\.windows\.net){_PATH}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An address, taken apart; made by `parse`."""

    scheme: str
    host: str
    """Without brackets. Of a store the bucket, or container and account."""
    port: int
    """0 for a store."""
    path: str
    """Without a slash at its end."""

    @property
    def site(self) -> str:
        """Whom to ask, as a request names it: the port only where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in (0, WEB.get(self.scheme)) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.site}{self.path}"


def check_address(text: str) -> None:
    """Raises ValueError with words where it cannot be a mirror's."""
    parse(text)


def parse(text: str) -> Place:
    """Raises ValueError with words."""
    if not 0 < len(text) <= MAX_ADDRESS:
        raise ValueError(f"a mirror's address has 1 to {MAX_ADDRESS} characters, not {len(text)}")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError(f"a mirror's address is of letters, digits and signs: {_shown(text)}")
    scheme, found, rest = text.partition("://")
    scheme = scheme.lower()
    if not found or scheme not in (*WEB, *STORES):
        known = ", ".join(f"{name}://" for name in (*WEB, *STORES))
        raise ValueError(f"a mirror's address begins with one of {known}: {_shown(text)}")
    if "?" in rest or "#" in rest:
        raise ValueError("a mirror's address has nothing behind ? or #: it must do without")
    person, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (scheme != "abfs" or ":" in person or "@" in person):
        raise ValueError("a mirror's address names no user and no password: it is for everybody")
    return _web(scheme, rest, text) if scheme in WEB else _store(scheme, rest, text)


def parse_web(text: str) -> Place:
    """Raises ValueError with words, also where it is in a store."""
    place = parse(text)
    if place.scheme not in WEB:
        raise ValueError(f"a mirror on the web begins with http:// or https://: {_shown(text)}")
    return place


def _shown(text: str) -> str:
    """Of an address that is refused, without what may be a password: errors are printed."""
    return repr(re.split("[?#]", text.rpartition("@")[2])[0])


def _web(scheme: str, rest: str, text: str) -> Place:
    match = _WEB.fullmatch(rest)
    if match is None:
        raise ValueError(f"this is not the address of a mirror on the web: {_shown(text)}")
    port = int(match["port"] or WEB[scheme])
    if port not in LOW_PORTS and not 1024 <= port <= 65535:
        raise ValueError(f"a mirror is on port 80, 443 or one from 1024 to 65535, not {port}")
    host = match["host"].strip("[]").lower()
    if match["host"].startswith("["):
        ipaddress.IPv6Address(host)
    return Place(scheme=scheme, host=host, port=port, path=match["path"].rstrip("/"))


def _store(scheme: str, rest: str, text: str) -> Place:
    match = (_CONTAINER if scheme == "abfs" else _BUCKET).fullmatch(rest)
    if match is None:
        like = "abfs://container@account.dfs.core.windows.net/folder"
        wanted = like if scheme == "abfs" else f"{scheme}://bucket/folder"
        raise ValueError(f"a mirror in this store has an address like {wanted}: {_shown(text)}")
    return Place(scheme=scheme, host=match["host"], port=0, path=match["path"].rstrip("/"))
