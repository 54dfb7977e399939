"""A data folder: what was written is read, what was altered is refused, it only grows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.folder import (
    DataFolder,
    chunk_path,
    is_folder,
    missing_chunks,
    open_folder,
    seal_path,
    write_chunk,
    write_manifest,
)
from crowdgrad.data.sealing import check_seal, leaves, root_of, seal
from crowdgrad.data.sharding import cut_into
from crowdgrad.data.tree import proof, proves
from crowdgrad.domain.data import Card, Manifest
from crowdgrad.errors import DataAltered, DataMalformed, DataMissing
from crowdgrad.net.identity import guest

KEY = guest("preparer")


def make(folder: Path, records: int = 100) -> Manifest:
    x = np.arange(records * 3, dtype=np.uint8).reshape(records, 3)
    data = from_arrays({"train": (x, np.arange(records)), "test": (x[:7], np.arange(7))})
    manifest = cut_into(
        lambda name, piece: write_chunk(folder, piece), data, seed=1, batch_size=8, shard_bytes=200
    )
    manifest = replace(manifest, card=Card(source="test", licence="CC0", classes=("a", "b")))
    write_manifest(folder, manifest, seal(manifest, KEY))
    return manifest


def grown(folder: Path, manifest: Manifest) -> Manifest:
    """One shard more, of the same records as the first."""
    more = replace(manifest, shards=(*manifest.shards, manifest.shards[0]))
    write_manifest(folder, more, seal(more, KEY))
    return more


def test_what_was_written_is_read(tmp_path: Path) -> None:
    manifest = make(tmp_path)
    assert is_folder(tmp_path)
    found = open_folder(tmp_path)
    assert found.manifest == manifest
    assert found.seal.key == KEY.public
    rows = np.concatenate([found.columns(n)[1] for n in manifest.numbers("train")])
    assert sorted(rows) == list(range(100))
    assert [len(column) for column in found.some("train", 30)] == [30, 30]
    assert len(found.some("test", 30)[0]) == 7
    assert set(found.chunks) == {c.hash for shard in manifest.shards for c in shard.chunks}
    assert not missing_chunks(tmp_path, manifest.shards)


def test_a_chunk_can_be_proven_without_the_manifest(tmp_path: Path) -> None:
    manifest = make(tmp_path)
    all_leaves = leaves(manifest)
    path = proof(all_leaves, 3)
    assert proves(all_leaves[3], 3, len(all_leaves), path, bytes.fromhex(root_of(manifest)))


@pytest.mark.parametrize("change", [
    {"title": "another"}, {"card": Card(licence="mine")}, {"shards": ()},
])  # fmt: skip
def test_a_seal_is_of_one_data_set_alone(tmp_path: Path, change: dict[str, object]) -> None:
    manifest = make(tmp_path)
    given = seal(manifest, KEY)
    check_seal(manifest, given, KEY.public)
    if "shards" in change:
        change = {"shards": manifest.shards[:-1]}
    with pytest.raises(DataAltered, match="root"):
        check_seal(replace(manifest, **change), given)  # type: ignore[arg-type]


def test_a_seal_by_another_key_or_forged_is_refused(tmp_path: Path) -> None:
    manifest = make(tmp_path)
    with pytest.raises(DataAltered, match="sealed with the key"):
        check_seal(manifest, seal(manifest, guest("somebody")), KEY.public)
    forged = replace(seal(manifest, guest("somebody")), key=KEY.public)
    with pytest.raises(DataAltered, match="not signed"):
        check_seal(manifest, forged, KEY.public)


def test_an_altered_chunk_is_never_handed_out(tmp_path: Path) -> None:
    manifest = make(tmp_path)
    name = manifest.shards[0].chunks[0].hash
    path = chunk_path(tmp_path, name)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    found = open_folder(tmp_path)
    with pytest.raises(DataAltered, match="altered"):
        found.chunks[name]
    path.unlink()
    with pytest.raises(DataMissing):
        found.columns(0)
    assert missing_chunks(tmp_path, manifest.shards) == [name]


def test_broken_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="prepare"):
        open_folder(tmp_path)
    make(tmp_path)
    found = open_folder(tmp_path)
    sealed = seal_path(tmp_path, found.name)
    for bad in (b"{}", b"[]", b"\xff", b'{"root": "x", "key": "", "signature": ""}'):
        sealed.write_bytes(bad)
        with pytest.raises(DataMalformed, match="seal"):
            open_folder(tmp_path)
    sealed.write_bytes(b" " * 5000)
    with pytest.raises(DataMalformed, match="longer"):
        open_folder(tmp_path)
    (tmp_path / "manifest").write_bytes(found.raw[:-1])
    with pytest.raises(DataMalformed, match="not a manifest"):
        open_folder(tmp_path)


def test_a_reader_sees_that_it_grew_and_only_that(tmp_path: Path) -> None:
    manifest = make(tmp_path)
    found: DataFolder = open_folder(tmp_path)
    assert found.newer() is None
    more = grown(tmp_path, manifest)
    newer = found.newer()
    assert newer is not None
    assert newer.manifest == more
    assert found.manifest == manifest
    other = replace(manifest, shards=manifest.shards[1:])
    write_manifest(tmp_path, other, seal(other, KEY))
    with pytest.raises(DataAltered, match="only grow"):
        found.newer()
