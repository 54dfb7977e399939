"""NAT-PMP (RFC 6886): two questions, two answers, a dozen bytes each, numbers big-endian.

    what is your address?    0 0
    → 128                    version 0, 128, result (2), seconds since it began (4), address (4)
    open a TCP port          0 2, nothing (2), ours (2), suggested outside (2), lifetime in s (4)
    → 130                    version 0, 130, result (2), seconds (4), ours, outside, lifetime

A lifetime of nought gives the port back. There is nothing secret in an answer: that it comes from
the gateway's address (our socket is connected to it) and names our port is all there is to check.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.asking import WAITS_S, Waits, ask
from crowdgrad.net.routers.base import Grant, Name

SERVER_PORT = 5351
ASK_ADDRESS = b"\0\0"
_MAP_TCP = 2
_ANSWER = 128
_RESULTS = {
    1: "it speaks another version",
    2: "not allowed: port mapping is switched off there",
    3: "it is not connected itself",
    4: "it has no port left",
    5: "it does not know the request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    external: int
    lifetime_s: int


def ask_port(port: int, external: int, lifetime_s: int) -> bytes:
    return struct.pack("!BBHHHI", 0, _MAP_TCP, 0, port, external, lifetime_s)


def read_address(data: bytes) -> str | None:
    """The router's address outside; None: this is no answer to our question. Raises RouterError."""
    if not _answers(data, 0, 12):
        return None
    return str(ipaddress.IPv4Address(data[8:12]))


def read_port(data: bytes, port: int) -> Mapped | None:
    """What was opened for our `port`; None: this is no answer to our question.

    Raises RouterError.
    """
    if not _answers(data, _MAP_TCP, 16):
        return None
    ours, external, lifetime_s = struct.unpack("!HHI", data[8:16])
    return Mapped(external=external, lifetime_s=lifetime_s) if ours == port else None


def _answers(data: bytes, operation: int, size: int) -> bool:
    """Whether it is a whole answer to that request. Raises RouterError where it says no."""
    if len(data) < 4 or data[0] != 0 or data[1] < _ANSWER:
        return False
    result = int.from_bytes(data[2:4], "big")
    # Who does not know our version need not know what we asked.
    if result == 1 or (result and data[1] == _ANSWER + operation):
        raise RouterError(_RESULTS.get(result, f"it refuses, with result {result}"))
    return data[1] == _ANSWER + operation and len(data) == size


class NatPmp:
    name: Name = "NAT-PMP"

    def __init__(
        self, gateway: str, port: int, *, server_port: int = SERVER_PORT, waits_s: Waits = WAITS_S
    ) -> None:
        self._where = (gateway, server_port)
        self._port = port
        self._waits_s = waits_s

    async def open(self, external: int, lifetime_s: int) -> Grant:
        address = await ask(self._where, ASK_ADDRESS, read_address, waits_s=self._waits_s)
        mapped = await self._map(external, lifetime_s)
        if not mapped.external or not mapped.lifetime_s:
            raise RouterError("it opened nothing")
        return Grant(address=address, port=mapped.external, lifetime_s=mapped.lifetime_s)

    async def close(self, grant: Grant) -> None:
        await self._map(0, 0)

    async def _map(self, external: int, lifetime_s: int) -> Mapped:
        request = ask_port(self._port, external, lifetime_s)
        return await ask(
            self._where, request, lambda data: read_port(data, self._port), waits_s=self._waits_s
        )
