"""The service's log: what happened, one line each, for people or machines, and no secrets in it.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "crowdgrad.matchmaker.telling",
     "event": "joined", "fields": {"volunteer": "a3f5c2d4e6b80917"}}

Everything that is written passes through here: keys, signatures, nonces, introductions and
passwords are hidden wherever they stand, of public addresses only the network is left, and
strangers' words cannot move the cursor or begin a line. What happens very often is told now and
then, and how often.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Literal, get_args

Style = Literal["text", "json"]
STYLES: tuple[Style, ...] = get_args(Style)
OURS = "crowdgrad.matchmaker"
TROUBLES = frozenset({"store trouble"})
"""What happened and is not well."""
HIDDEN = "…"
MAX_TEXT = 1000
MAX_FIELDS = 32
MAX_TRACE = 40
MOST_PER_S = 50
"""Lines of one kind."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SECRET_FIELD = re.compile(
    r"signature|nonce|introduction|authorization|password|secret|token|private|database|body",
    re.IGNORECASE,
)
_SECRETS = (
    # postgresql://user:password@host, whatever the password is made of
    (re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):\S*@", re.IGNORECASE), rf"\1:{HIDDEN}@"),
    # password=…, "nonce": …
    (
        re.compile(
            r"\b(\w*(?:password|secret|token|nonce|signature|introduction))([\"']?\s*[=:]\s*)\S+",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"\bCrowdgrad key=\S+"), f"Crowdgrad {HIDDEN}"),
    # keys, nonces, signatures; a fingerprint has 16 digits and stays
    (re.compile(r"\b[0-9a-fA-F]{32,}\b"), HIDDEN),
    # introductions
    (re.compile(r"[A-Za-z0-9_-]{32,}\.[A-Za-z0-9_-]{32,}"), HIDDEN),
)
_IPV4 = re.compile(r"(?:(?<![\w:.])::ffff:|(?<![\w.]))(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?:\.\d{1,3}){3})?")
_NEAR = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))
)


def log_event(logger: logging.Logger, event: str, /, **fields: object) -> None:
    level = logging.WARNING if event in TROUBLES else logging.INFO
    if logger.isEnabledFor(level):
        logger.log(level, "%s", event, extra={"event": event, "fields": fields})


@contextlib.contextmanager
def logging_as(style: Style | None) -> Iterator[None]:
    """Until the block ends the log is written like this; None: only what is not well, as text."""
    handlers, ours = logging.getLogger().handlers, logging.getLogger(OURS)
    before = [handler.formatter for handler in handlers]
    level, sparing = ours.level, Sparing()
    for handler in handlers:
        handler.setFormatter(JsonLines() if style == "json" else TextLines())
        handler.addFilter(sparing)
    if style is not None:
        ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        for handler, formatter in zip(handlers, before, strict=True):
            handler.setFormatter(formatter)
            handler.removeFilter(sparing)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(entry(record), ensure_ascii=False)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = entry(record)
        fields = said.get("fields")
        words = [f"{said['time']} {said['level']} {said['event']}"]
        if isinstance(fields, dict):
            words += [f"{name}={value}" for name, value in fields.items()]
        error = said.get("error")
        return "\n".join([" ".join(words), *(error if isinstance(error, list) else ())])


class Sparing(logging.Filter):
    """Lets through so many lines of one kind a second; the next one says how many it left out."""

    def __init__(
        self, most_per_s: int = MOST_PER_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most = most_per_s
        self._clock = clock
        self._told: dict[str, tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(getattr(record, "event", record.msg))[:100]
        now = int(self._clock())
        second, told, unsaid = self._told.get(kind, (now, 0, 0))
        if second != now:
            told = 0
        spare = told >= self._most
        if len(self._told) > 1000:
            self._told.clear()
        self._told[kind] = (now, told, unsaid + 1) if spare else (now, told + 1, 0)
        record.unsaid = unsaid
        return not spare


def entry(record: logging.LogRecord) -> dict[str, object]:
    at = datetime.fromtimestamp(record.created, UTC)
    found: dict[str, object] = {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname,
        "logger": record.name,
        "event": clean(record.getMessage()),
    }
    fields = _fields(record)
    if fields:
        found["fields"] = fields
    if record.exc_info and record.exc_info[0] is not None:
        lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
        found["error"] = [_spaced(line) for line in lines[-MAX_TRACE:]]
    return found


def _fields(record: logging.LogRecord) -> dict[str, object]:
    given = getattr(record, "fields", None)
    known = list(given.items())[:MAX_FIELDS] if isinstance(given, dict) else []
    fields = {clean(str(name)): _field(str(name), value) for name, value in known}
    if getattr(record, "unsaid", 0):
        fields["unsaid"] = record.unsaid  # type: ignore[attr-defined]
    return fields


def _field(name: str, value: object) -> object:
    if _SECRET_FIELD.search(name):
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value if value == value else None  # JSON has no NaN
    text = clean(str(value))
    is_name = "address" in name.lower() and text == str(value)  # nothing in it was hidden
    return HIDDEN if is_name and not _near_enough(text) else text


def clean(text: str) -> str:
    """One line of bounded length, without secrets."""
    text = _CONTROL.sub(" ", text[: 10 * MAX_TEXT])
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    text = _IPV6.sub(_network, _IPV4.sub(_network, text))
    return text[:MAX_TEXT]


def _spaced(line: str) -> str:
    """A line of a trace, as far to the right as it was."""
    return " " * (len(line) - len(line.lstrip())) + clean(line.lstrip())


def _network(found: re.Match[str]) -> str:
    address = _parsed(found[0].removeprefix("::ffff:"))
    if address is None or _is_near(address):
        return found[0]
    prefix = 24 if address.version == 4 else 48
    return str(ipaddress.ip_network((int(address), prefix), strict=False))


def _near_enough(text: str) -> bool:
    """Whether an address is nobody's secret: this machine, or its own network."""
    host = text.rpartition(":")[0] if text.count(":") == 1 else text
    address = _parsed(host.strip("[]"))
    return address is not None and _is_near(address)


def _is_near(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or any(address in network for network in _NEAR)
    )


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
