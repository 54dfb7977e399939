"""Shards as the volunteer's trainer sees them: the manifest's codec, and arrays inside a shard.

A shard is its fields one after the other, each a block of all records, numbers little-endian. So an
array is a view of the received bytes, and a batch is one indexing operation.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.errors import DataMalformed

MAX_MANIFEST_BYTES = 64 << 20

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Manifest)


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
    return data


def decode_manifest(data: bytes | memoryview) -> Manifest:
    """Raises DataMalformed for anything but a manifest that makes sense."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise DataMalformed(
            f"a manifest of {len(data):,} bytes is longer than {MAX_MANIFEST_BYTES:,}.",
            advice="Ask the host what it sends.",
        )
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise DataMalformed(
            f"these {len(data):,} bytes are not a manifest: {error}.",
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
