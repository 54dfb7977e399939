"""What went over the wire: the TCP streams in a file that tcpdump wrote."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

COOKED, COOKED_2 = 113, 276
"""How packets of all interfaces (`-i any`) are kept."""
SYN = 0x02
TLS_RECORDS = range(20, 25)

End = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One connection; `sent` by whoever dialled, `answered` by the other."""

    dialler: End
    listener: End
    sent: bytes
    answered: bytes


def streams(capture: bytes) -> list[Stream]:
    """Every connection whose beginning was seen, in order. Raises ValueError for a lost packet."""
    begun: dict[tuple[End, End], int] = {}
    parts: defaultdict[tuple[End, End], dict[int, bytes]] = defaultdict(dict)
    dialled: list[tuple[End, End]] = []
    for ends, flags, number, data in _segments(capture):
        if flags & SYN:
            if begun.get(ends) == number:
                continue  # said again
            assert ends not in begun, f"{ends}: a port used twice"
            begun[ends] = number
            if ends[::-1] not in begun:
                dialled.append(ends)
        elif data and ends in begun:
            place = (number - begun[ends] - 1) % (1 << 32)
            held = parts[ends].get(place, b"")
            parts[ends][place] = max(held, data, key=len)
    return [
        Stream(
            dialler=ends[0],
            listener=ends[1],
            sent=_joined(parts[ends]),
            answered=_joined(parts[ends[::-1]]),
        )
        for ends in dialled
    ]


def _joined(parts: dict[int, bytes]) -> bytes:
    whole = bytearray()
    for place in sorted(parts):
        if place > len(whole):
            raise ValueError(f"bytes {len(whole)} to {place} of a stream are missing")
        whole += parts[place][len(whole) - place :]
    return bytes(whole)


def _segments(capture: bytes) -> Iterator[tuple[tuple[End, End], int, int, bytes]]:
    """Source and destination, flags, sequence number and data of each, over IPv4."""
    (magic,) = struct.unpack_from("<I", capture)
    assert magic == 0xA1B2C3D4, hex(magic)
    kind = struct.unpack_from("<I", capture, 20)[0] & 0xFFFF
    at = 24
    while at + 16 <= len(capture):
        kept, _ = struct.unpack_from("<II", capture, at + 8)
        packet = capture[at + 16 : at + 16 + kept]
        at += 16 + kept
        header, where = (20, 0) if kind == COOKED_2 else (16, 14)
        assert kind in (COOKED, COOKED_2), kind
        ip = packet[header:]
        if packet[where : where + 2] != b"\x08\x00" or ip[9] != 6:
            continue
        ip = ip[: struct.unpack_from(">H", ip, 2)[0]]
        tcp = ip[4 * (ip[0] & 15) :]
        source, destination, number = struct.unpack_from(">HHI", tcp)
        ends = (_dotted(ip[12:16]), source), (_dotted(ip[16:20]), destination)
        yield ends, tcp[13], number, tcp[4 * (tcp[12] >> 4) :]


def _dotted(address: bytes) -> str:
    return ".".join(map(str, address))


def is_tls(data: bytes) -> bool:
    """Whether it is TLS records from beginning to end; the last may be cut off."""
    at = 0
    while at < len(data):
        if data[at] not in TLS_RECORDS or data[at + 1 : at + 2] not in (b"\3", b""):
            return False
        if at + 5 > len(data):
            return True
        (length,) = struct.unpack_from(">H", data, at + 3)
        if length > (1 << 14) + 256:
            return False
        at += 5 + length
    return True
