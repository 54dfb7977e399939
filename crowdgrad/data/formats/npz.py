"""numpy's .npz: a zip of .npy files, read without numpy's loader so that nothing can be unpickled.

The arrays are found by name: `x` and `y` (or `inputs`/`targets`, `images`/`labels`, …), alone or
with the split before or after them: `x_train`, `test_labels`.
"""

from __future__ import annotations

import ast
import math
import re
import zipfile
import zlib
from pathlib import Path

import numpy as np

from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.domain.program import ITEM_BYTES, MAX_RANK
from crowdgrad.errors import DataMalformed, DataMissing

MAX_BYTES = 4 << 30
MAX_HEADER_BYTES = 10_000
MAX_DEFLATE_RATIO = 1032
"""No deflate stream unpacks to more than this many times its size, so a larger claim is a lie."""

INPUTS = ("x", "inputs", "input", "images", "features", "data")
TARGETS = ("y", "targets", "target", "labels", "label")
SPLIT_WORDS = {"train": "train", "test": "test", "validation": "validation", "val": "validation",
               "valid": "validation"}  # fmt: skip

_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, KeyError, IndexError,
    SyntaxError, TypeError, RuntimeError, MemoryError, OSError,
)  # fmt: skip
"""What zipfile, zlib and ast raise for damaged bytes (RuntimeError: encrypted, or too deep)."""


def read_npz(path: Path, *, title: str | None = None, max_bytes: int = MAX_BYTES) -> DataSet:
    """Raises DataMissing, DataMalformed."""
    if not path.is_file():
        raise DataMissing(f"{path} is not a file.", advice="Check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, path.stat().st_size, max_bytes)
            places = assign(tuple(members), str(path))
            splits = {
                split: tuple(_member(archive, members[key], key) for key in keys)
                for split, keys in places.items()
            }
    except _DAMAGE as error:
        raise DataMalformed(
            f"{path} is not an npz file we can read: {str(error) or type(error).__name__}.",
            advice="Write it again with numpy.savez_compressed(file, x_train=…, y_train=…).",
        ) from error
    return from_arrays(splits, title=title or path.stem)


def assign(keys: tuple[str, ...], name: str) -> dict[str, tuple[str, str]]:
    """Which keys are the inputs and the targets of which split."""
    found: dict[str, dict[str, list[str]]] = {}
    for key in keys:
        words = [word for word in re.split(r"[_\-. ]", key.lower()) if word]
        splits = [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS] or ["train"]
        rest = [word for word in words if word not in SPLIT_WORDS]
        role = "x" if rest[:1] and rest[0] in INPUTS else "y"
        if len(splits) == len(rest) == 1 and rest[0] in (*INPUTS, *TARGETS):
            found.setdefault(splits[0], {}).setdefault(role, []).append(key)
    pairs = {s: roles for s, roles in found.items() if sorted(map(len, roles.values())) == [1, 1]}
    if "train" not in pairs or len(pairs) != len(found):
        raise DataMalformed(
            f"{name} holds the arrays {', '.join(keys)[:300] or 'none'}.",
            advice="Name them x and y (or inputs and targets, images and labels), alone or with "
            "train, validation, test: x_train, y_train, x_test, y_test.",
        )
    return {split: (roles["x"][0], roles["y"][0]) for split, roles in pairs.items()}


def _members(archive: zipfile.ZipFile, size: int, limit: int) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    total = sum(info.file_size for info in infos)
    if total > min(limit, size * MAX_DEFLATE_RATIO):
        raise ValueError(f"{size:,} bytes that claim to unpack to {total:,} (limit {limit:,})")
    members = {info.filename.removesuffix(".npy"): info for info in infos}
    if len(members) != len(infos):
        raise ValueError("two arrays in it have the same name")
    return members


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str) -> np.ndarray:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"array {key!r} is packed in a way numpy does not use")
    return parse_npy(archive.read(info), key)


def parse_npy(data: bytes, key: str) -> np.ndarray:
    """One .npy file; a view of `data`. Raises ValueError and what `ast.literal_eval` raises."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise ValueError(f"array {key!r} does not begin like a .npy file")
    width = 2 if data[6] == 1 else 4
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if data[6] not in (1, 2, 3) or start > min(len(data), MAX_HEADER_BYTES):
        raise ValueError(f"array {key!r} has a header of {start:,} bytes, version {data[6]}")
    header = ast.literal_eval(data[8 + width : start].decode("utf-8").strip())
    descr, shape = header["descr"], header["shape"]
    if not isinstance(descr, str) or not re.fullmatch(r"[<>|=]?[fiub][1248]", descr):
        raise ValueError(f"array {key!r} has the type {str(descr)[:60]}")
    dtype = np.dtype(descr)
    if dtype.name not in ITEM_BYTES:
        raise ValueError(f"array {key!r} is {dtype.name}; we store {', '.join(ITEM_BYTES)}")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"array {key!r} has the shape {str(shape)[:60]}")
    if len(shape) > MAX_RANK or start + math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"array {key!r} has {len(data):,} bytes for {dtype} {shape}")
    flat = np.frombuffer(data, dtype, offset=start)
    return flat.reshape(shape, order="F" if header["fortran_order"] else "C")
