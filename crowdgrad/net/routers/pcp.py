"""PCP (RFC 6887): NAT-PMP's successor, on the same port; whole numbers big-endian, IPv4 as IPv6.

    request    version 2, operation (MAP: 1), nothing (2), lifetime in s (4), our address (16)
    answer     version 2, 128 + operation, nothing, result, lifetime (4), seconds (4), nothing (12)
    both then  nonce (12), transport (TCP: 6), nothing (3), our port (2), outside: port, address

The nonce is ours alone: an answer without it is nobody's to believe, and only who has it may change
or give back the mapping. A router that knows only NAT-PMP answers with version 0.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from crowdgrad.errors import RouterError
from crowdgrad.net.routers.asking import WAITS_S, Waits, ask
from crowdgrad.net.routers.base import Grant, Name
from crowdgrad.net.routers.natpmp import SERVER_PORT

NONCE_BYTES = 12
MOST_BYTES = 1100
_VERSION, _MAP, _TCP, _ANSWER = 2, 1, 6, 0x80
_HEADER_BYTES, _MAP_BYTES = 24, 36
_MAP_ANSWER = bytes((_VERSION, _ANSWER | _MAP))
_RESULTS = {
    1: "it speaks another version",
    2: "not allowed: port mapping is switched off there",
    3: "it does not understand the request",
    4: "it does not know the request",
    5: "it does not know an option",
    6: "it does not understand an option",
    7: "it is not connected itself",
    8: "it has no port left",
    9: "it does not know TCP",
    10: "we have had our share of ports",
    11: "it cannot give that port",
    12: "another router stands between it and this machine",
    13: "too many others were named",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    address: str
    external: int
    lifetime_s: int


def ask_port(
    local: str, port: int, *, external: int, address: str, lifetime_s: int, nonce: bytes
) -> bytes:
    """`external`, `address`: what we had before or would like; 0 and '' for any."""
    assert len(nonce) == NONCE_BYTES
    header = struct.pack("!BBHI16s", _VERSION, _MAP, 0, lifetime_s, _as_ipv6(local))
    wish = _as_ipv6(address or "0.0.0.0")  # noqa: S104
    return header + struct.pack("!12sB3xHH16s", nonce, _TCP, port, external, wish)


def read_port(data: bytes, *, port: int, nonce: bytes) -> Mapped | None:
    """What was opened; None: this is no answer to our question. Raises RouterError."""
    if len(data) > MOST_BYTES or len(data) < 4:
        return None
    if data[0] != _VERSION and data[1] & _ANSWER:  # who does not know it cannot tell our nonce
        raise RouterError(f"it does not speak PCP of version {_VERSION}")
    if len(data) < _HEADER_BYTES + _MAP_BYTES or data[:2] != _MAP_ANSWER:
        return None
    result, lifetime_s = struct.unpack_from("!BI", data, 3)
    told, transport, ours, external, raw = struct.unpack_from("!12sB3xHH16s", data, _HEADER_BYTES)
    if told != nonce or transport != _TCP or ours != port:
        return None
    if result:
        raise RouterError(_RESULTS.get(result, f"it refuses, with result {result}"))
    found = ipaddress.IPv6Address(raw)
    return Mapped(address=str(found.ipv4_mapped or found), external=external, lifetime_s=lifetime_s)


def _as_ipv6(address: str) -> bytes:
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return b"\0" * 10 + b"\xff\xff" + found.packed
    return found.packed


class Pcp:
    name: Name = "PCP"

    def __init__(
        self, gateway: str, local: str, port: int, *, nonce: bytes,
        server_port: int = SERVER_PORT, waits_s: Waits = WAITS_S,
    ) -> None:  # fmt: skip
        self._where = (gateway, server_port)
        self._local = local
        self._port = port
        self._nonce = nonce
        self._waits_s = waits_s
        self._address = ""

    async def open(self, external: int, lifetime_s: int) -> Grant:
        mapped = await self._map(external, lifetime_s)
        if not mapped.external or not mapped.lifetime_s:
            raise RouterError("it opened nothing")
        self._address = mapped.address
        return Grant(address=mapped.address, port=mapped.external, lifetime_s=mapped.lifetime_s)

    async def close(self, grant: Grant) -> None:
        await self._map(grant.port, 0)

    async def _map(self, external: int, lifetime_s: int) -> Mapped:
        request = ask_port(
            self._local, self._port, external=external, address=self._address,
            lifetime_s=lifetime_s, nonce=self._nonce,
        )  # fmt: skip

        def read(data: bytes) -> Mapped | None:
            return read_port(data, port=self._port, nonce=self._nonce)

        return await ask(self._where, request, read, waits_s=self._waits_s)
