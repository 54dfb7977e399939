"""Records that come later: each is in once, whatever is killed; what does not fit is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.data.folder import GROWING, check_grown, missing_chunks, open_folder
from crowdgrad.data.preparing import adding
from crowdgrad.data.preparing.adding import FEWEST, Adder, Watch, add_rows, when_to_cut
from crowdgrad.data.preparing.options import from_table
from crowdgrad.data.preparing.prepare import prepare
from crowdgrad.data.preparing.record import read_record
from crowdgrad.errors import BadRecords, DataMalformed, DataMissing
from crowdgrad.net.identity import guest

KEY = guest("follower")


def row(number: int) -> dict[str, object]:
    return {"n": number, "v": [number, 1], "label": "abc"[number % 3]}


def lines(first: int, stop: int) -> str:
    return "".join(json.dumps(row(number)) + "\n" for number in range(first, stop))


def prepared(folder: Path, records: int = 60, **wishes: object) -> tuple[Path, Path]:
    """A file of JSON lines, and the data folder made of it."""
    source, out = folder / "log.jsonl", folder / "out"
    source.write_text(lines(0, records))
    table = {"bad": "skip", "columns": {"n": {"kind": "number"}}, **wishes}
    prepare(str(source), out, from_table(table, "test"), KEY)
    return source, out


def append(source: Path, text: str) -> None:
    with source.open("a") as file:
        file.write(text)


def numbers(out: Path, *splits: str) -> list[int]:
    """Which rows are in the folder: x is n, then v."""
    folder = open_folder(out)
    found: list[int] = []
    for split in splits or ("train", "validation", "test"):
        for number in folder.manifest.numbers(split):  # type: ignore[arg-type]
            found += folder.columns(number)[0].reshape(-1).astype(int).tolist()
    return sorted(found)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.integers(0, 5000), st.floats(0, 100), st.integers(1, 2000), st.floats(0, 60), st.booleans()
)
def test_records_wait_for_a_full_shard_but_not_for_ever(
    records: int, waited: float, full: int, patience: float, ending: bool
) -> None:
    yes, reason = when_to_cut(records, waited, full=full, patience_s=patience, ending=ending)
    assert reason
    assert not (yes and records == 0)
    assert yes or records < full
    assert yes or not (records >= FEWEST and waited >= patience)
    assert yes or not (ending and records)


def test_appended_lines_become_shards_at_the_end(tmp_path: Path) -> None:
    source, out = prepared(tmp_path, columns={"v": {"kind": "drop"}})
    before = open_folder(out).manifest
    adder = Adder(out, KEY, patience_s=0)
    watch = Watch([source], adder)
    assert watch.look() == 0
    append(source, lines(60, 130) + '{"n": 130')  # the last is still being written
    assert watch.look() == 70
    adder.cut()
    after = open_folder(out).manifest
    check_grown(before, after)
    assert {shard.split for shard in after.shards[len(before.shards) :]} == {"train"}
    append(source, ', "v": [130, 1], "label": "b"}\n')
    assert watch.look() == 1
    adder.close()
    assert numbers(out) == list(range(131))
    assert open_folder(out).manifest.card.counts == (44, 44, 43)
    assert not (out / GROWING).exists()


def test_new_shards_are_shuffled(tmp_path: Path) -> None:
    source, out = prepared(tmp_path, columns={"v": {"kind": "drop"}}, growing=True)
    adder = Adder(out, KEY)
    append(source, lines(60, 400))
    Watch([source], adder).look()
    adder.close()
    last = open_folder(out).columns(len(open_folder(out).manifest.shards) - 1)[0].reshape(-1)
    assert sorted(last) == list(range(60, 400))
    assert last.tolist() != sorted(last)


@pytest.mark.parametrize("at", ["before the manifest", "after the manifest"])
def test_whoever_is_killed_while_adding_adds_nothing_twice_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    source, out = prepared(tmp_path, columns={"v": {"kind": "drop"}})
    append(source, lines(60, 120))
    real = adding.write_manifest

    class Killed(Exception):
        pass

    def cut_short(*args: object) -> None:
        if at == "after the manifest":
            real(*args)  # type: ignore[arg-type]
        raise Killed

    adder = Adder(out, KEY, patience_s=0)
    monkeypatch.setattr(adding, "write_manifest", cut_short)
    with pytest.raises(Killed):
        Watch([source], adder).look()
    monkeypatch.undo()
    assert open_folder(out).growing
    append(source, lines(120, 150))
    again = Adder(out, KEY)
    Watch([source], again).look()
    again.close()
    assert numbers(out) == list(range(150))
    assert not missing_chunks(out, open_folder(out).manifest.shards)


def test_what_does_not_fit_any_more_is_a_bad_record_with_its_line(tmp_path: Path) -> None:
    source, out = tmp_path / "t.csv", tmp_path / "out"
    source.write_text("a,label\n" + "".join(f"{n % 200},{'xy'[n % 2]}\n" for n in range(100)))
    prepare(str(source), out, from_table({"bad": "skip"}, "test"), KEY)
    assert open_folder(out).manifest.fields[0].dtype == "uint8"
    append(source, "1,x\n300,x\n2.5,y\n3,z\n4,y,5\nfive,x\n,y\n6,\n7,y\n")
    adder = Adder(out, KEY)
    assert Watch([source], adder).look() == 2
    adder.close()
    record = read_record(out)
    assert record is not None
    assert [(bad.line, bad.kind) for bad in sorted(record.bad, key=lambda bad: bad.line)] == [
        (103, "does not fit"),
        (104, "does not fit"),
        (105, "does not fit"),
        (106, "wrong number of columns"),
        (107, "not a number"),
        (108, "missing value"),
        (109, "missing label"),
    ]
    assert open_folder(out).manifest.card.left_out == 7


def test_bad_records_stop_it_where_none_may_be(tmp_path: Path) -> None:
    source, out = prepared(tmp_path, bad=1)
    adder = Adder(out, KEY)
    watch = Watch([source], adder)
    append(source, "oops\n" + lines(60, 70))
    assert watch.look() == 10
    append(source, "[]\n")
    with pytest.raises(BadRecords, match="not an object"):
        watch.look()
    adder.close()
    assert 69 in numbers_of_first_column(out)


def numbers_of_first_column(out: Path) -> list[int]:
    folder = open_folder(out)
    return [
        int(value)
        for number in range(len(folder.manifest.shards))
        for value in folder.columns(number)[0][:, 0]
    ]


def test_a_folder_to_which_pictures_come(tmp_path: Path) -> None:
    from PIL import Image

    def picture(name: str, value: int) -> None:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)

    for number in range(40):
        picture(f"{'ab'[number % 2]}/{number:03}.png", number)
    out, wall = tmp_path / "out", Clock()
    prepare(str(tmp_path / "photos"), out, from_table({"bad": "skip"}, "test"), KEY)
    adder = Adder(out, KEY)
    watch = Watch([tmp_path / "photos"], adder, wall=wall)
    picture("a/100.png", 100)
    picture("c/101.png", 101)
    assert watch.look() == 0, "they may still be written"
    wall.now = 1e12
    assert watch.look() == 1
    assert watch.look() == 0
    adder.close()
    record = read_record(out)
    assert record is not None
    assert record.bad[-1].detail.startswith("class is 'c'")
    assert open_folder(out).manifest.card.counts == (21, 20)


def test_records_of_an_iterator(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare([row(n) for n in range(50)], out, from_table({"bad": "skip"}, "test"), KEY)
    adder = Adder(out, KEY)
    assert add_rows([row(n) for n in range(50, 60)], adder, "rows", 51) == 10
    assert add_rows([{"n": 1, "v": [1, 2, 3], "label": "a"}, row(61)], adder, "rows", 61) == 1
    adder.close()
    assert open_folder(out).manifest.records("train") == 40 + 11
    record = read_record(out)
    assert record is not None
    assert (record.bad[-1].kind, record.bad[-1].line) == ("wrong shape", 61)


def test_what_cannot_grow_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="prepare"):
        Adder(tmp_path, KEY)
    text = tmp_path / "t.txt"
    text.write_text("to be or not to be " * 50)
    prepare(str(text), tmp_path / "out", from_table({"text": {"length": 8}}, "test"), KEY)
    with pytest.raises(DataMalformed, match="plain text"):
        Adder(tmp_path / "out", KEY)
    source, out = prepared(_made(tmp_path / "j"))
    watch = Watch([source], Adder(out, KEY))
    source.write_text("")
    with pytest.raises(DataMalformed, match="shorter"):
        watch.look()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
