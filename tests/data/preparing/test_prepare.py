"""The whole way: what is bad, what is the same again, what goes where, what is left behind."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdgrad.data.folder import chunk_path, is_folder, open_folder
from crowdgrad.data.preparing import prepare as preparing
from crowdgrad.data.preparing.reading import arrays, arrow, images, ranges
from crowdgrad.data.sealing import root_of
from crowdgrad.errors import BadRecords, DataMalformed
from crowdgrad.net.identity import guest
from tests.data.preparing.making import KEY, in_order, made, options, records, rows, whole


def table(path: Path, records: int = 200, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    label = "aaaaaabbbc"
    lines = [
        f"{n},{rng.normal():.6f},{rng.normal() * 1e-3:.9f},{label[n % 10]}" for n in range(records)
    ]
    path.write_text("n,u,v,label\n" + "\n".join(lines) + "\n")
    return path


def root(source: Any, out: Path, **wishes: Any) -> str:
    return root_of(made(source, out, **wishes).folder.manifest)


# -- bad records ------------------------------------------------------------------------------

BAD = b"""n,size,label
0,1.5,x
1,1.5,y,surplus
2,1.5
3,tall,x
4,1.5,K\xf6ln
5,1.5,
6,,y
7,1.5,"x"
8,inf,y
9,NA,x
"""
KINDS = {
    "wrong number of columns": [3, 4], "not a number": [5, 10], "bad encoding": [6],
    "missing label": [7], "missing value": [8, 11],
}  # fmt: skip


def bad_table(folder: Path) -> Path:
    source = folder / "bad.csv"
    source.write_bytes(BAD + b"".join(b"%d,2.5,x\n" % n for n in range(10, 40)))
    return source


@pytest.mark.parametrize("part_bytes", [16, 64, 4 << 20])
def test_every_bad_record_is_counted_and_shown_where_it_is(
    tmp_path: Path, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "PART_BYTES", part_bytes)
    with pytest.raises(BadRecords) as caught:
        made(bad_table(tmp_path), tmp_path / "out")
    assert caught.value.counts == {kind: len(lines) for kind, lines in KINDS.items()}
    shown = [(file, line, kind) for file, line, kind, _ in caught.value.shown]
    expected = [("bad.csv", line, kind) for kind, lines in KINDS.items() for line in lines]
    assert sorted(shown) == sorted(expected)
    assert caught.value.code == "CG404"
    assert "8 of 40 records are bad" in str(caught.value)
    assert not is_folder(tmp_path / "out")


@pytest.mark.parametrize("bad", ["skip", 8, 1000])
def test_bad_records_may_be_left_out(tmp_path: Path, bad: Any) -> None:
    result = made(bad_table(tmp_path), tmp_path / "out", bad=bad)
    assert sorted(records(result.folder)["x"][:, 0].tolist()) == [0, 7, *range(10, 40)]
    assert result.folder.manifest.card.left_out == 8
    assert result.record.bad_counts == {kind: len(lines) for kind, lines in KINDS.items()}


def test_one_more_than_may_be_is_too_many(tmp_path: Path) -> None:
    with pytest.raises(BadRecords):
        made(bad_table(tmp_path), tmp_path / "out", bad=7)


def test_where_all_are_bad_there_is_nothing_to_prepare(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("a,y\n" + "1,2,3\n" * 5)
    with pytest.raises(DataMalformed, match=r"no record|no column"):
        made(source, tmp_path / "out", bad="skip")


def test_lines_that_are_no_objects(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    good = b'{"a": 1.5, "v": [1, 2], "label": "x"}\n{"a": 2, "v": [3, 4], "label": "y"}\n'
    source.write_bytes(
        good * 20 + b'{"a": 1\n[1, 2]\n"\xf6"\n{"a": "x", "v": [1, 2], "label": "x"}\n'
        b'{"a": 1, "v": [1], "label": "x"}\n{"a": 1, "v": [1, 2]}\n{"v": [1, 2], "label": "x"}\n'
        b'{"a": 1, "v": [1, null], "label": "x"}\n\n{"a": 1, "v": [1, 2], "label": ["x"]}\n'
    )
    wish = {
        "columns": {name: {"kind": "number"} for name in "av"} | {"label": {"kind": "category"}}
    }
    with pytest.raises(BadRecords) as caught:
        made(source, tmp_path / "out", **wish)
    assert [(line, kind) for _, line, kind, _ in caught.value.shown] == [
        (41, "not JSON"), (42, "not an object"), (43, "bad encoding"), (44, "not a number"),
        (45, "wrong shape"), (46, "missing label"), (47, "missing value"), (48, "wrong shape"),
        (50, "not a category"),
    ]  # fmt: skip
    assert len(whole(source, tmp_path / "out", bad=9, **wish)["y"]) == 40


# -- the same again ---------------------------------------------------------------------------


def test_jobs_and_parts_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = table(tmp_path / "a.csv", 2000)
    found = {root(source, tmp_path / "whole")}
    for jobs, size in ((1, 1000), (2, 5000), (3, 1777)):
        monkeypatch.setattr(ranges, "PART_BYTES", size)
        found.add(root(source, tmp_path / f"{jobs}", jobs=jobs))
    assert len(found) == 1


def test_nor_for_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(3, 1e-3, (500, 3, 2)))
    found = {root(tmp_path / "x.npy", tmp_path / "whole")}
    for size in (100, 999, 5000):
        monkeypatch.setattr(arrays, "PART_BYTES", size)
        found.add(root(tmp_path / "x.npy", tmp_path / f"{size}"))
    assert len(found) == 1


def test_negative_zero_is_zero_in_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of whole numbers alone has no other zero."""
    source = tmp_path / "a.csv"
    source.write_text("a,y\n" + "-0.0,1\n1,0\n" * 20 + "0.5,1\n-0.0,0\n" * 20)
    found = set()
    for size in (20, 50, 4 << 20):
        monkeypatch.setattr(ranges, "PART_BYTES", size)
        found.add(root(source, tmp_path / f"{size}"))
    assert len(found) == 1


def test_another_seed_is_another_order_of_the_same(tmp_path: Path) -> None:
    source = table(tmp_path / "a.csv")
    one, other = made(source, tmp_path / "1", seed=1), made(source, tmp_path / "2", seed=2)
    assert root_of(one.folder.manifest) != root_of(other.folder.manifest)
    assert rows(records(one.folder)) == rows(records(other.folder))
    assert rows(records(one.folder, "test")) != rows(records(other.folder, "test"))


GOLDEN = {
    "csv": "80ef322df35021387ec76e07620cccd2",
    "npy": "dbaab35b6649b3e44d75c8c212e6f110",
    "txt": "59e90c625b1a51a34fa943c4c5e76a3f",
}


@pytest.mark.parametrize("ending", GOLDEN)
def test_known_answers(tmp_path: Path, ending: str) -> None:
    """Whoever changes what comes out of the same source counts FORMAT up, and this with it."""
    assert preparing.FORMAT == 1
    source = tmp_path / f"a.{ending}"
    if ending == "csv":
        source.write_text(
            "n,x,label\n" + "".join(f"{n},{n / 8},{'ab'[n % 2]}\n" for n in range(50))
        )
    elif ending == "npy":
        np.save(source, np.arange(300, dtype=np.int16).reshape(50, 6))
    else:
        source.write_text("To be, or not to be: that is the question.\n" * 40)
    found = records(made(source, tmp_path / "out").folder)
    digest = hashlib.sha256()
    for name, column in found.items():
        digest.update(f"{name} {column.dtype.str} {column.shape}".encode() + column.tobytes())
    assert digest.hexdigest()[:32] == GOLDEN[ending]


def test_a_second_time_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = table(tmp_path / "a.csv")
    first = made(source, tmp_path / "out")
    assert not first.reused

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was read")

    monkeypatch.setattr(preparing, "reader_of", refuse)
    monkeypatch.setattr(preparing, "unpacked", refuse)
    again = made(source, tmp_path / "out")
    assert again.reused
    assert again.folder.raw == first.folder.raw
    with pytest.raises(AssertionError, match="was read"):
        made(source, tmp_path / "out", seed=5)
    source.write_text(source.read_text() + "1000,1,1,a\n")
    with pytest.raises(AssertionError, match="was read"):
        made(source, tmp_path / "out")


def test_another_key_seals_anew(tmp_path: Path) -> None:
    source = table(tmp_path / "a.csv")
    made(source, tmp_path / "out")
    again = preparing.prepare(source, tmp_path / "out", options(), guest("somebody"), jobs=1)
    assert not again.reused
    assert open_folder(tmp_path / "out").seal.key == guest("somebody").public != KEY.public


def altered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "harm", [altered, lambda path: path.unlink(), lambda path: path.write_bytes(b"")]
)
@pytest.mark.parametrize("what", ["chunk", "manifest"])
def test_what_was_harmed_is_mended(tmp_path: Path, harm: Any, what: str) -> None:
    source = table(tmp_path / "a.csv")
    folder = made(source, tmp_path / "out").folder
    chunk = chunk_path(folder.path, folder.manifest.shards[0].chunks[0].hash)
    harm(chunk if what == "chunk" else folder.path / "manifest")
    again = made(source, tmp_path / "out")
    assert not again.reused
    assert again.folder.raw == folder.raw
    assert rows(records(again.folder)) == rows(records(open_folder(folder.path)))
    assert made(source, tmp_path / "out").reused


# -- where records go -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, (160, 20, 20)),
        ({"validation": 0, "test": 0}, (200, 0, 0)),
        ({"validation": 0.25, "test": 0.29}, (92, 50, 58)),
        ({"validation": 7, "test": 1}, (192, 7, 1)),
        ({"validation": 0, "test": 199}, (1, 0, 199)),
    ],
)
def test_shares_and_counts(tmp_path: Path, wishes: Any, expected: tuple[int, ...]) -> None:
    result = made(table(tmp_path / "a.csv"), tmp_path / "out", **wishes)
    manifest = result.folder.manifest
    assert tuple(manifest.records(s) for s in ("train", "validation", "test")) == expected
    assert sorted(records(result.folder)["x"][:, 0].tolist()) == list(range(200))


def test_too_large_shares_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataMalformed, match="leave none to train on"):
        made(table(tmp_path / "a.csv"), tmp_path / "out", validation=100, test=100)


def test_classes_alike_within_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PART_BYTES", 700)
    result = made(
        table(tmp_path / "a.csv", 333), tmp_path / "out", stratify=True, validation=0.2, test=0.13
    )
    every = Counter(records(result.folder)["y"].tolist())
    for split, share in (("validation", 0.2), ("test", 0.13)):
        held = Counter(records(result.folder, split)["y"].tolist())
        for code, count in every.items():
            assert abs(held[code] - share * count) <= 1
    assert sorted(records(result.folder)["x"][:, 0].tolist()) == list(range(333))


def test_splits_that_a_source_has_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    table(folder / "train.csv", 100)
    table(folder / "validation.csv", 30, seed=1)
    result = made(folder, tmp_path / "out", test=0)
    manifest = result.folder.manifest
    assert [manifest.records(s) for s in ("train", "validation", "test")] == [100, 30, 0]
    first = in_order(
        records(result.folder, "validation"), records(result.folder, "validation")["x"][:, 0]
    )
    lines = (folder / "validation.csv").read_text().splitlines()[1:]
    assert np.allclose(first["x"][:, 1], [float(line.split(",")[1]) for line in lines])


def test_records_are_shuffled_into_shards_and_chunks(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(700_000, dtype=np.int64))
    result = made(tmp_path / "x.npy", tmp_path / "out", chunk_bytes=256 << 10, test=0)
    for shard in result.folder.manifest.shards:
        assert all(chunk.bytes == 256 << 10 for chunk in shard.chunks[:-1])
        assert shard.chunks[-1].bytes <= 256 << 10
    found = records(result.folder, "train")["x"]
    assert len(result.folder.manifest.shards) > 4
    shard = found[:100_000]
    assert abs(shard.mean() / 350_000 - 1) < 0.01  # a fair sample, not a stretch
    assert (np.abs(np.diff(found)) == 1).mean() < 1e-3
    assert sorted(records(result.folder)["x"].tolist()) == list(range(700_000))


# -- what is left behind ----------------------------------------------------------------------


def test_nothing_is_left_of_the_work_or_of_what_was_there_before(tmp_path: Path) -> None:
    made(table(tmp_path / "a.csv"), tmp_path / "out")
    folder = made(table(tmp_path / "a.csv", 300), tmp_path / "out").folder
    names = {chunk.hash for shard in folder.manifest.shards for chunk in shard.chunks}
    assert {path.name for path in (tmp_path / "out" / "chunks").glob("??/*")} == names
    assert sorted(os.listdir(tmp_path / "out")) == ["chunks", "manifest", "prepared.json", "seals"]


def test_nothing_of_anybody_elses_is_touched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    with pytest.raises(DataMalformed, match=r"thesis\.tex"):
        made(table(tmp_path / "a.csv"), out)
    with pytest.raises(DataMalformed, match="is a file"):
        made(table(tmp_path / "a.csv"), tmp_path / "a.csv")
    assert os.listdir(out) == ["thesis.tex"]


def test_every_reader_cuts_by_a_size_that_tests_can_change() -> None:
    """Or tests of small parts would prove nothing."""
    assert ranges.PART_BYTES == arrays.PART_BYTES == arrow.PART_BYTES == 4 << 20
    assert images.PART_PICTURES == 256
