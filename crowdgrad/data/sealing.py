"""A data set under somebody's key: the root of a hash tree over its manifest, signed.

The first leaf is what all shards share (title, fields, card), then comes one for each shard with
the hashes of its chunks. So whoever knows the root can be shown that a chunk belongs to the data
set without the rest of the manifest, and whoever trusts the key need not trust who passes it on.
"""

from __future__ import annotations

import msgspec

from crowdgrad.data import tree
from crowdgrad.domain.data import Manifest, Seal
from crowdgrad.errors import DataAltered
from crowdgrad.net.identity import Identity, signed_by

_CONTEXT = b"crowdgrad data 1\0"


def leaves(manifest: Manifest) -> list[bytes]:
    head = (manifest.title, manifest.fields, manifest.card)
    return [tree.leaf_hash(msgspec.msgpack.encode(part)) for part in (head, *manifest.shards)]


def root_of(manifest: Manifest) -> str:
    return tree.root(leaves(manifest)).hex()


def seal(manifest: Manifest, key: Identity) -> Seal:
    root = root_of(manifest)
    return Seal(root=root, key=key.public, signature=key.sign_text(_text(root)))


def check_seal(manifest: Manifest, given: Seal, key: bytes | None = None) -> None:
    """Raises DataAltered unless the seal is of this manifest, and by `key` where that is known."""
    if key is not None and given.key != key:
        raise DataAltered(
            f"{manifest.title!r} is sealed with the key {given.key.hex()[:12]}…, not with "
            f"{key.hex()[:12]}….",
            advice="Fetch it from whoever has that key.",
        )
    found = root_of(manifest)
    if found != given.root:
        raise DataAltered(
            f"the hash tree of {manifest.title!r} has the root {found[:12]}…, its seal is for "
            f"{given.root[:12]}….",
            advice="Fetch it again, or prepare it anew.",
        )
    if not signed_by(given.key, _text(given.root), given.signature):
        raise DataAltered(
            f"the seal of {manifest.title!r} is not signed with its key.",
            advice="Fetch it again, or prepare it anew.",
        )


def _text(root: str) -> bytes:
    return _CONTEXT + bytes.fromhex(root)
