"""Diamonds: 53,940 stones with their measures, grades and prices in dollars.

The table of R's ggplot2, which two independent packages carry byte for byte. Unlike the usual small
regression sets it is large enough for an error that hardly depends on the split, and it has numbers
and grades side by side: two inputs of different kinds.
"""

from __future__ import annotations

import csv
import io

import numpy as np

from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import Source, Wheel

NUMBERS = ("carat", "depth", "table", "x", "y", "z")
GRADES = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": ("J", "I", "H", "G", "F", "E", "D"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}
"""From the worst to the best."""
TEST_RECORDS = 5_000
SEED = 0

TABLE = PinnedFile(
    name="diamonds.csv",
    sha256="9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4",
    size_bytes=2_772_143,
)
SOURCES: tuple[Source, ...] = (
    Wheel(
        package=Package(
            requirement="plotnine==0.13.0",
            sha256="53fcb64d12eea7d5000f10af99a97c3b2f2073d6bbd054b36e01e471f0e8f65c",
            size_bytes=1_290_881,
        ),
        members={TABLE.name: f"plotnine/data/{TABLE.name}"},
    ),
    Wheel(
        package=Package(
            requirement="ggplot==0.11.5",
            sha256="cd9648752d7e7a74dce263939067c6bfe46217dfd6472f08d0c68a22b5ad3c9a",
            size_bytes=2_210_281,
        ),
        members={TABLE.name: f"ggplot/datasets/{TABLE.name}"},
    ),
)


def build(contents: dict[str, bytes]) -> DataSet:
    rows = csv.DictReader(io.StringIO(contents[TABLE.name].decode("ascii")))
    stones = [_stone(row) for row in rows]
    numbers, grades, prices = zip(*stones, strict=True)
    return from_arrays(
        np.array(numbers, np.float32),
        np.array(grades, np.uint8),
        np.array(prices, np.float32),
        names=("numbers", "grades", "price"),
        title="diamonds",
        test=TEST_RECORDS,
        seed=SEED,
        note="stones: carat, depth, table, x, y, z; cut, colour, clarity; price in dollars",
    )


def _stone(row: dict[str, str]) -> tuple[list[float], list[int], float]:
    numbers = [float(row[name]) for name in NUMBERS]
    grades = [best.index(row[name]) for name, best in GRADES.items()]
    return numbers, grades, float(row["price"])


ENTRY = Entry(
    name="diamonds",
    title="diamonds",
    summary="48,940 + 5,000 stones, numbers and grades, with their prices; 1.3 MB to download",
    build=build,
    files=(TABLE,),
    sources=SOURCES,
)
