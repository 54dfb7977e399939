"""Shards as the volunteer's trainer sees them: the manifest's codec, and arrays inside a shard.

A shard is its fields one after the other, each a block of all records, numbers little-endian. So an
array is a view of the received bytes, and a batch is one indexing operation.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
import numpy as np

from crowdgrad.domain.data import Card, ChunkHash, Field, Manifest, Shard
from crowdgrad.errors import DataMalformed

MAX_MANIFEST_BYTES: Final = 16 << 20
"""Some 150,000 shards of a megabyte. Objects take five times their bytes, in agent and trainer."""
MAX_FIELDS_BYTES: Final = 512 << 10
"""A mean and a deviation for each of some 29,000 columns."""
MAX_CARD_BYTES: Final = 1 << 20


class _Parts(msgspec.Struct, forbid_unknown_fields=True):
    """A manifest whose parts are still bytes: each is bounded before objects are made of it."""

    title: str
    fields: msgspec.Raw
    shards: msgspec.Raw
    card: msgspec.Raw = msgspec.Raw(b"\x80")  # runs of earlier versions have none


_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(_Parts)
_fields = msgspec.msgpack.Decoder(tuple[Field, ...])
_shards = msgspec.msgpack.Decoder(tuple[Shard, ...])
_card = msgspec.msgpack.Decoder(Card)


def content_hash(data: bytes | bytearray | memoryview) -> ChunkHash:
    return ChunkHash(hashlib.sha256(data).hexdigest())


def encode_manifest(manifest: Manifest) -> bytes:
    data = _encoder.encode(manifest)
    if len(data) > MAX_MANIFEST_BYTES:
        raise DataMalformed(
            f"the manifest of {manifest.title!r} would take {len(data):,} bytes, more than "
            f"{MAX_MANIFEST_BYTES:,}.",
            advice="Cut larger shards and chunks.",
        )
    if len(_encoder.encode(manifest.fields)) > MAX_FIELDS_BYTES:
        raise DataMalformed(
            f"the fields of {manifest.title!r} take more than {MAX_FIELDS_BYTES:,} bytes, with all "
            "their means and deviations.",
            advice="Standardise so many columns by one mean (each=False), or in the model.",
        )
    return data


def decode_manifest(data: bytes | memoryview) -> Manifest:
    """Raises DataMalformed for anything but a manifest that makes sense."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise DataMalformed(
            f"a manifest of {len(data):,} bytes is longer than {MAX_MANIFEST_BYTES:,}.",
            advice="Ask the host what it sends.",
        )
    try:
        parts = _parts.decode(data)
        if len(parts.fields) > MAX_FIELDS_BYTES:
            raise ValueError(f"its fields take more than {MAX_FIELDS_BYTES} bytes")
        if len(parts.card) > MAX_CARD_BYTES:
            raise ValueError(f"its card takes more than {MAX_CARD_BYTES} bytes")
        return Manifest(
            title=parts.title,
            fields=_fields.decode(parts.fields),
            shards=_shards.decode(parts.shards),
            card=_card.decode(parts.card),
        )
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise DataMalformed(
            f"these {len(data):,} bytes are not a manifest: {str(error)[:200]}.",
            advice="Fetch it again; if it stays so, host and volunteer differ in version.",
        ) from error


def shard_arrays(
    manifest: Manifest, shard_number: int, buffer: bytes | bytearray | memoryview
) -> tuple[np.ndarray, ...]:
    """One read-only array per field, viewing `buffer` (the shard's chunks, joined).

    Nothing is copied and nothing aligned: a field may start at an odd address. Take batches by
    indexing, which copies, before handing them to an engine. Raises DataMalformed when the buffer
    does not have the shard's size.
    """
    shard = manifest.shards[shard_number]
    size = memoryview(buffer).nbytes
    if size != shard.bytes:
        raise DataMalformed(
            f"shard {shard_number} has {shard.bytes:,} bytes, not {size:,}.",
            advice="Fetch its chunks again.",
        )
    arrays = []
    offset = 0
    for field in manifest.fields:
        flat = np.frombuffer(
            buffer,
            np.dtype(field.dtype).newbyteorder("<"),
            shard.records * field.bytes // np.dtype(field.dtype).itemsize,
            offset,
        )
        flat.flags.writeable = False
        arrays.append(flat.reshape(shard.records, *field.shape))
        offset += shard.records * field.bytes
    return tuple(arrays)
