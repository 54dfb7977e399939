"""Mirrors: published copies of a prepared data folder, on web servers and in object stores.

`base` says what a mirror can do; `http` and `store` do it; `address` reads how job files name them;
`health` decides which to ask. A job names them, any volunteer may fetch a chunk from one instead of
from others, and nothing that a mirror sends is believed before its hash is that of its name.
"""

from __future__ import annotations

from crowdgrad.replication.mirrors.address import WEB, check_address, parse
from crowdgrad.replication.mirrors.base import WITHIN_S, Mirror
from crowdgrad.replication.mirrors.health import (
    NEW,
    MirrorHealth,
    after_failure,
    after_success,
    may_ask,
)
from crowdgrad.replication.mirrors.http import HttpMirror
from crowdgrad.replication.mirrors.store import StoreMirror

__all__ = [
    "NEW",
    "HttpMirror",
    "Mirror",
    "MirrorHealth",
    "StoreMirror",
    "after_failure",
    "after_success",
    "check_address",
    "may_ask",
    "mirror_of",
]


def mirror_of(address: str, *, host: str, within_s: float = WITHIN_S) -> Mirror:
    """The mirror at an address that a host named, which itself is at the address `host`.

    It is dialled when it is first asked. Raises ValueError.
    """
    if parse(address).scheme in WEB:
        return HttpMirror(address, host=host, within_s=within_s)
    return StoreMirror(address, within_s=within_s)
