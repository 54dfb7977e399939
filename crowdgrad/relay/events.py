"""What happens at a relay: counted for Prometheus, told line by line, and no secrets in it.

Of public addresses only the network is told. What happens very often is told now and then.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter
from collections.abc import Callable

from crowdgrad.errors import one_line

MOST_PER_S = 50
"""Lines of one kind; the next one says how many were left out."""
MAX_VALUE = 200

logger = logging.getLogger(__name__)


class Events:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.refusals: Counter[str] = Counter()
        """By reason; reasons are our own words, so there are few."""
        self.ends: Counter[str] = Counter()
        self.pairs = self.registrations = self.arrivals = self.measures = 0
        self.to_hosts = self.to_callers = 0
        """Bytes of pairs that are over."""
        self._clock = clock
        self._second = 0
        self._told: Counter[str] = Counter()
        self._unsaid: Counter[str] = Counter()

    def tell(self, event: str, **fields: object) -> None:
        """`key=…`: a fingerprint. `address`: as it is counted."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._told.clear()
        self._told[event] += 1
        if self._told[event] > MOST_PER_S:
            self._unsaid[event] += 1
            return
        unsaid = self._unsaid.pop(event, 0)
        if unsaid:
            fields["unsaid"] = unsaid
        if "address" in fields:
            fields["address"] = network_of(str(fields["address"]))
        shown = " ".join(f"{name}={_shown(value)}" for name, value in fields.items() if value != "")
        logger.info("%s %s", event, shown)

    def refused(self, reason: str, words: str, **fields: object) -> None:
        self.refusals[reason] += 1
        self.tell("refused", reason=reason, **fields, words=words)


def _shown(value: object) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else one_line(str(value))[:MAX_VALUE]
    return f'"{text}"' if " " in text else text


def network_of(address: str) -> str:
    """An address in a log: of the wide world only the network, of our own network all of it."""
    try:
        found = ipaddress.ip_network(address, strict=False)
    except ValueError:
        return one_line(address)[:64]
    if not found.is_global:
        return address
    prefix = 24 if found.version == 4 else 48
    return str(found.supernet(new_prefix=prefix) if found.prefixlen > prefix else found)
