"""Small files in the formats of the catalogue's sets: the real fields without the real records."""

from __future__ import annotations

import numpy as np

from crowdgrad.data import catalogue
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.sets import cifar10, diamonds, imdb, mnist, shakespeare, vowels

CHARACTERS = "".join(chr(code) for code in range(32, 32 + 65))
"""As many as the plays have."""
TEXT = "".join(CHARACTERS[7 * i % 65] for i in range(3990)) + CHARACTERS[-1] * 210


def idx(*shape: int) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    values = np.arange(int(np.prod(shape))) % 10
    return bytes([0, 0, 8, len(shape)]) + sizes + values.astype(np.uint8).tobytes()


def series(*speakers: int) -> bytes:
    line = ":".join(["1,2,3"] + ["4,5,6"] * 11)
    rows = "".join(f"{line}:{speaker}\n" for speaker in speakers)
    return f"# a comment\n@data\n{rows}".encode()


def table(rows: int) -> bytes:
    header = '"carat","cut","color","clarity","depth","table","price","x","y","z"\n'
    row = '0.5,"Ideal","J","SI2",61.5,55,{price},3.95,3.98,2.43\n'
    return (header + "".join(row.format(price=300 + i) for i in range(rows))).encode()


def photographs(*labels: int) -> bytes:
    """Each picture has planes of three shades: its label, twice and three times as bright."""
    plane = np.ones(cifar10.SIDE**2, np.uint8)
    return b"".join(
        bytes([label, *np.concatenate([plane * label, plane * 2 * label, plane * 3 * label])])
        for label in labels
    )


def reviews(rows: int) -> bytes:
    """Good and bad in turn, the first twice, one of another source."""
    line = '"A fine film.<br />Fine, number {i}! ""{verdict}""",{label},imdb\n'
    lines = [
        line.format(i=i, verdict=("rubbish", "great")[i % 2], label=i % 2) for i in range(rows)
    ]
    return ("text,label,source\n" + "".join([*lines, lines[0], "tepid,0,else\n"])).encode()


FILES = {
    "mnist": {
        mnist.TRAIN_X: idx(20, 28, 28),
        mnist.TRAIN_Y: idx(20),
        mnist.TEST_X: idx(2, 28, 28),
        mnist.TEST_Y: idx(2),
    },
    "cifar10": {
        **{name: photographs(number, 9 - number) for number, name in enumerate(cifar10.TRAIN)},
        cifar10.TEST: photographs(7),
    },
    "imdb": {imdb.TABLE.name: reviews(40)},
    "shakespeare": {shakespeare.TEXT.name: TEXT.encode()},
    "japanese_vowels": {vowels.TRAIN: series(1, 9, 3, 5), vowels.TEST: series(2, 4)},
    "diamonds": {diamonds.TABLE.name: table(diamonds.TEST_RECORDS + 8)},
}


def stand_in(name: str) -> DataSet:
    """A set of the catalogue, built from the small files where it needs files."""
    return catalogue.find(name).build(FILES.get(name, {}))
