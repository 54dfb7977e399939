"""A hash tree: one hash for many leaves, and a short proof that a leaf is among them.

    root ─┬─ node ─┬─ leaf 0        leaf = H(00 ‖ bytes)   node = H(01 ‖ left ‖ right)
          │        └─ leaf 1
          └─ leaf 2

The left side of every node is the largest full tree that leaves something for the right one, as in
RFC 6962: so a tree that only grows at its end keeps all its full left sides. The two prefixes keep
a node from passing for a leaf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _middle(count: int) -> int:
    """The largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1


def root(leaves: Sequence[bytes]) -> bytes:
    """Of the leaves' hashes, at least one."""
    if len(leaves) == 1:
        return leaves[0]
    middle = _middle(len(leaves))
    return _node(root(leaves[:middle]), root(leaves[middle:]))


def proof(leaves: Sequence[bytes], number: int) -> list[bytes]:
    """What leaf `number` is joined with on its way up, from below."""
    if len(leaves) == 1:
        return []
    middle = _middle(len(leaves))
    if number < middle:
        return [*proof(leaves[:middle], number), root(leaves[middle:])]
    return [*proof(leaves[middle:], number - middle), root(leaves[:middle])]


def proves(leaf: bytes, number: int, count: int, path: Sequence[bytes], wanted: bytes) -> bool:
    """Whether `path` leads from leaf `number` of `count` to the root `wanted`."""
    if not 0 <= number < count:
        return False
    sides: list[bool] = []  # from above: whether the leaf is on the left
    while count > 1:
        middle = _middle(count)
        sides.append(number < middle)
        number, count = (number, middle) if number < middle else (number - middle, count - middle)
    if len(sides) != len(path):
        return False
    found = leaf
    for left, other in zip(reversed(sides), path, strict=True):
        found = _node(found, other) if left else _node(other, found)
    return found == wanted
