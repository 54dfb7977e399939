"""The hash tree: every leaf can be proven, nothing else can, and growth keeps what was full."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.data import tree

LEAVES = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


def hashes(parts: list[bytes]) -> list[bytes]:
    return [tree.leaf_hash(part) for part in parts]


def test_the_known_answers_of_the_standard() -> None:
    """RFC 6962: an empty leaf, and the tree of its test vectors' first two entries."""
    empty = hashlib.sha256(b"\0").digest()
    assert tree.root(hashes([b""])) == empty
    assert tree.root(hashes([b"", b"\0"])).hex() == (
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    )
    assert tree.root(hashes([b"", b"\0", b"\x10"])).hex() == (
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"
    )


@given(LEAVES, st.data())
def test_every_leaf_is_proven_and_no_other(parts: list[bytes], data: st.DataObject) -> None:
    leaves = hashes(parts)
    number = data.draw(st.integers(0, len(leaves) - 1))
    root, path = tree.root(leaves), tree.proof(leaves, number)
    assert tree.proves(leaves[number], number, len(leaves), path, root)
    assert not tree.proves(tree.leaf_hash(b"another leaf"), number, len(leaves), path, root)
    assert not tree.proves(leaves[number], len(leaves), len(leaves), path, root)
    assert not tree.proves(leaves[number], number, len(leaves), [*path, root], root)


@given(LEAVES, st.binary(max_size=8))
def test_one_leaf_more_is_another_root(parts: list[bytes], more: bytes) -> None:
    assert tree.root(hashes([*parts, more])) != tree.root(hashes(parts))


@given(st.integers(1, 6), LEAVES)
def test_what_was_full_stays_a_left_side(power: int, more: list[bytes]) -> None:
    full = hashes([bytes([n]) for n in range(1 << power)])
    grown = full + hashes(more)
    last = len(grown) - 1
    if len(more) <= len(full):
        assert tree.proof(grown, last)[-1] == tree.root(full)
