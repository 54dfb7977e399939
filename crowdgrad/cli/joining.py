"""How others can join, as `crowdgrad host` shows it: code, address, link, and its QR code.

Whatever can be passed on carries the host's key or is vouched for: a matchmaker's code by the
matchmaker, a code of our own, an address and a link by a pin.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crowdgrad.cli.display import qr_code
from crowdgrad.domain.routes import route_of
from crowdgrad.net.addresses import is_loopback

if TYPE_CHECKING:
    from rich.console import Console

MARGIN = 2
MOST_ADDRESSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a host can be joined; what is empty cannot be used."""

    code: str = ""
    """The matchmaker's …"""
    matchmaker: str = ""
    """… and where that is."""
    local_code: str = ""
    """Made from the key: for whoever is on the same network."""
    addresses: tuple[str, ...] = ()
    """HOST:PORT, best first."""
    link: str = ""
    """With the pin of our key."""
    key: str = ""
    """Fingerprint of our key: 16 digits."""

    @property
    def only_here(self) -> bool:
        """Nobody from another machine can come."""
        near = all(is_loopback(route_of(address).host) for address in self.addresses)
        return bool(self.addresses) and near and not (self.code or self.local_code)


def show(console: Console, ways: Ways, *, qr: bool = False) -> None:
    """`qr`: draw the link in any case, not only in a terminal where it fits."""
    if ways.only_here:
        ways = replace(ways, link="")
    rows = _rows(ways)
    if rows:
        who = "Only this machine" if ways.only_here else "Others"
        console.print(f"{who} can join with:" if len(rows) == 1 else f"{who} can join with any of:")
    width = max((len(name) for name, _ in rows), default=0)
    for name, what in rows:
        # Never broken: it is to be copied whole, and a terminal joins what it wraps itself.
        console.print(
            f"{' ' * MARGIN}{name:<{width}}  {what}", highlight=False, markup=False, soft_wrap=True
        )
    if ways.key:
        console.print(f"They are shown your key's fingerprint: {ways.key}", highlight=False)
    if ways.link:
        _draw(console, ways.link, anyway=qr)


def _rows(ways: Ways) -> list[tuple[str, str]]:
    rows = []
    if ways.code:
        where = f" --matchmaker {shlex.quote(ways.matchmaker)}" if ways.matchmaker else ""
        rows.append(("from anywhere", f"crowdgrad work {ways.code}{where}"))
    if ways.local_code:
        rows.append(("on this network", f"crowdgrad work {ways.local_code}"))
    for address in ways.addresses[:MOST_ADDRESSES]:
        pinned = f"{address}#{ways.key}" if ways.key else address
        rows.append(("by address", f"crowdgrad work {pinned}"))
    if ways.link.startswith("http"):
        rows.append(("by link", ways.link))
    elif ways.link:  # no browser opens it
        rows.append(("by link", f"crowdgrad work {shlex.quote(ways.link)}"))
    return rows


def _draw(console: Console, link: str, *, anyway: bool) -> None:
    picture = qr_code(link)
    fits = picture.plain.index("\n") <= console.width
    if anyway or (console.is_terminal and fits):
        console.print(picture, highlight=False, soft_wrap=True)
