"""The idx format of the MNIST files: two zero bytes, type, rank, big-endian sizes, the numbers."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from crowdgrad.domain.program import MAX_RANK
from crowdgrad.errors import DataMalformed, DataMissing

MAX_HEADER_BYTES = 4 + 4 * MAX_RANK
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> np.ndarray:
    """Raises DataMissing, DataMalformed."""
    try:
        with path.open("rb") as file:
            head = file.read(MAX_HEADER_BYTES)
            read_header(head, path.stat().st_size, str(path))
            return parse_idx(head + file.read(), str(path))
    except OSError as error:
        raise DataMissing(
            f"{path} cannot be read: {error.strerror}.", advice="Check the path."
        ) from error


def parse_idx(data: bytes, name: str) -> np.ndarray:
    """The array in `data` (a view of it where the byte order allows); `name` is for messages."""
    dtype, shape, start = read_header(data[:MAX_HEADER_BYTES], len(data), name)
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def read_header(head: bytes, size: int, name: str) -> tuple[np.dtype, tuple[int, ...], int]:
    """Type, shape and where the numbers start; `size` is that of the file, `head` its beginning."""
    if len(head) < 4 or head[:2] != b"\0\0":
        raise _malformed(name, f"begins with {head[:4].hex() or 'nothing'}, not with 0000")
    code, rank = head[2], head[3]
    if code not in TYPES:
        raise _malformed(name, f"has the unknown number type {code:#04x}")
    if not 1 <= rank <= MAX_RANK:
        raise _malformed(name, f"has {rank} dimensions, not 1 to {MAX_RANK}")
    start = 4 + 4 * rank
    if len(head) < start:
        raise _malformed(name, f"ends after {len(head)} bytes, inside its header")
    shape = struct.unpack_from(f">{rank}I", head, 4)
    dtype = np.dtype(TYPES[code])
    expected = start + math.prod(shape) * dtype.itemsize
    if size != expected or 0 in shape:
        raise _malformed(name, f"has {size:,} bytes; shape {shape} needs {expected:,}")
    return dtype, shape, start


def _malformed(name: str, problem: str) -> DataMalformed:
    return DataMalformed(
        f"{name} is not an idx file: it {problem}.",
        advice="Fetch it again; a file that ends in .gz must be unpacked first.",
    )
