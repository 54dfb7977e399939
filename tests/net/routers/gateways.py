"""A router on loopback that speaks NAT-PMP and PCP as it is told, also badly. Its bytes are written
out here by hand, so that they are not what our own code takes them for."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from types import TracebackType
from typing import Any

SHORT = (0.05, 0.05, 30.0)
"""Asked again soon, and then patiently: for routers that lose the first two questions."""
HASTY = (0.01, 0.01)
"""For routers that never answer."""


class Gateway(asyncio.DatagramProtocol):
    def __init__(
        self,
        *,
        pcp: bool = True,
        address: str = "203.0.113.7",
        lose: int = 0,
        result: int = 0,
        before: tuple[bytes, ...] = (),
        silent: bool = False,
        lifetime_s: int | None = None,
    ) -> None:
        """`lose`: so many questions are not heard. `before`: said before each true answer."""
        self.pcp = pcp
        self.address = address
        self.lose = lose
        self.result = result
        self.before = before
        self.silent = silent
        self.lifetime_s = lifetime_s
        self.heard: list[bytes] = []
        self.open: dict[int, int] = {}
        """Port inside → port outside."""
        self.taken: set[int] = set()
        self._transport: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Gateway:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._transport is not None
        self._transport.close()

    @property
    def port(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.append(data)
        if self.lose or self.silent:
            self.lose -= not self.silent
            return
        assert self._transport is not None
        answer = self._pcp(data) if data[0] == 2 and self.pcp else self._nat_pmp(data)
        for each in (*self.before, answer):
            self._transport.sendto(each, addr)

    def _outside(self, port: int, wanted: int, lifetime_s: int) -> int:
        if not lifetime_s:
            self.open.pop(port, None)
            return 0
        while wanted in self.taken:
            wanted += 1
        self.open[port] = wanted
        return wanted

    def _nat_pmp(self, data: bytes) -> bytes:
        if data[0] != 0:
            return bytes.fromhex("0081 0001 00000005")  # of a version it does not know
        if data == b"\0\0":
            known = ipaddress.IPv4Address(self.address).packed
            return bytes.fromhex("0080") + struct.pack(">HI", self.result, 5) + known
        _, _, _, port, wanted, lifetime_s = struct.unpack(">BBHHHI", data)
        if self.result:
            return bytes.fromhex("0082") + struct.pack(">HIHHI", self.result, 5, port, 0, 0)
        wanted = self._outside(port, wanted, lifetime_s)
        lifetime_s = min(lifetime_s, self.lifetime_s or lifetime_s)
        return bytes.fromhex("0082 0000 00000005") + struct.pack(">HHI", port, wanted, lifetime_s)

    def _pcp(self, data: bytes) -> bytes:
        assert len(data) == 60
        assert data[:4] == b"\x02\x01\0\0"
        lifetime_s = int.from_bytes(data[4:8], "big")
        assert ipaddress.IPv6Address(data[8:24]).ipv4_mapped is not None
        nonce, transport = data[24:36], data[36]
        port, wanted = struct.unpack(">HH", data[40:44])
        lifetime = struct.pack(">I", min(lifetime_s, self.lifetime_s or lifetime_s))
        head = (
            b"\x02\x81\0" + bytes([self.result]) + lifetime + bytes.fromhex("00000005") + b"\0" * 12
        )
        if self.result:
            return head + data[24:]
        wanted = self._outside(port, wanted, lifetime_s)
        outside = b"\0" * 10 + b"\xff\xff" + ipaddress.IPv4Address(self.address).packed
        return (
            head + nonce + bytes([transport, 0, 0, 0]) + struct.pack(">HH", port, wanted) + outside
        )
