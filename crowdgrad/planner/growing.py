"""Data that grows: what may be added to it, and whether what was reckoned with still holds.

A manifest may only become longer, by shards to train on. Whoever has reckoned how much memory a
unit takes has done so for the largest shard there was.
"""

from __future__ import annotations

from crowdgrad.domain.data import Manifest


def added(before: Manifest, after: Manifest) -> range:
    """The numbers of the shards that are new, where one is the other grown."""
    return range(len(before.shards), len(after.shards))


def unusable(before: Manifest, after: Manifest) -> str:
    """Why the one is not the other with more to train on, as a clause; "" where it is."""
    if after.fields != before.fields:
        return "its fields are others now"
    if after.shards[: len(before.shards)] != before.shards:
        return "its first shards are others now"
    for number in added(before, after):
        if after.shards[number].split != "train":
            return f"shard {number}, which was added, is of the {after.shards[number].split} split"
    return ""


def outgrows(before: Manifest, after: Manifest) -> bool:
    """Whether a new shard is larger than all there were: then memory was reckoned too small."""
    most = max(shard.records for shard in before.shards if shard.split == "train")
    return any(after.shards[number].records > most for number in added(before, after))
