"""What a person names to be helped: a code, a link, an address, or a job's id.

    K7Q-2MP                              a matchmaker's code; it vouches for the host's key
    K7Q2-MPX4-9RTM                       a host's own code; it is looked for on the local network
    https://…/j/K7Q-2MP#PIN, crowdgrad://…#PIN      links (`net.links`)
    192.0.2.7:8701, [2001:db8::7]:8701   an address; with #PIN only the host with that key
    relay:relay.example.org:8702#PIN     the host with that key, through a relay

As people paste things, spaces, quotes and brackets around it and a full stop behind are forgiven.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from crowdgrad.domain.codes import as_local_code
from crowdgrad.domain.matching import as_code
from crowdgrad.domain.routes import Route, route_of
from crowdgrad.errors import TargetError, one_line
from crowdgrad.net import links

_OPENING, _CLOSING = "<(\"'«“‘„", ">)\"'»”’.,;!?"
_PIN = re.compile(r"[0-9a-f]{16,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    routes: tuple[Route, ...] = ()
    """Ways to the host, best first; none: the matchmaker, or the local network, is asked."""
    key: str = ""
    """A pin: how the fingerprint of the host's key begins; empty: none was given."""
    job: str | None = None
    """The only job to work for, by code or id; None: whoever needs help."""
    matchmaker: str = ""
    """The one that the link named; empty: it named none."""
    local_code: str = ""
    """Of the host to look for on the local network; empty: none is looked for."""


def read(text: str | None) -> Target:
    """Raises TargetError for what is none of them, with the reason."""
    if text is None:
        return Target()
    meant = _as_pasted(text)
    if "://" in meant and not meant.startswith("relay:"):
        link = links.read(meant)
        return Target(routes=link.routes, key=link.key, job=link.job, matchmaker=link.matchmaker)
    if ":" in meant:
        return _address(meant)
    try:
        own = as_local_code(meant)
    except ValueError as error:
        raise TargetError(
            f"The code {one_line(meant)[:40]} cannot be right: {error}.",
            advice="Compare it with what the host shows.",
        ) from None
    if own is not None:
        return Target(local_code=own)
    if as_code(meant) is None and not meant.replace("-", "").isalnum():
        _refuse(meant, "is neither an address nor a job's code")
    return Target(job=meant)


def how(text: str) -> str:
    """By what a target was named: a link, an address, a code or an id. Raises TargetError."""
    found, meant = read(text), _as_pasted(text)
    if "://" in meant and not meant.startswith("relay:"):
        return "link"
    if found.routes:
        return "address"
    return "code" if found.local_code or as_code(found.job or "") else "id"


def _as_pasted(text: str) -> str:
    unseen = "".join({c for c in text if c.isspace() or not c.isprintable()})
    return text.strip(unseen).lstrip(_OPENING + unseen).rstrip(_CLOSING + unseen)


def _address(text: str) -> Target:
    where, hashed, pin = text.partition("#")
    try:
        route = route_of(where)
    except ValueError:
        _refuse(text, "is not an address")
    key = pin.lower()
    if hashed and not _PIN.fullmatch(key):
        _refuse(text, "has a pin after # that is not 16 to 64 hexadecimal digits")
    if route.kind == "relay" and not key:
        _refuse(
            text, "does not say whom to call through the relay: # and the host's pin is missing"
        )
    return Target(routes=(route,), key=key)


def _refuse(text: str, what: str) -> NoReturn:
    raise TargetError(
        f"{one_line(text)[:100]!r} {what}.",
        advice="Write HOST:PORT (IPv6 in brackets), or the code or link the host shows, e.g. "
        "K7Q-2MP.",
    )
