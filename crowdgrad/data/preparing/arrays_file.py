"""A file of arrays with a header, whole or not there: what one stage leaves for the next.

length of the header    8 bytes
header                  msgpack: whatever its writer wants, and type, shape and place of arrays
arrays                  raw, one after the other
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from crowdgrad.data.preparing.columns import Array
from crowdgrad.files import disk_errors, write_whole

_LENGTH = struct.Struct("<Q")


class _Place(msgspec.Struct, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int


class _Header(msgspec.Struct, array_like=True):
    told: msgspec.Raw
    arrays: dict[str, _Place]


def write(path: Path, told: object, arrays: Mapping[str, Array]) -> None:
    """Raises DiskFull, CannotWrite. It is not synced: whoever resumes looks if it is whole."""
    places, at = {}, 0
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in held.items():
        places[name] = _Place(array.dtype.str, array.shape, at)
        at += array.nbytes
    header = msgspec.msgpack.encode(_Header(msgspec.Raw(msgspec.msgpack.encode(told)), places))

    def fill(file: BinaryIO, head: bytes) -> None:
        file.write(head)
        for array in held.values():
            if array.nbytes:
                file.write(array.data.cast("B"))

    with disk_errors(path):
        write_whole(path, _LENGTH.pack(len(header)) + header, sync=False, write=fill)


class ArraysFile:
    """An open one; arrays are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        self._header = msgspec.msgpack.decode(self._file.read(length), type=_Header)
        self._start = _LENGTH.size + length

    def __enter__(self) -> ArraysFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def told(self, kind: Any) -> Any:
        """The header, as its writer's type."""
        return msgspec.msgpack.decode(self._header.told, type=kind)

    def read(self, name: str, first: int = 0, stop: int | None = None) -> Array:
        """Rows `first` to `stop` of an array."""
        place = self._header.arrays[name]
        dtype, rows = np.dtype(place.dtype), place.shape[0]
        stop = rows if stop is None else min(stop, rows)
        row_items = math.prod(place.shape[1:])
        out = np.empty((max(0, stop - first), *place.shape[1:]), dtype)
        if out.nbytes:
            self._file.seek(self._start + place.offset + first * row_items * dtype.itemsize)
            view, done = out.data.cast("B"), 0
            while done < len(view):
                count = self._file.readinto(view[done:])
                if not count:
                    raise EOFError(f"{self._file.name} ends in the middle of {name}")
                done += count
        return out

    def __contains__(self, name: str) -> bool:
        return name in self._header.arrays


def told_in(path: Path, kind: Any) -> Any:
    """The header of a whole file; None where there is none, or not all of it."""
    try:
        with ArraysFile(path) as file:
            last = max(
                (
                    place.offset + math.prod(place.shape) * np.dtype(place.dtype).itemsize
                    for place in file._header.arrays.values()
                ),
                default=0,
            )
            if path.stat().st_size != file._start + last:
                return None
            return file.told(kind)
    except (OSError, struct.error, msgspec.MsgspecError, ValueError, TypeError):
        return None
