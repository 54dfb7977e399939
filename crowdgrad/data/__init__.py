"""Data sets: a hash-pinned catalogue, readers for common formats, and cutting into shards.

    arrays, npz, idx, catalogue ──→ DataSet ──cut──→ Manifest + chunks ──shard_arrays──→ batches

`shards` is what a volunteer's trainer needs and imports numpy and msgspec alone; everything else
here runs on a host. Nothing in this folder imports torch or onnxruntime.
"""
