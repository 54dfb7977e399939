"""What a person names to be helped: a host's address, a job's code or id, or the job's link."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from crowdgrad.domain.matching import as_code
from crowdgrad.errors import TargetError, one_line

PAGE = "/j/"
"""What stands before the code in the address of a job's page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    address: tuple[str, int] | None = None
    """Where the host is; None: the matchmaker is asked."""
    job: str | None = None
    """The only job to work for, by code or id; None: whoever needs help."""
    matchmaker: str = ""
    """The one that the link named; empty: it named none."""


def read(text: str | None) -> Target:
    """Raises TargetError for what is none of them."""
    if text is None:
        return Target()
    if "://" in text:
        return _link(text)
    address = address_of(text)
    if address is not None:
        return Target(address=address)
    if as_code(text) is None and not text.replace("-", "").isalnum():
        raise TargetError(
            f"{text!r} is neither an address nor a job's code.",
            advice="Write HOST:PORT, or the code or link the host shows, e.g. K7Q-2MP.",
        )
    return Target(job=text)


def address_of(text: str) -> tuple[str, int] | None:
    """The address a text names, if it is one. Raises TargetError for a port that is none."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16 and host):
        raise TargetError(
            f"{text!r} is not an address.", advice="Write HOST:PORT, e.g. 192.0.2.7:8701."
        )
    return host.strip("[]"), int(port)


def _link(text: str) -> Target:
    """`https://match.example.org/j/K7Q-2MP`: the matchmaker and the job's code."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if known:
        before, page, name = parts.path.rstrip("/").rpartition(PAGE)
        code = as_code(name)
        if page and code is not None:
            return Target(job=code, matchmaker=f"{parts.scheme}://{parts.netloc}{before}")
    raise TargetError(
        f"{one_line(text)[:100]!r} is not the link of a job.",
        advice="It looks like https://match.example.org/j/K7Q-2MP: ask whoever hosts the job.",
    )
