"""Where the router is: the gateway of the default route, and our own address towards it."""

from __future__ import annotations

import ipaddress
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.errors import RouterError

ROUTES = Path("/proc/net/route")
MOST_ROUTES = 256 * 1024
"""Bytes that are read of the table."""
UP, GATEWAY = 0x1, 0x2
ELSEWHERE = ("192.0.2.1", 9)
"""An address that nobody has: to find out, without sending anything, by which of ours we leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    gateway: str
    local: str
    """Our own address on the gateway's network."""
    guessed: bool = False
    """There is no table to read here, and the gateway is the first address of our network."""


def way_out(gateway: str | None = None, *, routes: Path = ROUTES) -> WayOut:
    """`gateway`: where it is known. Raises RouterError."""
    try:
        if gateway is not None:
            return WayOut(gateway=gateway, local=_local_towards(gateway))
        if routes.exists():
            with routes.open(encoding="ascii", errors="replace") as table:
                found = default_gateway(table.read(MOST_ROUTES), sys.byteorder == "little")
            if found is not None:
                return WayOut(gateway=found, local=_local_towards(found))
        else:
            local = _local_towards(*ELSEWHERE)
            return WayOut(gateway=first_of(local), local=local, guessed=True)
    except (OSError, UnicodeError) as error:
        raise _nowhere(str(error)) from None
    raise _nowhere("there is no default route of IPv4")


def default_gateway(table: str, little_endian: bool = True) -> str | None:
    """Of the text of /proc/net/route: the gateway of the default route with the least metric.

    Columns: interface, destination, gateway, flags, …, …, metric, mask; addresses as the machine's
    own whole numbers in hexadecimal.
    """
    best: tuple[int, str] | None = None
    for line in table.splitlines()[1:]:
        words = line.split()
        try:
            destination, gateway, flags, mask = (int(words[i], 16) for i in (1, 2, 3, 7))
            metric = int(words[6])
            raw = gateway.to_bytes(4, "little" if little_endian else "big")
        except (IndexError, ValueError, OverflowError):
            continue
        if destination or mask or flags & (UP | GATEWAY) != UP | GATEWAY or not gateway:
            continue
        if best is None or metric < best[0]:
            best = (metric, str(ipaddress.IPv4Address(raw)))
    return best and best[1]


def first_of(local: str) -> str:
    """Where routers at home are, nearly always: the first address of the network."""
    network = ipaddress.ip_network(f"{local}/24", strict=False)
    return str(network[1])


def _local_towards(host: str, port: int = 9) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        trial.connect((host, port))  # sends nothing
        return str(trial.getsockname()[0])


def _nowhere(why: str) -> RouterError:
    return RouterError(
        f"There is no router to ask for a port: {why}.",
        advice="Is this machine connected to a network? Without a router, none is needed.",
    )
