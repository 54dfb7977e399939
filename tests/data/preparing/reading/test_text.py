"""Plain text: windows of tokens, the end held out, whatever the parts it was read in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crowdgrad.data.preparing.reading import ranges
from crowdgrad.errors import BadRecords, DataMalformed
from tests.data.preparing.making import made, records, whole

TEXT = "".join(f"Zeile {n}: {'äöü€🦊'[n % 5]} und so weiter.\n" for n in range(60))


def in_sequence(found: dict[str, np.ndarray], length: int) -> list[list[int]]:
    return sorted([*x.tolist(), int(y[-1])] for x, y in zip(found["x"], found["y"], strict=True))


def windows(ids: list[int], length: int) -> list[list[int]]:
    count = (len(ids) - 1) // length
    return sorted(ids[n * length : n * length + length + 1] for n in range(count))


@pytest.mark.parametrize("part_bytes", [50, 4 << 20])
@pytest.mark.parametrize("tokens", ["char", "byte"])
def test_every_window_once(
    tmp_path: Path, tokens: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "PART_BYTES", part_bytes)
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    result = made(tmp_path / "a.txt", tmp_path / "out", text={"tokens": tokens, "length": 16})
    letters = sorted(set(TEXT))
    ids = [letters.index(c) for c in TEXT] if tokens == "char" else list(TEXT.encode())
    found = records(result.folder)
    assert np.array_equal(found["x"][:, 1:], found["y"][:, :-1])
    assert in_sequence(found, 16) == windows(ids, 16)
    if tokens == "char":
        assert result.folder.manifest.card.vocabulary == tuple(letters)


def test_the_end_is_held_out(tmp_path: Path) -> None:
    """What comes before the test is no secret; what comes after would be."""
    (tmp_path / "a.txt").write_bytes(bytes(range(65, 91)) * 40)
    result = made(
        tmp_path / "a.txt", tmp_path / "out", text={"tokens": "byte", "length": 10},
        validation=10, test=20,
    )  # fmt: skip
    ids = list(bytes(range(65, 91)) * 40)
    every = [ids[n * 10 : n * 10 + 10] for n in range(103)]
    for split, part in {
        "train": every[:73],
        "validation": every[73:83],
        "test": every[83:],
    }.items():
        assert sorted(records(result.folder, split)["x"].tolist()) == sorted(part)


@pytest.mark.parametrize("part_bytes", [50, 4 << 20])
def test_splits_that_a_text_has_are_kept(
    tmp_path: Path, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As WikiText comes; validation, which it lacks here, is the end of what trains."""
    monkeypatch.setattr(ranges, "PART_BYTES", part_bytes)
    folder = tmp_path / "texts"
    folder.mkdir()
    lines = {name: [f"{name} {n}\n" for n in range(50)] for name in ("test", "train")}
    for name, text in lines.items():
        (folder / f"wiki.{name}.txt").write_text("".join(text))
    result = made(
        folder, tmp_path / "out", text={"tokens": "byte", "length": 10}, validation=3, test=99
    )
    ids = {name: list("".join(text).encode()) for name, text in lines.items()}
    test, train = records(result.folder, "test"), records(result.folder, "train", "validation")
    assert in_sequence(test, 10) == windows(ids["test"], 10)
    assert in_sequence(train, 10) == windows(ids["train"], 10)
    count = (len(ids["train"]) - 1) // 10
    held = [ids["train"][n * 10 : n * 10 + 10] for n in range(count - 3, count)]
    assert sorted(records(result.folder, "validation")["x"].tolist()) == sorted(held)


VOCABULARY = ["<unk>", "the", "cat", "sat", "ting", ".", "s"]


def test_a_vocabulary_of_ones_own(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("\n".join(VOCABULARY) + "\n")
    (tmp_path / "a.txt").write_text("the cats satting . zebra\n" * 30)
    result = made(
        tmp_path / "a.txt", tmp_path / "out", text={"tokens": str(words), "length": 7},
        validation=0, test=0,
    )  # fmt: skip
    ids = [1, 2, 6, 3, 4, 5, 0] * 30
    assert in_sequence(records(result.folder), 7) == windows(ids, 7)
    assert result.folder.manifest.card.vocabulary == tuple(VOCABULARY)


def test_without_unk_a_line_of_other_words_is_a_bad_one(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("\n".join(VOCABULARY[1:]))
    (tmp_path / "a.txt").write_text("the cat\n" * 40 + "the zebra\n" + "sat .\n" * 40)
    text = {"tokens": str(words), "length": 4}
    with pytest.raises(BadRecords) as caught:
        made(tmp_path / "a.txt", tmp_path / "out", text=text)
    assert caught.value.counts == {"not in the vocabulary": 1}
    assert caught.value.shown[0][:2] == ("a.txt", 41)
    found = whole(tmp_path / "a.txt", tmp_path / "out", text=text, bad="skip")
    assert len(found["x"]) == (160 - 1) // 4


def test_a_line_in_another_encoding_is_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 40 + b"K\xf6ln\rhere\n" + b"fine\n" * 40)
    with pytest.raises(BadRecords) as caught:
        made(tmp_path / "a.txt", tmp_path / "out", text={"length": 5})
    assert caught.value.counts == {"bad encoding": 1}
    assert caught.value.shown[0][:2] == ("a.txt", 41)
    found = whole(tmp_path / "a.txt", tmp_path / "out", text={"length": 5}, bad=1)
    assert len(found["x"]) == 79


@pytest.mark.parametrize("unit", ["wörter ", "ö", "日本"])
def test_a_line_longer_than_a_part_is_cut(
    tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some texts have no line break at all; no character may be cut in two."""
    monkeypatch.setattr(ranges, "PART_BYTES", 64)
    (tmp_path / "a.txt").write_text(unit * 100, encoding="utf-8")
    found = list(
        ranges.line_ranges(str(tmp_path / "a.txt"), quotes=False, heading=False, anywhere=True)
    )
    assert max(stop - start for start, stop, _ in found) <= 128
    letters = sorted(set(unit))
    kept = whole(tmp_path / "a.txt", tmp_path / "out", text={"length": 10})
    assert in_sequence(kept, 10) == windows([letters.index(c) for c in unit * 100], 10)


def test_too_short_a_text_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(DataMalformed, match="5 tokens do not fill a window of 64"):
        made(tmp_path / "a.txt", tmp_path / "out")
