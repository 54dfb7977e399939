"""What lies at a path: its format, its splits, its classes, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdgrad.data.preparing.finding import find, split_in
from crowdgrad.errors import DataMalformed, DataMissing


def laid(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a,b\n1,2\n")
    return root


def test_a_folder_is_what_most_of_its_files_are(tmp_path: Path) -> None:
    laid(tmp_path, "a.csv", "b.csv", "c.npy", ".hidden.csv", ".git/d.csv", "odd.xyz")
    found = find([tmp_path])
    assert found.format == "table"
    assert [file.name for file in found.files] == ["a.csv", "b.csv"]
    assert found.left_out == 2


def test_a_readme_is_no_data(tmp_path: Path) -> None:
    found = find([laid(tmp_path, "README.md", "LICENSE.txt", "data.csv")])
    assert [file.name for file in found.files] == ["data.csv"]


def test_splits_by_folder_and_by_name(tmp_path: Path) -> None:
    laid(tmp_path, "train/a.csv", "val/a.csv", "test/a.csv", "x_dev.csv", "latest.csv")
    splits = {file.name: file.split for file in find([tmp_path]).files}
    assert splits == {
        "train/a.csv": "train", "val/a.csv": "validation", "test/a.csv": "test",
        "x_dev.csv": "validation", "latest.csv": None,
    }  # fmt: skip
    assert split_in(["train_test"]) is None


def test_classes_are_folders(tmp_path: Path) -> None:
    laid(tmp_path, "train/cats/1.png", "train/dogs/2.png", "test/cats/train/3.png")
    labels = {file.name: (file.split, file.label) for file in find([tmp_path]).files}
    assert labels == {
        "train/cats/1.png": ("train", "cats"), "train/dogs/2.png": ("train", "dogs"),
        "test/cats/train/3.png": ("test", "cats"),
    }  # fmt: skip


def test_nothing_we_read(tmp_path: Path) -> None:
    with pytest.raises(DataMalformed, match=r"odd\.xyz: no format we read"):
        find([laid(tmp_path / "folder", "odd.xyz")])
    with pytest.raises(DataMissing, match="There is no"):
        find([tmp_path / "nowhere"])
