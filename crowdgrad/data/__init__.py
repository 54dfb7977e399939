"""Data sets: a hash-pinned catalogue, anything people have made ready, and cutting into shards.

    catalogue, arrays ──→ DataSet ──cut──→ Manifest + chunks ──shard_arrays──→ batches
    files, addresses, objects ──preparing──→ DataFolder (manifest, seal, chunks on disk) ──┘

`shards` is what a volunteer's trainer needs and imports numpy and msgspec alone; everything else
here runs on a host. Nothing in this folder imports torch or onnxruntime.

`cg.data.prepare`, `cg.data.follow` and `cg.data.open_folder` are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "DataFolder": ("crowdgrad.data.folder", "DataFolder"),
    "open_folder": ("crowdgrad.data.folder", "open_folder"),
    # These know this machine's key and settings, which data itself does not.
    "prepare": ("crowdgrad.host.preparing", "prepare_data"),
    "follow": ("crowdgrad.host.preparing", "follow_data"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdgrad.data' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
