"""Links to a job. Each carries a pin: the first 32 digits of the fingerprint of the host's key.

    https://match.example.org/j/K7Q-2MP#PIN         the matchmaker says where the host is
    crowdgrad://192.0.2.7:8701/#PIN                  no matchmaker is needed
    crowdgrad://192.0.2.7:8701/?also=relay:relay.example.org:8702&job=ID#PIN
    crowdgrad:///?also=relay:relay.example.org:8702#PIN    the host has no address of its own

What follows `#` is never sent to a server: a matchmaker does not learn it, and cannot change it.
Ways to the host are tried in the order of the link, the address first. Whatever of a link is
altered on its way, whoever answers has to prove the pinned key: an altered address leads nowhere,
or to somebody who is refused. Only a link that lost its pin would be worse than none, so what is
left of one is refused, as is anything else after `#`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import SplitResult, quote, unquote, urlsplit

from crowdgrad.domain.matching import as_code, check_job_id
from crowdgrad.domain.routes import MAX_ROUTES, Route, route_of
from crowdgrad.errors import TargetError, one_line
from crowdgrad.net.identity import digest_of

SCHEME = "crowdgrad"
PAGE = "/j/"
"""What stands before the code in the address of a job's page."""
PIN_DIGITS = 32
"""Of a pin in a link: 128 bits."""
MAX_LINK = 2048

_PIN = re.compile(rf"[0-9a-f]{{{PIN_DIGITS}}}")
_SAFE = ":/[]@,!$'()*;~"
"""What needs no % in a part of the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link says."""

    routes: tuple[Route, ...] = ()
    """Ways to the host, best first; none: the matchmaker knows."""
    key: str = ""
    """A pin of the host's key; empty, where the link has none: the matchmaker vouches for it."""
    job: str | None = None
    """Its code where a matchmaker is named, else its id."""
    matchmaker: str = ""


def pin_of(public: bytes) -> str:
    return digest_of(public)[:PIN_DIGITS]


def of_matchmaker(link: str, public: bytes) -> str:
    """The link of a job's page, as the matchmaker gave it, with the pin of the host's key."""
    return f"{link.partition('#')[0]}#{pin_of(public)}"


def of_routes(routes: Sequence[Route], public: bytes, job: str = "") -> str:
    """A link that needs no matchmaker. `routes`: best first; the last are left out if too long."""
    assert routes
    named = tuple(routes[:MAX_ROUTES])
    while len(link := _written(named, pin_of(public), job)) > MAX_LINK:
        named = named[:-1]
    return link


def _written(routes: Sequence[Route], pin: str, job: str) -> str:
    first = routes[0]
    plain = first.kind == "direct" and not first.url
    where = quote(str(first), safe=":[]") if plain else ""
    asked = [f"also={quote(str(route), safe=_SAFE)}" for route in routes[1 if plain else 0 :]]
    asked += [f"job={job}"] if job else []
    return f"{SCHEME}://{where}/{'?' if asked else ''}{'&'.join(asked)}#{pin}"


def read(text: str) -> Link:
    """Raises TargetError, saying what is wrong with it."""
    if len(text) > MAX_LINK:
        _refuse(text, f"it is longer than {MAX_LINK} characters")
    if not (text.isascii() and text.isprintable()) or " " in text:
        _refuse(text, "there is a space, a line break or a strange sign in it")
    try:
        parts = urlsplit(text)
    except ValueError:
        _refuse(text, "the name of the host in it makes no sense")
    if parts.scheme == SCHEME:
        return _direct(text, parts)
    if parts.scheme in ("http", "https"):
        return _page(text, parts)
    _refuse(text, f"links begin with https:// or {SCHEME}://")


def _page(text: str, parts: SplitResult) -> Link:
    """A job's page. Without a pin it is as good as its code: the matchmaker vouches for the key."""
    before, page, name = parts.path.rstrip("/").rpartition(PAGE)
    code = as_code(name)
    if not (page and code is not None and parts.hostname):
        _refuse(text, f"it does not end with {PAGE} and a job's code")
    if parts.query and "=" not in parts.query:  # what is left of `#PIN`, for instance
        _refuse(text, "what follows the code makes no sense")
    key = _pin(text, parts) if "#" in text else ""
    site = f"{parts.scheme}://{parts.netloc}{before}"
    return Link(job=code, matchmaker=site, key=key)


def _direct(text: str, parts: SplitResult) -> Link:
    key = _pin(text, parts)
    if parts.path not in ("", "/"):
        _refuse(text, "there is something between the address and what follows ?")
    named = [parts.netloc] if parts.netloc else []
    jobs: list[str] = []
    for asked in parts.query.split("&") if parts.query else []:
        name, _, value = asked.partition("=")
        if name not in ("also", "job"):
            _refuse(text, f"{one_line(name)[:20]!r} is nothing that a link says")
        (named if name == "also" else jobs).append(value)
    if not 0 < len(named) <= MAX_ROUTES:
        _refuse(text, f"it names {len(named) or 'no'} ways to the host")
    try:
        routes = tuple(route_of(unquote(one)) for one in named)
        for job in jobs:
            check_job_id(job)
    except ValueError as error:
        _refuse(text, str(error))
    if len(jobs) > 1:
        _refuse(text, f"it names {len(jobs)} jobs")
    if parts.netloc and routes[0].kind == "relay":
        _refuse(text, "a relay stands after also=")
    return Link(routes=routes, key=key, job=jobs[0] if jobs else None)


def _pin(text: str, parts: SplitResult) -> str:
    pin = parts.fragment.lower()
    if not pin:
        _refuse(text, "its end, # and the pin of the host's key, is missing")
    if not _PIN.fullmatch(pin):
        digits = set(pin) <= set("0123456789abcdef")
        wrong = f"{len(pin)} digits" if digits else "other signs"
        _refuse(text, f"after # there are {wrong} instead of {PIN_DIGITS} hexadecimal digits")
    return pin


def _refuse(text: str, reason: str) -> NoReturn:
    raise TargetError(
        f"{one_line(text)[:100]!r} is not the link of a job: {reason}.",
        advice="Copy it again, all of it, or ask whoever hosts the job.",
    )
