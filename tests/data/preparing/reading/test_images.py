"""Folders of pictures: the pixels that Pillow gives, the classes of their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from crowdgrad.errors import BadRecords, DataMalformed
from tests.data.preparing.making import classes, made, records, rows, whole


def pixels(n: int, height: int = 6, width: int = 8, bands: int = 3) -> np.ndarray:
    shape = (height, width, bands) if bands > 1 else (height, width)
    return np.random.default_rng(n).integers(0, 256, shape, np.uint8)


def folder_of(root: Path, ending: str = "png", mode: str = "RGB", **saving: Any) -> Path:
    for n in range(12):
        place = root / ("cats", "dogs", "eels")[n % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(n)).convert(mode).save(place / f"{n}.{ending}", **saving)
    return root


def directly(root: Path, colour: str = "RGB") -> dict[str, np.ndarray]:
    """Pillow's own reading."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    names = sorted({path.parent.name for path in files})
    found = []
    for path in files:
        with Image.open(path) as image:
            found.append(np.asarray(image.convert(colour)))
    stacked = [p[None] if p.ndim == 2 else np.moveaxis(p, -1, 0) for p in found]
    labels = [names.index(path.parent.name) for path in files]
    return {"x": np.stack(stacked), "y": np.array(labels, np.uint8)}


@pytest.mark.parametrize(
    ("ending", "mode", "colour"),
    [
        ("png", "RGB", "RGB"), ("png", "L", "L"), ("png", "P", "RGB"), ("png", "RGBA", "RGB"),
        ("png", "1", "L"), ("png", "LA", "L"), ("jpg", "RGB", "RGB"), ("jpeg", "L", "L"),
        ("jpg", "CMYK", "RGB"), ("gif", "P", "RGB"), ("bmp", "RGB", "RGB"), ("webp", "RGB", "RGB"),
        ("tiff", "RGB", "RGB"), ("ppm", "RGB", "RGB"), ("pgm", "L", "L"),
    ],
)  # fmt: skip
def test_as_pillow_reads_them(tmp_path: Path, ending: str, mode: str, colour: str) -> None:
    source = folder_of(tmp_path / "pictures", ending, mode)
    result = made(source, tmp_path / "out")
    assert rows(records(result.folder)) == rows(directly(source, colour))
    assert classes(result) == ("cats", "dogs", "eels")
    assert result.folder.manifest.card.counts == (4, 4, 4)


def test_sixteen_bits_are_scaled(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    deep = np.arange(0, 65536, 683, dtype=np.uint16)[:96].reshape(8, 12)
    Image.fromarray(deep).save(tmp_path / "pictures" / "a.png")
    found = whole(tmp_path / "pictures", tmp_path / "out")
    assert found["x"].shape == (1, 1, 8, 12)
    assert np.array_equal(found["x"][0, 0], (deep / 65535 * 255).astype(np.uint8))


def test_pictures_are_turned_upright(tmp_path: Path) -> None:
    """All lie on their side: they have the size they have when they stand."""
    (tmp_path / "pictures").mkdir()
    for orientation in (5, 6, 7, 8):
        image = Image.fromarray(pixels(orientation))
        exif = image.getexif()
        exif[0x0112] = orientation
        image.save(tmp_path / "pictures" / f"{orientation}.png", exif=exif)
    found = whole(tmp_path / "pictures", tmp_path / "out")
    upright = [
        np.moveaxis(np.asarray(ImageOps.exif_transpose(Image.open(path))), -1, 0)
        for path in (tmp_path / "pictures").iterdir()
    ]
    assert found["x"].shape == (4, 3, 8, 6)
    assert rows(found) == rows({"x": np.stack(upright)})


def test_splits_are_folders(tmp_path: Path) -> None:
    folder_of(tmp_path / "pictures" / "train")
    folder_of(tmp_path / "pictures" / "test")
    result = made(tmp_path / "pictures", tmp_path / "out", validation=3)
    manifest = result.folder.manifest
    assert [manifest.records(s) for s in ("train", "validation", "test")] == [9, 3, 12]
    assert classes(result) == ("cats", "dogs", "eels")
    test = directly(tmp_path / "pictures" / "test")
    assert rows(records(result.folder, "test")) == rows(test)


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_sizes_that_differ(tmp_path: Path, fit: str) -> None:
    (tmp_path / "pictures").mkdir()
    for n in range(6):
        Image.fromarray(pixels(n, 6 + n, 20 - n)).save(tmp_path / "pictures" / f"{n}.png")
    images = {"size": [5, 7], "fit": fit}
    found = whole(tmp_path / "pictures", tmp_path / "out", images=images)
    ways = {
        "crop": lambda image: ImageOps.fit(image, (7, 5), Image.Resampling.BILINEAR),
        "pad": lambda image: ImageOps.pad(image, (7, 5), Image.Resampling.BILINEAR),
        "stretch": lambda image: image.resize((7, 5), Image.Resampling.BILINEAR),
    }
    expected = [
        np.moveaxis(np.asarray(ways[fit](Image.open(path))), -1, 0)
        for path in (tmp_path / "pictures").iterdir()
    ]
    assert rows(found) == rows({"x": np.stack(expected)})


def test_unless_told_they_become_as_small_as_the_smallest(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for n in range(3):
        Image.fromarray(pixels(n, 10 + n, 20)).save(tmp_path / "pictures" / f"{n}.png")
    found = whole(tmp_path / "pictures", tmp_path / "out", images={"colour": "grey"})
    assert found["x"].shape == (3, 1, 10, 10)


def bomb(path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(path)


def test_every_way_to_be_broken(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "pictures")
    whole_file = (source / "cats" / "0.png").read_bytes()
    broken = source / "dogs"
    (broken / "cut.png").write_bytes(whole_file[: len(whole_file) // 2])
    (broken / "empty.png").write_bytes(b"")
    (broken / "words.png").write_text("this is no picture")
    bomb(broken / "zbomb.png")
    (source / "outside.png").write_bytes(whole_file)
    with pytest.raises(BadRecords) as caught:
        made(source, tmp_path / "out")
    assert caught.value.counts == {"broken image": 4, "missing label": 1}
    assert {file: kind for file, _, kind, _ in caught.value.shown} == {
        "dogs/cut.png": "broken image", "dogs/empty.png": "broken image",
        "dogs/words.png": "broken image", "dogs/zbomb.png": "broken image",
        "outside.png": "missing label",
    }  # fmt: skip
    found = whole(source, tmp_path / "out", bad=5, images={"size": [6, 8]})
    for name in ("cut", "empty", "words", "zbomb"):
        (broken / f"{name}.png").unlink()
    (source / "outside.png").unlink()
    assert rows(found) == rows(directly(source))


def test_a_folder_without_one_whole_picture(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_text("no")
    with pytest.raises(DataMalformed, match="none of 1 pictures"):
        made(tmp_path / "pictures", tmp_path / "out")
