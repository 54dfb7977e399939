"""A port of ours, opened in the router: by whichever of three protocols it speaks.

PCP is asked first, then NAT-PMP, which lives at the same port, then UPnP, whose device is looked
for while the second is asked. Nearly every router at home speaks one of them, unless its owner has
switched it off.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.base import FOR_EVER, Grant, Name, Way
from crowdgrad.net.routers.gateway import WayOut, way_out
from crowdgrad.net.routers.natpmp import NatPmp
from crowdgrad.net.routers.pcp import NONCE_BYTES, Pcp
from crowdgrad.net.routers.upnp import Upnp
from crowdgrad.planner.nat import Kind, judge

LIFETIME_S = 3600
LEAST_PORT = 1024
"""Below it are services that no stranger should take for ours."""
ADVICE = (
    "Switch on UPnP or NAT-PMP in the router, or forward the port there by hand; a relay needs "
    "neither. docs/home.md has the steps."
)


class Mapping:
    """A port in the router. Whoever dials `address`:`port` outside reaches `local`:`local_port`."""

    def __init__(
        self, way: Way, out: WayOut, local_port: int, grant: Grant, lifetime_s: int
    ) -> None:
        self._way = way
        self._grant = grant
        self._wanted_s = lifetime_s
        self.local = out.local
        self.local_port = local_port
        self.gateway = out.gateway

    @property
    def address(self) -> str:
        """The router's address outside, as it says; perhaps none of the internet: see `judge`."""
        return self._grant.address

    @property
    def port(self) -> int:
        return self._grant.port

    @property
    def outside(self) -> tuple[str, int]:
        return self.address, self.port

    @property
    def protocol(self) -> Name:
        return self._way.name

    @property
    def lifetime_s(self) -> int:
        """How long the router keeps it without `renew`; 0: until `close`."""
        return self._grant.lifetime_s

    def judge(self, observed: str = "") -> tuple[Kind, str]:
        """What of it others can use, and why; `observed`: the address that they see of us."""
        return judge(self.local, self.address, observed)

    async def renew(self) -> bool:
        """Ask for it again; whether address or port outside have changed. Raises RouterError."""
        if way_out(self.gateway).local != self.local:
            raise RouterError(f"This machine is no longer {self.local}.")
        before = self.outside
        self._grant = await self._way.open(self.port, self._wanted_s)
        return self.outside != before

    async def close(self) -> None:
        """Give the port back. Raises RouterError: the router then forgets it in time."""
        await self._way.close(self._grant)

    def __repr__(self) -> str:
        until = "for ever" if self.lifetime_s == FOR_EVER else f"for {self.lifetime_s} s"
        return (
            f"<Mapping {self.address}:{self.port} → {self.local}:{self.local_port} "
            f"by {self.protocol}, {until}>"
        )


async def open_port(
    port: int,
    *,
    lifetime_s: int = LIFETIME_S,
    gateway: str | None = None,
    ways: Sequence[Way] | None = None,
) -> Mapping:
    """Ask the router to pass on what comes in for us, best at a port of the same number.

    `ways`: those to try, for tests. Takes some seconds where the router is silent.
    Raises RouterError, with what each way said.
    """
    assert 0 < port < 1 << 16
    assert lifetime_s > 0
    out = way_out(gateway)
    upnp = Upnp(out, port, other_ports=_any_port)
    if ways is None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        ways = (Pcp(out.gateway, out.local, port, nonce=nonce), NatPmp(out.gateway, port), upnp)
    said: list[str] = []
    try:
        for way in ways:
            try:
                grant = await way.open(port, lifetime_s)
            except RouterError as error:
                said.append(f"{way.name}: {error.message}")
                if len(said) == 1 and upnp in ways:
                    upnp.look()
            else:
                return Mapping(way, out, port, grant, lifetime_s)
    finally:
        upnp.forget()
    raise RouterError(
        f"The router at {out.gateway} opens no port {port}: {'; '.join(said)}.", advice=ADVICE
    )


async def close_quietly(mapping: Mapping) -> None:
    """Whoever leaves does not mind a router that no longer answers."""
    with contextlib.suppress(RouterError):
        await mapping.close()


def _any_port() -> int:
    return LEAST_PORT + secrets.randbelow((1 << 16) - LEAST_PORT)
