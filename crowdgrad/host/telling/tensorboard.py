"""TensorBoard's event files, written without TensorBoard: a few numbers a second.

A file is a row of records: length (uint64, little endian), its checksum, the bytes, theirs. The
checksum is CRC-32C, turned and shifted ("masked") so that checksums of checksums stay good. The
bytes are a protocol buffer `Event`: wall time, step, and the file's version, a summary of named
numbers, or the word that a session starts, upon which TensorBoard forgets steps after it that an
earlier file still holds. A host that goes on from a checkpoint begins a new file with that word.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.host.telling.growing import GrowingFile

logger = logging.getLogger(__name__)

FILE_VERSION = "brain.Event:2"
SESSION_START = 1
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many values lie above the limit before and up to each limit."""

    limits: Sequence[float]
    counts: Sequence[float]
    mean: float


class EventFile:
    """One file of events. A full disk costs what is written, never the training."""

    def __init__(self, folder: Path, wall_time: float, *, resumed_at: int | None = None) -> None:
        """`resumed_at`: the step that is gone on from, where steps after it were written before."""
        self._lost = False
        self._file = self._create(folder, wall_time)
        self._write(event(wall_time, version=FILE_VERSION))
        if resumed_at is not None:
            self._write(event(wall_time, resumed_at, starts=True))

    def add(
        self,
        wall_time: float,
        step: int,
        scalars: Mapping[str, float],
        histograms: Mapping[str, Histogram] | None = None,
    ) -> None:
        """Numbers that are not finite are left out."""
        known = {tag: value for tag, value in scalars.items() if math.isfinite(value)}
        if known or histograms:
            self._write(event(wall_time, step, scalars=known, histograms=histograms or {}))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _create(self, folder: Path, wall_time: float) -> GrowingFile | None:
        name = f"events.out.tfevents.{int(wall_time):010d}.crowdgrad"
        try:
            number = sum(1 for _ in folder.glob(f"{name}*"))  # two hosts within one second
            return GrowingFile(folder / (f"{name}.{number}" if number else name), new=True)
        except OSError as error:
            self._warn(error)
            return None

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.add(record(data))
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._lost:
            logger.warning("TensorBoard's files cannot be written: %s", error.strerror)
        self._lost = True


# -- the format ---------------------------------------------------------------------------------


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def event(
    wall_time: float,
    step: int = 0,
    *,
    version: str = "",
    scalars: Mapping[str, float] | None = None,
    histograms: Mapping[str, Histogram] | None = None,
    starts: bool = False,
) -> bytes:
    parts = [_double(1, wall_time), _integer(2, step) if step else b""]
    if version:
        parts.append(_bytes(3, version.encode()))
    values = [
        *(_value(tag, _float(2, number)) for tag, number in (scalars or {}).items()),
        *(_value(tag, _bytes(5, _histogram(h))) for tag, h in (histograms or {}).items()),
    ]
    if values:
        parts.append(_bytes(5, b"".join(values)))
    if starts:
        parts.append(_bytes(7, _integer(1, SESSION_START)))
    return b"".join(parts)


def _value(tag: str, content: bytes) -> bytes:
    return _bytes(1, _bytes(1, tag.encode()) + content)


def _histogram(histogram: Histogram) -> bytes:
    count = float(sum(histogram.counts))
    return b"".join(
        (
            _double(1, histogram.limits[0] if histogram.limits else 0.0),
            _double(2, histogram.limits[-1] if histogram.limits else 0.0),
            _double(3, count),
            _double(4, histogram.mean * count),
            _bytes(6, _doubles(histogram.limits)),
            _bytes(7, _doubles(histogram.counts)),
        )
    )


def _doubles(values: Iterable[float]) -> bytes:
    return b"".join(struct.pack("<d", value) for value in values)


def _double(field: int, value: float) -> bytes:
    """Zero is what a reader takes for granted; the real writers leave it out, too."""
    if not value:
        return b""
    return bytes((field << 3 | 1,)) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return bytes((field << 3 | 5,)) + struct.pack("<f", max(-3.4e38, min(3.4e38, value)))


def _integer(field: int, value: int) -> bytes:
    return bytes((field << 3,)) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_row(byte) for byte in range(256))
