"""JapaneseVowels: nine speakers, told apart by how they say two vowels.

Kudo, Toyama, Shimbo 1999: 12 channels, 7 to 29 steps, 270 utterances to train on and 370 to test,
padded here to 29 steps with a mask. The hashes were computed from two packages (aeon, sktime) that
agree in every byte.
"""

from __future__ import annotations

import numpy as np

from crowdgrad.data.dataset import Arrays, DataSet
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.formats.ts import padded, parse_ts
from crowdgrad.data.packages import Package
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import Source, Wheel
from crowdgrad.domain.data import Field

TRAIN, TEST = "JapaneseVowels_TRAIN.ts", "JapaneseVowels_TEST.ts"
STEPS, CHANNELS = 29, 12

FILES = (
    PinnedFile(
        name=TRAIN,
        sha256="68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd",
        size_bytes=487_971,
    ),
    PinnedFile(
        name=TEST,
        sha256="b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462",
        size_bytes=649_132,
    ),
)
SOURCES: tuple[Source, ...] = (
    Wheel(
        package=Package(
            requirement="aeon==1.6.0",
            sha256="d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
            size_bytes=6_421_000,
        ),
        members={file.name: f"aeon/datasets/data/JapaneseVowels/{file.name}" for file in FILES},
    ),
    Wheel(
        package=Package(
            requirement="aeon==1.3.0",
            sha256="90e69e7dce01035395468f9afd83f15e34d66513e709456e4dd7763c9aa3cda8",
            size_bytes=6_525_776,
        ),
        members={file.name: f"aeon/datasets/data/JapaneseVowels/{file.name}" for file in FILES},
    ),
    Wheel(
        package=Package(
            requirement="sktime==0.30.0",
            sha256="e6499f50422374b4d43c5bb46d4591139e66c5c15da32e5b5ae955bef8ecd210",
            size_bytes=23_893_498,
        ),
        members={file.name: f"sktime/datasets/data/JapaneseVowels/{file.name}" for file in FILES},
    ),
)


def build(contents: dict[str, bytes]) -> DataSet:
    return DataSet(
        title="JapaneseVowels",
        fields=(
            Field(name="x", dtype="float32", shape=(STEPS, CHANNELS)),
            Field(name="mask", dtype="bool", shape=(STEPS,)),
            Field(name="y", dtype="uint8", shape=()),
        ),
        splits={"train": _split(contents, TRAIN), "test": _split(contents, TEST)},
        note="utterances of nine speakers, 12 channels, 7 to 29 steps, padded to 29 with a mask",
        classes=tuple(f"speaker {number}" for number in range(1, 10)),
        source="Kudo, Toyama, Shimbo 1999: JapaneseVowels",
    )


def _split(contents: dict[str, bytes], name: str) -> Arrays:
    sequences, speakers = parse_ts(contents[name], name)
    values, mask = padded(sequences, STEPS)
    return values, mask, np.array([int(speaker) - 1 for speaker in speakers], np.uint8)


ENTRY = Entry(
    name="japanese_vowels",
    title="JapaneseVowels",
    summary="270 + 370 utterances of nine speakers, sequences with a mask; 6 MB to download",
    build=build,
    files=FILES,
    sources=SOURCES,
)
